//! The rows of the reference backend. Each carries its tenant (I-5).

use std::collections::BTreeMap;

use merkwelt_domain::conversation::{Conversation, Turn};
use merkwelt_domain::memory::{Memory, Owner};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{GroupId, GroupName, KeyId, SubjectId, SubjectRef, TenantId, Timestamp};

use crate::change::{IdempotencyKey, Receipt};
use crate::ports::{KeyInfo, Tenant};
use crate::query::Vector;
use crate::record::{Epochs, Pack};

use super::library::SourceRow;
use super::log::Log;

/// Everything there is.
#[derive(Clone)]
pub(super) struct State {
    /// The instance's own tenant.
    pub(super) system: TenantId,
    /// Ledger and generations per tenant, the instance's own among them.
    pub(super) cells: BTreeMap<TenantId, Cell>,
    pub(super) keys: BTreeMap<KeyId, KeyInfo>,
    pub(super) subjects: Vec<SubjectRow>,
    pub(super) groups: Vec<GroupRow>,
    pub(super) members: Vec<MemberRow>,
    pub(super) tag_keys: BTreeMap<(TenantId, Owner), [u8; 32]>,
    pub(super) memories: Vec<MemoryRow>,
    pub(super) conversations: Vec<ConversationRow>,
    pub(super) turns: Vec<TurnRow>,
    pub(super) packs: Vec<PackRow>,
    pub(super) openings: Vec<OpeningRow>,
    pub(super) answered: Vec<AnsweredRow>,
    pub(super) sources: Vec<SourceRow>,
}

/// What there is once per tenant.
#[derive(Clone)]
pub(super) struct Cell {
    pub(super) tenant: Tenant,
    pub(super) epochs: Epochs,
    pub(super) log: Log,
    pub(super) switch: OrganisationSwitch,
}

/// A subject. Without a reference it is a tombstone: the pseudonym of somebody who was erased.
#[derive(Clone)]
pub(super) struct SubjectRow {
    pub(super) tenant: TenantId,
    pub(super) id: SubjectId,
    pub(super) reference: Option<SubjectRef>,
}

#[derive(Clone)]
pub(super) struct GroupRow {
    pub(super) tenant: TenantId,
    pub(super) id: GroupId,
    pub(super) name: GroupName,
}

#[derive(Clone)]
pub(super) struct MemberRow {
    pub(super) tenant: TenantId,
    pub(super) group: GroupId,
    pub(super) subject: SubjectId,
}

/// One revision of a memory.
#[derive(Clone)]
pub(super) struct MemoryRow {
    pub(super) tenant: TenantId,
    pub(super) memory: Memory,
    pub(super) vector: Option<Vector>,
}

#[derive(Clone)]
pub(super) struct ConversationRow {
    pub(super) tenant: TenantId,
    pub(super) conversation: Conversation,
    /// Number of the last turn ever appended.
    pub(super) last: u32,
}

#[derive(Clone)]
pub(super) struct TurnRow {
    pub(super) tenant: TenantId,
    pub(super) owner: SubjectId,
    pub(super) turn: Turn,
    pub(super) vector: Option<Vector>,
}

#[derive(Clone)]
pub(super) struct PackRow {
    pub(super) tenant: TenantId,
    pub(super) owner: Option<SubjectId>,
    pub(super) pack: Pack,
}

/// The keys that open the commitments of one event. Nothing reads them here; they are kept to be erased.
#[derive(Clone)]
pub(super) struct OpeningRow {
    pub(super) tenant: TenantId,
    pub(super) owner: Option<Owner>,
    #[expect(dead_code, reason = "what a backend keeps for the auditor, who reads it elsewhere")]
    pub(super) keys: Vec<u8>,
    pub(super) keep_until: Option<Timestamp>,
}

/// An answer that is given again to a repeated request.
#[derive(Clone)]
pub(super) struct AnsweredRow {
    pub(super) tenant: TenantId,
    pub(super) subject: Option<SubjectId>,
    pub(super) key: KeyId,
    pub(super) idempotency: IdempotencyKey,
    pub(super) request: [u8; 32],
    pub(super) keep_until: Timestamp,
    pub(super) receipt: Receipt,
}
