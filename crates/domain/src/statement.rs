//! A statement before it is a memory: the rules that bind its kind, its pointer and its end.

use crate::memory::{Author, Error, Expiry, Kind, Metadata, Pointer, Slot};
use crate::text::Content;
use crate::time::Timestamp;

/// What a caller states: everything of a memory that does not depend on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    kind: Kind,
    text: Content,
    slot: Option<Slot>,
    metadata: Metadata,
    pointer: Option<Pointer>,
    author: Author,
    valid_from: Timestamp,
    expiry: Expiry,
}

/// The optional parts of a [`Statement`].
#[derive(Debug, Clone, Default)]
pub struct Particulars {
    /// The name under which a new value supersedes the old one.
    pub slot: Option<Slot>,
    /// The caller's own data.
    pub metadata: Metadata,
    /// Where the thing is; needed by, and only allowed for, [`Kind::Reference`].
    pub pointer: Option<Pointer>,
    /// From when it holds; the time of writing if absent.
    pub valid_from: Option<Timestamp>,
    /// Its end; the default lifetime of its kind if absent, which `project_state` does not have.
    pub expiry: Option<Expiry>,
}

impl Statement {
    /// Checks the rules that bind kind, pointer and expiry, at server time `now`.
    ///
    /// # Errors
    /// [`Error::Pointer`], [`Error::ProjectStateExpiry`] or [`Error::AlreadyExpired`].
    pub fn new(
        kind: Kind,
        text: Content,
        author: Author,
        parts: Particulars,
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Self, Error> {
        if (kind == Kind::Reference) != parts.pointer.is_some() {
            return Err(Error::Pointer);
        }
        let valid_from = parts.valid_from.unwrap_or(now);
        let expiry = match (kind, parts.expiry) {
            (Kind::ProjectState, None | Some(Expiry::Never(_))) => return Err(Error::ProjectStateExpiry),
            (_, Some(expiry)) => expiry,
            (_, None) => Expiry::At(now.plus_days(lifetimes.days(kind))),
        };
        if let Expiry::At(end) = expiry
            && (end <= now || end <= valid_from)
        {
            return Err(Error::AlreadyExpired);
        }
        Ok(Self {
            kind,
            text,
            slot: parts.slot,
            metadata: parts.metadata,
            pointer: parts.pointer,
            author,
            valid_from,
            expiry,
        })
    }

    /// Rebuilds a statement from a record, when its rules were already checked on the way in.
    ///
    /// # Errors
    /// [`Error::Pointer`] or [`Error::ProjectStateExpiry`]: the record was damaged.
    pub fn recorded(
        kind: Kind,
        text: Content,
        author: Author,
        parts: Particulars,
        valid_from: Timestamp,
        expiry: Expiry,
    ) -> Result<Self, Error> {
        if (kind == Kind::Reference) != parts.pointer.is_some() {
            return Err(Error::Pointer);
        }
        if kind == Kind::ProjectState && matches!(expiry, Expiry::Never(_)) {
            return Err(Error::ProjectStateExpiry);
        }
        Ok(Self {
            kind,
            text,
            slot: parts.slot,
            metadata: parts.metadata,
            pointer: parts.pointer,
            author,
            valid_from,
            expiry,
        })
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The words.
    #[must_use]
    pub fn text(&self) -> &Content {
        &self.text
    }

    /// The name under which a new value supersedes this one.
    #[must_use]
    pub fn slot(&self) -> Option<&Slot> {
        self.slot.as_ref()
    }

    /// The caller's own data.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Where the referenced thing is.
    #[must_use]
    pub fn pointer(&self) -> Option<&Pointer> {
        self.pointer.as_ref()
    }

    /// Who made it.
    #[must_use]
    pub fn author(&self) -> Author {
        self.author
    }

    /// From when it holds.
    #[must_use]
    pub fn valid_from(&self) -> Timestamp {
        self.valid_from
    }

    /// When it ends.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }
}

/// Default lifetimes of the kinds in days (R-070, R-072). `project_state` has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of a `user_fact`.
    pub user_fact_days: u32,
    /// Of a `feedback`.
    pub feedback_days: u32,
    /// Of a `reference`.
    pub reference_days: u32,
}

impl Default for Lifetimes {
    /// Two years for facts and rules (preferences), one for references.
    fn default() -> Self {
        Self { user_fact_days: 730, feedback_days: 730, reference_days: 365 }
    }
}

impl Lifetimes {
    fn days(&self, kind: Kind) -> u32 {
        match kind {
            Kind::UserFact => self.user_fact_days,
            Kind::Feedback => self.feedback_days,
            Kind::Reference => self.reference_days,
            Kind::ProjectState => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::NoExpiryReason;

    const NOW: Timestamp = Timestamp::EPOCH;

    fn words() -> Content {
        Content::to_keep("ETA Monday", 100).unwrap()
    }

    fn state(kind: Kind, parts: Particulars) -> Result<Statement, Error> {
        Statement::new(kind, words(), Author::Person, parts, &Lifetimes::default(), NOW)
    }

    #[test]
    fn r_006_a_kind_is_one_of_four() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        for bad in ["", "fact", "USER_FACT", "user_fact ", "*"] {
            assert_eq!(bad.parse::<Kind>(), Err(Error::Kind));
        }
    }

    #[test]
    fn r_011_a_project_state_must_expire() {
        assert_eq!(state(Kind::ProjectState, Particulars::default()), Err(Error::ProjectStateExpiry));
        let never =
            Particulars { expiry: Some(Expiry::Never(NoExpiryReason::ContractTerm)), ..Default::default() };
        assert_eq!(state(Kind::ProjectState, never), Err(Error::ProjectStateExpiry));
        let at = Particulars { expiry: Some(Expiry::At(NOW.plus_days(1))), ..Default::default() };
        assert!(state(Kind::ProjectState, at).is_ok());
    }

    #[test]
    fn r_012_a_reference_has_a_pointer_and_nothing_else_does() {
        assert_eq!(state(Kind::Reference, Particulars::default()), Err(Error::Pointer));
        let pointer = Pointer::new("crm://order/17", "tool:crm.get_order").unwrap();
        let parts = Particulars { pointer: Some(pointer), ..Default::default() };
        assert!(state(Kind::Reference, parts.clone()).is_ok());
        assert_eq!(state(Kind::UserFact, parts), Err(Error::Pointer));
        assert_eq!(Pointer::new("crm://order/17", " "), Err(Error::Resolve));
    }

    #[test]
    fn r_070_every_statement_ends_or_says_why_not() {
        let fact = state(Kind::UserFact, Particulars::default()).unwrap();
        assert_eq!(fact.expiry(), Expiry::At(NOW.plus_days(730)));
        assert_eq!("because".parse::<NoExpiryReason>(), Err(Error::NoExpiryReason));
    }

    #[test]
    fn what_has_ended_cannot_be_stated() {
        let parts = Particulars { expiry: Some(Expiry::At(NOW)), ..Default::default() };
        assert_eq!(state(Kind::UserFact, parts), Err(Error::AlreadyExpired));
        let parts = Particulars {
            valid_from: Some(NOW.plus_days(3)),
            expiry: Some(Expiry::At(NOW.plus_days(2))),
            ..Default::default()
        };
        assert_eq!(state(Kind::UserFact, parts), Err(Error::AlreadyExpired));
    }

    #[test]
    fn r_110_slot_pointer_and_metadata_do_not_show_in_debug_output() {
        let slot: Slot = "eta:anna".parse().unwrap();
        let pointer = Pointer::new("crm://anna", "tool").unwrap();
        let metadata = Metadata::new(serde_json::from_str(r#"{"who":"anna"}"#).unwrap()).unwrap();
        assert!(!format!("{slot:?}{pointer:?}{metadata:?}").contains("anna"));
    }
}
