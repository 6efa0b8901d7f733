//! Who may read a file of a folder: `<name>.acl` beside the file, or `.acl` for a folder and all below it. The
//! nearest one counts alone. It is read strictly, and what is not in order closes the file instead of opening
//! it (I-6).

use std::collections::BTreeSet;

use merkwelt_domain::GroupName;
use merkwelt_store::source::NewAudience;
use serde::Deserialize;

use super::Refusal;

/// Bytes of such a file.
pub(super) const BYTES_MAX: usize = 64 * 1024;
/// The most groups of one audience.
const GROUPS_MAX: usize = 64;

/// Whom an `.acl` file lets read; nobody if it is not in order. It is public because the file is a stranger's: the
/// fuzzer starts here.
#[must_use]
pub fn audience(bytes: &[u8]) -> Option<NewAudience> {
    Rights::parse(bytes).ok().map(|Rights(audience)| audience)
}

/// Groups by name, or everybody in the tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rights(pub(crate) NewAudience);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    groups: Option<Vec<String>>,
    everybody: Option<bool>,
}

impl Rights {
    /// From words of a configuration or a command line; `None` if they say nothing.
    ///
    /// # Errors
    /// Both groups and everybody, no group, or a name that is none.
    pub(crate) fn of(groups: Option<&[String]>, everybody: bool) -> Result<Option<Self>, String> {
        let Some(groups) = groups else {
            return Ok(everybody.then_some(Self(NewAudience::Tenant)));
        };
        if everybody {
            return Err("groups and everybody exclude each other".to_owned());
        }
        if groups.is_empty() || groups.len() > GROUPS_MAX {
            return Err(format!("groups must name 1 to {GROUPS_MAX} groups"));
        }
        let name = |name: &String| name.parse().map_err(|reason| format!("groups: {reason}"));
        let names = groups.iter().map(name).collect::<Result<BTreeSet<GroupName>, String>>()?;
        Ok(Some(Self(NewAudience::Groups(names))))
    }

    /// Reads an `.acl` file.
    ///
    /// # Errors
    /// Anything in it that is not understood.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let refused = |reason: String| Refusal::BadRights(format!("its .acl is not in order: {reason}"));
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|_| refused("it is not UTF-8".to_owned()))?;
        // The parser's own text would repeat what stands in the file.
        let raw: Raw = toml::from_str(text)
            .map_err(|_| refused("it must say `groups = [\"a\", \"b\"]` or `everybody = true`".to_owned()))?;
        let everybody = match raw.everybody {
            None => false,
            Some(true) => true,
            Some(false) => {
                return Err(refused("`everybody` can only be true; name groups instead".to_owned()));
            }
        };
        Self::of(raw.groups.as_deref(), everybody)
            .map_err(refused)?
            .ok_or_else(|| refused("it names nobody".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_056_what_is_not_understood_opens_nothing() {
        for bad in [
            "",
            "# nobody",
            "groups = []",
            "groups = ['Sales']",
            "groups = ['a', 'b c']",
            "everybody = false",
            "everybody = true\ngroups = ['a']",
            "group = ['a']",
            "groups = 'a'",
            "sales",
            "groups = ['a']\nx = 1",
            "groups = ['a'",
            "everybody = 'true'",
            "groups = ['*']",
        ] {
            assert!(Rights::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Rights::parse(b"groups = ['\xff']").is_err());
        let Rights(groups) = Rights::parse(b"\xef\xbb\xbf# who\ngroups = ['sales', 'hr']\n").unwrap();
        let names = ["hr", "sales"].map(|name| name.parse().unwrap());
        assert_eq!(groups, NewAudience::Groups(names.into_iter().collect()));
        assert_eq!(Rights::parse(b"everybody = true"), Ok(Rights(NewAudience::Tenant)));
    }
}
