//! The decision as a pure function: default deny, and every refusal has one reason. A slow reference
//! decision in the tests is compared with it on random input.

use merkwelt_domain::{SubjectId, SubjectRef};
use serde::{Deserialize, Serialize};

use crate::role::Role;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The closed set of actions, as data for the matrix, the evidence and the signals.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ActionName {
            $($(#[$doc])* $variant,)*
        }

        impl ActionName {
            /// All actions.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in evidence, signals and the matrix.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

actions! {
    /// Search memories and turns.
    Recall = "recall",
    /// Assemble a context pack.
    Assemble = "assemble",
    /// Read memories by id or list them.
    ReadMemory = "read_memory",
    /// Write a memory of the subject.
    Remember = "remember",
    /// Write a memory of a group or of the tenant.
    RememberShared = "remember_shared",
    /// Replace a memory by a new revision.
    Correct = "correct",
    /// Withdraw a memory.
    Retract = "retract",
    /// Open a conversation.
    OpenConversation = "open_conversation",
    /// Append a turn.
    AppendTurn = "append_turn",
    /// Read a conversation or list them.
    ReadConversation = "read_conversation",
    /// Hand a conversation over to another organisation.
    HandOver = "hand_over",
    /// See what goes along when a person changes the organisation.
    ReadSwitch = "read_switch",
    /// Delete a conversation with everything that came from it.
    DeleteConversation = "delete_conversation",
    /// Rebuild a delivered pack.
    ReadPack = "read_pack",
    /// Read groups and members.
    ReadDirectory = "read_directory",
    /// Change groups and members.
    ManageDirectory = "manage_directory",
    /// Create and revoke keys.
    ManageKeys = "manage_keys",
    /// Create and list tenants.
    ManageTenants = "manage_tenants",
    /// Read the ledger.
    ReadEvidence = "read_evidence",
    /// Erase a subject and look for residue.
    Erase = "erase",
    /// Read the register of sources.
    ReadSources = "read_sources",
    /// Register, publish, withdraw and delete sources.
    ManageSources = "manage_sources",
    /// Resolve a citation.
    Cite = "cite",
    /// Keep an answer for later questions.
    StoreAnswer = "store_answer",
    /// Look for a kept answer.
    LookUpAnswer = "look_up_answer",
    /// Ask whether something is allowed now.
    CheckAuthorization = "check_authorization",
}

/// For whom a request acts, once it is decided that it may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// The subject the key is bound to.
    Bound(SubjectId),
    /// A subject named by a caller that may act for others; the grant source resolves it.
    Named(SubjectRef),
    /// Nobody: only what everybody in the tenant may see.
    Nobody,
}

/// Why a request was denied. It goes to the ledger and the signals, never to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// The role may not do this.
    Role,
    /// The key may not act for the named subject.
    ActFor,
    /// The action needs a subject and none was named.
    NoSubject,
    /// The tenant or the subject is unknown, suspended or being erased.
    NoGrants,
}

impl DenyReason {
    /// The code in evidence and signals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::ActFor => "act_for",
            Self::NoSubject => "no_subject",
            Self::NoGrants => "no_grants",
        }
    }
}

/// The outcome of [`decide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Allowed, for this principal.
    Allow(Principal),
    /// Denied, for this reason.
    Deny(DenyReason),
}

/// Decides from the key's role, its subject binding, whether it may act for others, and the subject the
/// request names. `needs_subject` says that the action makes no sense without one.
#[must_use]
pub fn decide(
    role: Role,
    binding: Option<&SubjectId>,
    act_for: bool,
    named: Option<&SubjectRef>,
    action: ActionName,
    needs_subject: bool,
) -> Decision {
    if !role.may(action) {
        return Decision::Deny(DenyReason::Role);
    }
    match (binding, named) {
        // A bound key acts for its own subject; naming any subject, even the same, would need a lookup
        // that tells known references from unknown ones.
        (Some(_), Some(_)) => Decision::Deny(DenyReason::ActFor),
        (Some(subject), None) => Decision::Allow(Principal::Bound(subject.clone())),
        (None, Some(subject)) if act_for => Decision::Allow(Principal::Named(subject.clone())),
        (None, Some(_)) => Decision::Deny(DenyReason::ActFor),
        (None, None) if needs_subject => Decision::Deny(DenyReason::NoSubject),
        (None, None) => Decision::Allow(Principal::Nobody),
    }
}
