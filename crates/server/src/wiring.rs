//! The only place that names a backend, a grant source and an environment, and puts them together.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use merkwelt_app::{App, EmbeddingModel};
use merkwelt_authz::{ApiKey, Credential, Role};
use merkwelt_domain::{Env, TenantId, TenantName};
use merkwelt_store::query::ModelId;
use merkwelt_store::{Founding, NewKey, Tenant};
use merkwelt_store_sqlite::{MasterKey, Options, Sqlite, Threads, is_half_made};
use zeroize::Zeroizing;

use crate::config::Config;
use crate::env::SystemEnv;

/// What a first start created. The keys are shown once and are nowhere else.
#[derive(Debug)]
pub struct Founded {
    /// Runs the instance.
    pub admin: ApiKey,
    /// Runs the first tenant.
    pub tenant_admin: ApiKey,
    /// Works for the first tenant and may act for its subjects.
    pub app: ApiKey,
    /// The first tenant.
    pub tenant: Tenant,
}

/// Whether the data directory holds an instance.
///
/// # Errors
/// It cannot be told; the text says what to do.
pub fn exists(config: &Config) -> anyhow::Result<bool> {
    merkwelt_store_sqlite::exists(&config.data_dir)
        .with_context(|| cannot("look for the data in", &config.data_dir))
}

/// Tells the log if others can read the data directory. What is in it is encrypted and private file by file, so it
/// is no reason to stop.
pub fn warn_if_open(config: &Config) {
    let dir = config.data_dir.display();
    if std::fs::metadata(&config.data_dir).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        tracing::warn!("{dir} can be read by others: run `chmod 700 {dir}`");
    }
}

/// Creates an instance: directory 0700, instance key 0600, the first tenant and its keys. `model` is the one
/// in use.
///
/// # Errors
/// Something exists already or cannot be written; the text says what to do.
pub fn found(
    config: &Config,
    env: &Arc<dyn Env>,
    model: Option<&ModelId>,
) -> anyhow::Result<(Sqlite, Founded)> {
    let mut made = None;
    let store = found_showing(config, env, model, |founded| {
        made = Some(founded);
        Ok(())
    })?;
    Ok((store, made.context("nothing was founded")?))
}

/// The same, handing over the keys before the instance counts. If `show` fails, or the process dies until
/// then, the next start begins anew and shows other keys; so nobody is left with data and without keys.
///
/// # Errors
/// As of [`found`], and those of `show`.
pub fn found_showing(
    config: &Config,
    env: &Arc<dyn Env>,
    model: Option<&ModelId>,
    show: impl FnOnce(Founded) -> anyhow::Result<()>,
) -> anyhow::Result<Sqlite> {
    let dir = &config.data_dir;
    if exists(config)? {
        bail!("{} holds an instance already", dir.display());
    }
    make_private_dir(dir)?;
    let is_empty = std::fs::read_dir(dir).with_context(|| cannot("look into", dir))?.next().is_none();
    if !is_empty && !is_half_made(dir) {
        bail!("{} is not empty and holds no Merkwelt data; name another directory", dir.display());
    }
    let master = create_instance_key(&config.instance_key, &**env)?;
    let (founding, founded) = founding(&**env)?;
    let store = Sqlite::begin(dir, &master, founding, Arc::clone(env), options(config, model))
        .with_context(|| cannot("create the data in", dir))?;
    show(founded)?;
    store.settle().with_context(|| cannot("create the data in", dir))?;
    Ok(store)
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}

/// Opens an instance. `model` is the one in use.
///
/// # Errors
/// The key file is missing or wrong, the vectors are of another model (I-14), or the data cannot be opened;
/// the text says what to do.
pub fn open(config: &Config, env: &Arc<dyn Env>, model: Option<&ModelId>) -> anyhow::Result<Sqlite> {
    let master = read_instance_key(&config.instance_key)?;
    Sqlite::open(&config.data_dir, &master, Arc::clone(env), options(config, model))
        .with_context(|| format!("cannot open the data in {}", config.data_dir.display()))
}

/// The environment of this machine.
#[must_use]
pub fn system_env() -> Arc<dyn Env> {
    Arc::new(SystemEnv::new())
}

/// Wires the application over an open store, with an engine for the model of the store.
///
/// # Errors
/// The table of the configured tokeniser cannot be unpacked.
pub fn app(
    config: &Config,
    store: impl Into<Arc<Sqlite>>,
    env: Arc<dyn Env>,
    model: Option<EmbeddingModel>,
) -> anyhow::Result<App> {
    let counter = merkwelt_inference::tokens::counter(&config.tokenizer)
        .with_context(|| format!("context.tokenizer `{}` is not usable", config.tokenizer))?;
    Ok(App::new(store.into(), env, model, counter, config.settings.clone()))
}

fn options(config: &Config, model: Option<&ModelId>) -> Options {
    Options {
        model: model.cloned(),
        threads: Threads::Pool(config.threads),
        shard_bytes_max: config.index_bytes,
        cells_max: config.open_tenants,
        idle_ms_max: config.idle_ms_max,
    }
}

fn founding(env: &dyn Env) -> anyhow::Result<(Founding, Founded)> {
    let at = env.now();
    let (system, tenant) = (TenantId::random(env), TenantId::random(env));
    let name: TenantName = "default".parse()?;
    let (admin, admin_key) = key(env, &system, Role::InstanceAdmin, false, "first-admin")?;
    let (tenant_admin, tenant_admin_key) = key(env, &tenant, Role::TenantAdmin, false, "first-tenant-admin")?;
    let (app, app_key) = key(env, &tenant, Role::App, true, "first-app")?;
    let tenant = Tenant { id: tenant, name, created_at: at };
    let founded =
        Founded { admin: admin_key, tenant_admin: tenant_admin_key, app: app_key, tenant: tenant.clone() };
    Ok((Founding { system, admin, tenant, keys: vec![tenant_admin, app], at }, founded))
}

fn key(
    env: &dyn Env,
    tenant: &TenantId,
    role: Role,
    act_for: bool,
    label: &str,
) -> anyhow::Result<(NewKey, ApiKey)> {
    let key = ApiKey::random(env);
    let credential = Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role,
        subject: None,
        act_for,
        expires_at: None,
        revoked_at: None,
    };
    Ok((NewKey { credential, subject: None, label: label.parse()? }, key))
}

fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        let mode = std::fs::metadata(dir)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("{} can be read by others; run `chmod 700 {0}` first", dir.display());
        }
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .and_then(|()| sync_ancestors(dir))
        .with_context(|| cannot("create", dir))
}

/// Makes the names on the way to `path` durable, as far as they may be opened.
fn sync_ancestors(path: &Path) -> std::io::Result<()> {
    let path = std::path::absolute(path)?;
    path.ancestors().skip(1).map_while(|dir| File::open(dir).ok()).try_for_each(|dir| dir.sync_all())
}

const KEY_BYTES: usize = 32;

fn create_instance_key(path: &Path, env: &dyn Env) -> anyhow::Result<MasterKey> {
    if path.exists() {
        // An operator may bring the key; it is then used as it is.
        return read_instance_key(path);
    }
    let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
    env.fill(bytes.as_mut());
    let text = Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
    write_key(path, &text).with_context(|| cannot("write the instance key to", path))?;
    Ok(MasterKey::from_bytes(*bytes))
}

/// Under another name first, so that a crash leaves a whole key or none.
fn write_key(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(new, path)?;
    sync_ancestors(path)
}

fn read_instance_key(path: &Path) -> anyhow::Result<MasterKey> {
    let text = std::fs::read_to_string(path).map(Zeroizing::new).with_context(|| {
        format!(
            "cannot read the instance key {}; bring it back, or name its file with --instance-key",
            path.display()
        )
    })?;
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!("the instance key {} can be read by others; run `chmod 600 {0}`", path.display());
    }
    let Some(bytes) = parse_hex(text.trim()) else {
        bail!(
            "{} is not an instance key: 64 hexadecimal digits are expected; bring back the right file",
            path.display()
        );
    };
    Ok(MasterKey::from_bytes(*bytes))
}

fn parse_hex(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
    if text.len() != KEY_BYTES * 2 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(i * 2..i * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}
