//! From what happened to entries of the ledger: one place, shared by all backends, so that no backend can
//! forget a field. Ids of persons and of their records appear only as tags made with the subject's key
//! (L-19); content appears only as commitments.

use merkwelt_authz::{Class, Denied, Pass};
use merkwelt_domain::memory::Revision;
use merkwelt_domain::{KeyId, SourceId, TenantId, Timestamp};
use merkwelt_ledger::canonical::Integer;
use merkwelt_ledger::commitment::{Commitment, SubjectKey};
use merkwelt_ledger::entry::{Actor, Change, ChangeType, Draft, EntryType, denial, genesis};
use merkwelt_ledger::note::VerifierKey;
use merkwelt_ledger::read::{ReadEntry, RecordRef, Versioned};
use merkwelt_ledger::token::{Token, UtcMillis};

use crate::change::{ReadEvent, ReadItem};
use crate::error::Error;
use crate::ports::Erased;

/// Keys from which tags are made: the subject's, and, for what belongs to groups or to the tenant, none.
pub type TagKey<'k> = Option<&'k SubjectKey>;

/// A token of the ledger from an id or a closed word.
///
/// # Errors
/// [`Error::Damaged`]: the text has characters that no id has.
pub fn token(text: &str) -> Result<Token, Error> {
    Token::parse(text).map_err(|_| Error::Damaged)
}

/// A server time as the ledger writes it.
///
/// # Errors
/// [`Error::Damaged`]: out of range.
pub fn utc(at: Timestamp) -> Result<UtcMillis, Error> {
    UtcMillis::from_unix_ms(at.millis()).map_err(|_| Error::Damaged)
}

fn tenant_token(tenant: &TenantId) -> Result<Token, Error> {
    token(tenant.as_str())
}

fn actor<C: Class>(pass: &Pass<'_, C>, tags: TagKey<'_>, event: &Token) -> Result<Actor, Error> {
    match tags {
        // A key that is bound to one person would link all entries of that person.
        Some(key) if pass.key_is_personal() => Ok(Actor::Person(key.tag(event))),
        Some(_) | None => key_actor(pass.key()),
    }
}

fn key_actor(key: &KeyId) -> Result<Actor, Error> {
    Ok(Actor::Key(token(key.as_str())?))
}

/// The entries of one read: exactly one of type `read`, and continuations if it delivered more records
/// than one entry holds.
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn read_drafts<C: Class>(
    pass: &Pass<'_, C>,
    event: ReadEvent,
    tags: TagKey<'_>,
) -> Result<Vec<Draft>, Error> {
    let read_id = token(event.id.as_str())?;
    let records =
        event.items.iter().map(|item| record_ref(item, &read_id, tags)).collect::<Result<_, _>>()?;
    let actor = actor(pass, tags, &read_id)?;
    let entry = ReadEntry {
        run_id: event.run.as_deref().map(token).transpose()?,
        call_id: event.call.as_deref().map(token).transpose()?,
        kind: event.kind,
        system: token("merkwelt")?,
        index: versioned(&event.index.id, &event.index.build.to_string())?,
        request: event.request,
        top_k: event.top_k,
        subject_tag: tags.map(|key| key.tag(&read_id)),
        purpose: token(pass.purpose().as_str())?,
        boundary: versioned(&event.boundary.0, &event.boundary.1)?,
        as_of: None,
        trace: event.trace,
        content_kept: token(event.content_kept)?,
        redaction: None,
        result: event.result,
        tokens: event.tokens,
        records,
        read_id,
    };
    entry.into_drafts(tenant_token(pass.scope().tenant())?, actor).map_err(|_| Error::Damaged)
}

fn versioned(id: &str, version: &str) -> Result<Versioned, Error> {
    Ok(Versioned { id: token(id)?, version: token(version)? })
}

fn record_ref(item: &ReadItem, event: &Token, tags: TagKey<'_>) -> Result<RecordRef, Error> {
    let id = token(&item.id)?;
    let reference = match tags {
        Some(key) if item.personal => {
            RecordRef::personal(item.label, key.record_tag(event, &id), item.commitment)
        }
        Some(_) | None => RecordRef::shared(
            item.label,
            id,
            Integer::from_count(u64::from(item.revision)).ok_or(Error::Damaged)?,
            utc(item.written_at)?,
            item.commitment,
        ),
    };
    match item.score_micro.and_then(Integer::new) {
        Some(score) => Ok(reference.with_score_micro(score)),
        None => Ok(reference),
    }
}

/// What a change of content touched.
#[derive(Debug)]
pub struct Touched<'a> {
    /// What happened.
    pub kind: ChangeType,
    /// A fresh random id for the event.
    pub event_id: &'a str,
    /// Id of the record.
    pub record: &'a str,
    /// Commitment to the stored content, if any was stored.
    pub commitment: Option<Commitment>,
    /// The owner's tag key.
    pub tags: &'a SubjectKey,
    /// Whether the owner is a subject.
    pub personal: bool,
}

/// The entry of one change of content.
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn change_draft<C: Class>(pass: &Pass<'_, C>, touched: &Touched<'_>) -> Result<Draft, Error> {
    let event_id = token(touched.event_id)?;
    let actor = actor(pass, touched.personal.then_some(touched.tags), &event_id)?;
    let change = Change {
        kind: touched.kind,
        subject_tag: touched.personal.then(|| touched.tags.tag(&event_id)),
        record_tag: Some(touched.tags.record_tag(&event_id, &token(touched.record)?)),
        commitment: touched.commitment,
        purpose: Some(token(pass.purpose().as_str())?),
        event_id,
    };
    Ok(change.into_draft(tenant_token(pass.scope().tenant())?, actor))
}

/// The entry of a change of directory, keys or tenants: a closed word for what changed and the id it
/// changed.
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn admin_draft<C: Class>(
    pass: &Pass<'_, C>,
    kind: EntryType,
    change: &str,
    id: &str,
    member: Option<(&SubjectKey, &str)>,
) -> Result<Draft, Error> {
    let tag = member.map(|(key, event)| Ok((key.tag(&token(event)?), token(event)?))).transpose()?;
    let draft = Draft::new(kind, tenant_token(pass.scope().tenant())?, key_actor(pass.key())?)
        .field("change", token(change)?)
        .field("id", token(id)?);
    Ok(match tag {
        Some((tag, event)) => draft.field("event_id", event).field("subject_tag", tag),
        None => draft,
    })
}

/// The first entry of a tenant's ledger: it names the key that signs it.
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn genesis_draft(tenant: &TenantId, key: VerifierKey) -> Result<Draft, Error> {
    Ok(genesis(tenant_token(tenant)?, Actor::System(token("founding")?), key, None))
}

/// The entry of a key or a tenant that comes into being together with its ledger, before any key of its own
/// could ask for it.
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn founding_draft(tenant: &TenantId, kind: EntryType, change: &str, id: &str) -> Result<Draft, Error> {
    Ok(Draft::new(kind, tenant_token(tenant)?, Actor::System(token("founding")?))
        .field("change", token(change)?)
        .field("id", token(id)?))
}

/// The entry of a change of the register of sources: a closed word for what happened, the source and the
/// revision, and a commitment to the document's digest where one was received (R-048, L-17).
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn source_draft(
    tenant: &TenantId,
    key: &KeyId,
    change: &str,
    source: &SourceId,
    revision: Option<Revision>,
    document: Option<Commitment>,
) -> Result<Draft, Error> {
    Ok(Draft::new(EntryType::SourceChanged, tenant_token(tenant)?, key_actor(key)?)
        .field("change", token(change)?)
        .field("id", token(source.as_str())?)
        .optional("revision", revision.map(Revision::number))
        .optional("document", document))
}

/// The entry of an accepted erasure. It names nobody: an erasure that could be linked to a person would be
/// left of them (L-19).
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn erasure_requested_draft<C: Class>(pass: &Pass<'_, C>) -> Result<Draft, Error> {
    let tenant = tenant_token(pass.scope().tenant())?;
    Ok(Draft::new(EntryType::ErasureRequested, tenant, key_actor(pass.key())?)
        .field("purpose", token(pass.purpose().as_str())?))
}

/// The entry of an erasure that was carried out: how much went, and of nobody in particular (L-20).
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn erasure_receipt_draft<C: Class>(pass: &Pass<'_, C>, erased: &Erased) -> Result<Draft, Error> {
    let count = |number: u64| Integer::from_count(number).ok_or(Error::Damaged);
    let tenant = tenant_token(pass.scope().tenant())?;
    Ok(Draft::new(EntryType::ErasureReceipt, tenant, key_actor(pass.key())?)
        .field("memories", count(erased.memories)?)
        .field("conversations", count(erased.conversations)?)
        .field("turns", count(erased.turns)?)
        .field("evidence", count(erased.evidence)?))
}

/// The entry of a denial (L-28). It names no resource and no person: a key that is bound to a person is
/// named by a tag of this event, made with the person's tag key and `event_id` (L-19).
///
/// # Errors
/// [`Error::Damaged`]: a value cannot stand in an entry.
pub fn denial_draft(denied: &Denied, person: TagKey<'_>, event_id: &str) -> Result<Draft, Error> {
    let actor = match (denied.bound_subject(), person) {
        (None, _) => key_actor(denied.key())?,
        (Some(_), Some(key)) => Actor::Person(key.tag(&token(event_id)?)),
        // The person's key is gone, so nothing may name them any more.
        (Some(_), None) => Actor::System(token("bound_key")?),
    };
    let draft = denial(
        tenant_token(denied.tenant())?,
        actor,
        token(denied.action().name())?,
        token(denied.reason().name())?,
    );
    Ok(match denied.bound_subject() {
        Some(_) => draft.field("event_id", token(event_id)?),
        None => draft,
    })
}
