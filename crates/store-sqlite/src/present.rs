//! Present grants that were read before, kept as long as no commit moves them. They save a read transaction per
//! request and open nothing by themselves: what is read or written compares their generation again (I-2).

use std::collections::BTreeMap;
use std::sync::Mutex;

use merkwelt_authz::{Grants, Principal};
use merkwelt_domain::{GrantEpoch, SubjectId};

use crate::crypt::TenantKeys;
use crate::pool::lock;

/// For how many principals a tenant's grants are kept.
const KEPT_MAX: usize = 64;

/// Whose grants they are, without the customer's reference in plain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Nobody,
    Subject(SubjectId),
    /// By the keyed tag of a reference.
    Tagged([u8; 32]),
}

impl Who {
    pub(crate) fn of(principal: &Principal, keys: &TenantKeys) -> Self {
        match principal {
            Principal::Nobody => Self::Nobody,
            Principal::Bound(subject) => Self::Subject(subject.clone()),
            Principal::Named(reference) => Self::Tagged(keys.reference_tag(reference.expose())),
        }
    }
}

/// The grants of one generation; none while it is not known which generation is the present one.
#[derive(Default)]
struct Generation {
    epoch: Option<GrantEpoch>,
    grants: BTreeMap<Who, Grants>,
}

/// What is kept of a tenant.
#[derive(Default)]
pub(crate) struct Present(Mutex<Generation>);

impl Present {
    /// Grants that are present.
    pub(crate) fn of(&self, who: &Who) -> Option<Grants> {
        lock(&self.0).grants.get(who).cloned()
    }

    /// Keeps what was read, if it still is of the present generation.
    pub(crate) fn keep(&self, who: Who, grants: &Grants) {
        let mut present = lock(&self.0);
        // INVARIANT: I-2, R-029: a snapshot from before a change never stands for what came after it.
        if present.epoch != Some(grants.epoch) {
            return;
        }
        if present.grants.len() >= KEPT_MAX {
            present.grants.clear();
        }
        present.grants.insert(who, grants.clone());
    }

    /// A commit is about to move the grants: until [`Self::settle`] nothing is known to be present.
    pub(crate) fn leave(&self) {
        *lock(&self.0) = Generation::default();
    }

    /// A commit is durable, and this generation is the present one.
    pub(crate) fn settle(&self, epoch: GrantEpoch) {
        let mut present = lock(&self.0);
        if present.epoch != Some(epoch) {
            *present = Generation { epoch: Some(epoch), grants: BTreeMap::new() };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn grants(epoch: GrantEpoch) -> Grants {
        Grants { epoch, subject: None, groups: BTreeSet::new() }
    }

    #[test]
    fn r_029_grants_of_a_snapshot_from_before_a_change_are_not_kept() {
        let (before, after) = (GrantEpoch::from_number(4), GrantEpoch::from_number(5));
        let present = Present::default();
        present.keep(Who::Nobody, &grants(before));
        assert_eq!(present.of(&Who::Nobody), None, "nothing is known before the first commit");
        present.settle(before);
        present.keep(Who::Nobody, &grants(before));
        assert_eq!(present.of(&Who::Nobody), Some(grants(before)));
        present.settle(before);
        assert_eq!(
            present.of(&Who::Nobody),
            Some(grants(before)),
            "a commit that moves nothing forgets nothing"
        );
        present.leave();
        present.keep(Who::Nobody, &grants(before));
        present.keep(Who::Nobody, &grants(after));
        assert_eq!(present.of(&Who::Nobody), None, "while a commit is under way");
        present.settle(after);
        present.keep(Who::Nobody, &grants(before));
        assert_eq!(present.of(&Who::Nobody), None, "a late reader of the generation before");
        present.keep(Who::Nobody, &grants(after));
        assert_eq!(present.of(&Who::Nobody), Some(grants(after)));
    }

    #[test]
    fn many_principals_do_not_fill_the_memory() {
        let (present, epoch) = (Present::default(), GrantEpoch::from_number(1));
        present.settle(epoch);
        for number in 0..2 {
            present.keep(Who::Tagged([number; 32]), &grants(epoch));
        }
        assert_eq!(present.of(&Who::Tagged([0; 32])), Some(grants(epoch)), "there was room for the second");
        for number in 2..=255u8 {
            present.keep(Who::Tagged([number; 32]), &grants(epoch));
        }
        assert!(lock(&present.0).grants.len() <= KEPT_MAX);
        assert_eq!(present.of(&Who::Tagged([255; 32])), Some(grants(epoch)));
        assert_eq!(present.of(&Who::Tagged([0; 32])), None);
    }
}
