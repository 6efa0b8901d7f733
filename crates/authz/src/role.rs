//! Roles and what each may do: one table, default deny. The snapshot `tests/matrix.txt` is this table for
//! people who do not read Rust.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::decide::ActionName;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs the instance: tenants and its own keys. Sees no content.
    InstanceAdmin,
    /// Runs one tenant: directory, keys, shared knowledge, evidence. Sees nobody's private content.
    TenantAdmin,
    /// The customer's own backend.
    App,
    /// Software that acts through a language model: it reads and notes, it does not share or delete.
    Agent,
    /// Answers for data protection: looks, restricts, erases, reads evidence.
    PrivacyOfficer,
    /// Reads evidence only.
    Auditor,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::InstanceAdmin, Self::TenantAdmin, Self::App, Self::Agent, Self::PrivacyOfficer, Self::Auditor];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InstanceAdmin => "instance_admin",
            Self::TenantAdmin => "tenant_admin",
            Self::App => "app",
            Self::Agent => "agent",
            Self::PrivacyOfficer => "privacy_officer",
            Self::Auditor => "auditor",
        }
    }

    /// Whether the role may do `action` at all. Anything not listed is denied.
    #[must_use]
    pub fn may(self, action: ActionName) -> bool {
        use ActionName as A;
        let listed: &[ActionName] = match self {
            Self::InstanceAdmin => &[A::ManageTenants, A::ManageKeys, A::ReadEvidence],
            Self::TenantAdmin => &[
                A::ManageKeys,
                A::ManageDirectory,
                A::ReadDirectory,
                A::ReadSwitch,
                A::RememberShared,
                A::ReadEvidence,
                A::ReadSources,
                A::ManageSources,
            ],
            Self::App => &[
                A::Recall,
                A::Assemble,
                A::ReadMemory,
                A::Remember,
                A::RememberShared,
                A::Correct,
                A::Retract,
                A::OpenConversation,
                A::AppendTurn,
                A::ReadConversation,
                A::HandOver,
                A::ReadSwitch,
                A::DeleteConversation,
                A::ReadPack,
                A::ReadSources,
                A::ManageSources,
                A::Cite,
                A::StoreAnswer,
                A::LookUpAnswer,
                A::CheckAuthorization,
            ],
            Self::Agent => &[
                A::Recall,
                A::Assemble,
                A::ReadMemory,
                A::Remember,
                A::Correct,
                A::Retract,
                A::OpenConversation,
                A::AppendTurn,
                A::ReadConversation,
                A::ReadPack,
                A::Cite,
                A::StoreAnswer,
                A::LookUpAnswer,
            ],
            Self::PrivacyOfficer => &[
                A::ReadMemory,
                A::ReadConversation,
                A::DeleteConversation,
                A::Retract,
                A::ReadDirectory,
                A::ReadEvidence,
                A::Erase,
                A::ReadSources,
            ],
            Self::Auditor => &[A::ReadEvidence],
        };
        listed.contains(&action)
    }
}

/// The text is none of the roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("role must be one of instance_admin, tenant_admin, app, agent, privacy_officer, auditor")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or(UnknownRole)
    }
}
