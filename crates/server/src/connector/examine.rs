//! The right of a connector: a key of its tenant in a file of its own. The same checks are made before each
//! piece of work and by `merkwelt doctor`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use merkwelt_authz::{ActionName, ApiKey, Caller, Unauthenticated, authenticate};
use merkwelt_domain::Env;
use merkwelt_store_sqlite::Sqlite;

use super::report::Report;
use super::setting::Setting;
use crate::folder::Root;

/// The key of a connector, from its file.
///
/// # Errors
/// It cannot be read, can be read by others, or is no key.
pub(super) fn read_key(setting: &Setting) -> anyhow::Result<ApiKey> {
    let path = &setting.key_file;
    let shown = path.display();
    let mode = std::fs::metadata(path)
        .with_context(|| format!("cannot read the key file {shown}; make it with `merkwelt key create`"))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        bail!("the key file {shown} can be read by others; run `chmod 600 {shown}`");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the key file {shown}"))?;
    text.trim()
        .parse()
        .map_err(|_| anyhow::anyhow!("{shown} holds no key; make one with `merkwelt key create`"))
}

/// Whether whoever holds the key may keep the sources of the configured tenant.
///
/// # Errors
/// It may not; the text says what to do.
pub(super) fn check_caller(
    setting: &Setting,
    store: &Sqlite,
    caller: Result<Caller, Unauthenticated>,
) -> anyhow::Result<Caller> {
    let shown = setting.key_file.display();
    let Ok(caller) = caller else {
        bail!("the key in {shown} is not valid (any more); make another with `merkwelt key create`");
    };
    let tenant = store.tenant_named(&setting.tenant);
    if tenant.as_ref() != Some(caller.tenant()) {
        bail!("the key in {shown} is not of the tenant `{}`", setting.tenant.as_str());
    }
    if !caller.role().may(ActionName::ManageSources) {
        bail!("the key in {shown} may not manage sources; make one of role app");
    }
    Ok(caller)
}

/// Looks at a connector without its work: the folder, the key, and how its last look went. Two lists: what is
/// not in order, and what is to be known.
pub(crate) fn examine(
    setting: &Setting,
    data_dir: &Path,
    store: &Sqlite,
    env: &dyn Env,
) -> (Vec<String>, Vec<String>) {
    let (mut bad, mut notes) = (Vec::new(), Vec::new());
    let folder = Root::open(&setting.folder).and_then(|root| root.list(&setting.bounds));
    bad.extend(folder.err().map(|error| format!("{error:#}")));
    let key = read_key(setting).and_then(|key| {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let caller = runtime.block_on(authenticate(store, &key, env.now()));
        check_caller(setting, store, caller)
    });
    bad.extend(key.err().map(|error| format!("{error:#}")));
    match Report::load(&Report::path(data_dir, setting.label.as_str())) {
        Ok(None) => notes.push("it has not looked at its folder yet".to_owned()),
        Ok(Some(report)) => {
            let counts = report.counts();
            let n = |state: &str| counts.get(state).copied().unwrap_or_default();
            notes.push(format!(
                "{} files current, {} refused; looked at {}: {}",
                n("current"),
                n("refused"),
                report.looked_at,
                report.state
            ));
        }
        Err(error) => bad.push(format!("{error:#}")),
    }
    (bad, notes)
}
