//! What the configuration says about a connector: `[[connector]]`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use merkwelt_domain::TenantName;
use merkwelt_domain::memory::{Expiry, NoExpiryReason};
use merkwelt_domain::source::{EvidencePolicy, Terms};
use serde::Deserialize;

use crate::folder::{Bounds, Label, Missing, Rights};

/// A `[[connector]]` as it stands in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConnector {
    name: String,
    tenant: String,
    folder: PathBuf,
    key_file: PathBuf,
    groups: Option<Vec<String>>,
    everybody: Option<bool>,
    removal: Option<String>,
    purpose: Option<String>,
    evidence: Option<String>,
    poll_seconds: Option<u64>,
    settle_seconds: Option<u64>,
    rescan_seconds: Option<u64>,
    file_megabytes: Option<usize>,
    files: Option<usize>,
}

/// A connector, checked.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Its name; origins of its sources begin with it.
    pub(crate) label: Label,
    /// The tenant whose sources it keeps; the key must be of this one.
    pub(crate) tenant: TenantName,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The file with the key.
    pub(crate) key_file: PathBuf,
    /// Who may read what no `.acl` speaks of.
    pub(crate) rights: Option<Rights>,
    /// What is recorded beside new sources.
    pub(crate) terms: Terms,
    /// What happens to a source whose file is gone.
    pub(crate) missing: Missing,
    /// How much the folder may cost.
    pub(crate) bounds: Bounds,
    /// Milliseconds between two looks.
    pub(crate) poll_ms: i64,
    /// Milliseconds for which a file must have stayed the same.
    pub(crate) settle_ms: i64,
    /// Milliseconds after which every file is read again.
    pub(crate) rescan_ms: i64,
}

impl Setting {
    /// Checks the connectors of a configuration.
    ///
    /// # Errors
    /// A value is out of range, or two connectors have one name.
    pub(crate) fn all(raw: &[RawConnector], data_dir: &Path) -> anyhow::Result<Vec<Self>> {
        let mut settings: Vec<Self> = Vec::new();
        for raw in raw {
            let setting = Self::of(raw, data_dir).with_context(|| format!("connector `{}`", raw.name))?;
            if settings.iter().any(|other| other.label == setting.label) {
                bail!("two connectors are named `{}`; names are unique", raw.name);
            }
            settings.push(setting);
        }
        Ok(settings)
    }

    fn of(raw: &RawConnector, data_dir: &Path) -> anyhow::Result<Self> {
        let everybody = match raw.everybody {
            None => false,
            Some(true) => true,
            Some(false) => bail!("everybody can only be true; leave it out or name groups"),
        };
        let missing = match raw.removal.as_deref() {
            None | Some("delete") => Missing::Delete,
            Some("withdraw") => Missing::Withdraw,
            Some(_) => bail!("removal must be delete or withdraw"),
        };
        let (folder, data) = (real(&raw.folder), real(data_dir));
        if folder.starts_with(&data) || data.starts_with(&folder) {
            bail!("the folder and the data directory must not lie in each other");
        }
        let evidence = raw.evidence.as_deref().map_or(Ok(EvidencePolicy::DigestWithVersion), str::parse);
        let purpose = raw.purpose.as_deref().map(str::parse).transpose();
        let megabytes = in_range("file_megabytes", raw.file_megabytes, 32, 1_024)?;
        Ok(Self {
            label: Label::parse(&raw.name)?,
            tenant: raw.tenant.parse().context("tenant")?,
            folder: raw.folder.clone(),
            key_file: raw.key_file.clone(),
            rights: Rights::of(raw.groups.as_deref(), everybody).map_err(anyhow::Error::msg)?,
            terms: Terms {
                expiry: Expiry::Never(NoExpiryReason::CompanyKnowledge),
                evidence: evidence?,
                purpose: purpose.context("purpose")?,
            },
            missing,
            bounds: Bounds {
                entries_max: in_range("files", raw.files, 100_000, 10_000_000)?,
                bytes_max: megabytes << 20,
            },
            poll_ms: millis("poll_seconds", raw.poll_seconds, 2, 3_600)?,
            settle_ms: millis("settle_seconds", raw.settle_seconds, 2, 3_600)?,
            rescan_ms: millis("rescan_seconds", raw.rescan_seconds, 3_600, 604_800)?,
        })
    }
}

/// Where a folder really is, as far as it is there.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

fn in_range(name: &str, value: Option<usize>, default: usize, max: usize) -> anyhow::Result<usize> {
    match value {
        None => Ok(default),
        Some(value) if (1..=max).contains(&value) => Ok(value),
        Some(value) => bail!("{name} is {value}, but must be between 1 and {max}"),
    }
}

fn millis(name: &str, value: Option<u64>, default: i64, max: i64) -> anyhow::Result<i64> {
    let seconds = value.map_or(default, |value| i64::try_from(value).unwrap_or(i64::MAX));
    if (1..=max).contains(&seconds) {
        Ok(seconds * 1000)
    } else {
        bail!("{name} is {seconds}, but must be between 1 and {max}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "name = 'policies'\ntenant = 'default'\nfolder = '/srv/policies'\nkey_file = 'k'\n";

    fn of(more: &str) -> anyhow::Result<Setting> {
        Setting::of(&toml::from_str(&format!("{PLAIN}{more}"))?, Path::new("/srv/data"))
    }

    #[test]
    fn a_connector_says_what_it_may_and_unknown_words_are_errors() {
        let plain = of("").unwrap();
        assert!(plain.rights.is_none() && plain.missing == Missing::Delete);
        assert_eq!((plain.poll_ms, plain.settle_ms, plain.rescan_ms), (2_000, 2_000, 3_600_000));
        assert_eq!(of("removal = 'withdraw'").unwrap().missing, Missing::Withdraw);
        for bad in [
            "removal = 'keep'",
            "everybody = false",
            "groups = []",
            "groups = ['A']",
            "poll_seconds = 0",
            "everybody = true\ngroups = ['a']",
            "file_megabytes = 4096",
            "role = 'admin'",
            "evidence = 'all'",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        for folder in ["/srv", "/srv/data", "/srv/data/tenants"] {
            let raw = PLAIN.replace("/srv/policies", folder);
            assert!(Setting::of(&toml::from_str(&raw).unwrap(), Path::new("/srv/data")).is_err(), "{folder}");
        }
        let raw: RawConnector = toml::from_str(PLAIN).unwrap();
        assert!(Setting::all(&[raw.clone(), raw], Path::new("/srv/data")).is_err());
    }
}
