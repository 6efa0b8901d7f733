//! A batch inside the writer's transaction: the capability is checked again, each write is applied, and the
//! evidence of everything that changed is appended in order. Either all of it is kept or nothing.

use std::sync::atomic::Ordering;

use merkwelt_domain::Timestamp;
use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::ids::base32;
use merkwelt_domain::memory::{Kind, Owner};
use merkwelt_ledger::canonical::Integer;
use merkwelt_ledger::commitment::{Commitment, OpeningKey};
use merkwelt_ledger::entry::{ChangeType, Draft};
use merkwelt_ledger::read::record_statement;
use merkwelt_store::Error;
use merkwelt_store::change::{EntryRef, Idempotency, Outcome, ReadRecord, Receipt, Shown, Write};
use merkwelt_store::evidence::{Touched, token, utc};
use merkwelt_store::query::Vector;
use merkwelt_store::record::Epochs;
use rusqlite::{OptionalExtension as _, ToSql, named_params};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::crypt::{OwnerKeys, Place};
use crate::error::Sql as _;
use crate::library::passage_stands;
use crate::rows::{owner_columns, plain_place, seal_vector};
use crate::snapshot::{Viewer, admit, visible};
use crate::terms::{self, Mark};
use crate::witness::Witness;
use crate::writer::Work;

/// One batch of writes while it is applied.
pub(crate) struct Change<'c, 'w> {
    pub(crate) work: &'c mut Work<'w>,
    pub(crate) viewer: &'c Viewer,
    pub(crate) witness: &'c Witness,
    pub(crate) at: Timestamp,
    /// The analysed text of the write at hand.
    pub(crate) terms: Zeroizing<Vec<u8>>,
    drafts: Vec<Draft>,
    prefix: bool,
}

/// A write whose text was analysed before it went to the writer, which has better things to do.
pub(crate) struct Prepared {
    write: Write,
    terms: Zeroizing<Vec<u8>>,
}

impl Prepared {
    pub(crate) fn of(mark: Mark, write: Write) -> Self {
        let terms = text_of(&write).map(|text| terms::write(mark, text, has_metadata(&write)));
        let terms = terms.unwrap_or_default();
        Self { write, terms }
    }
}

/// The text that a write makes searchable.
pub(crate) fn text_of(write: &Write) -> Option<&str> {
    match write {
        Write::Remember(new) | Write::Correct { new, .. } => Some(new.statement.text().expose()),
        Write::Append(new) => Some(new.turn.text.expose()),
        Write::Retract { .. } | Write::Open(_) | Write::DeleteConversation { .. } => None,
    }
}

/// Whether [`crate::rows::body_of`] writes metadata beside the text.
fn has_metadata(write: &Write) -> bool {
    match write {
        Write::Remember(new) | Write::Correct { new, .. } => !new.statement.metadata().expose().is_empty(),
        Write::Append(_) | Write::Retract { .. } | Write::Open(_) | Write::DeleteConversation { .. } => false,
    }
}

/// What of a receipt is kept for a repeated request: ids and numbers.
#[derive(Serialize, Deserialize)]
struct Answer {
    outcomes: Vec<Outcome>,
    entry: Option<EntryRef>,
    grants: u64,
    content: u64,
    prefix: u64,
    #[serde(default)]
    knowledge: u64,
}

/// Applies a batch of writes.
pub(crate) fn commit_writes(
    work: &mut Work<'_>,
    viewer: &Viewer,
    witness: &Witness,
    writes: Vec<Prepared>,
    idempotency: Option<&Idempotency>,
    at: Timestamp,
) -> Result<Receipt, Error> {
    admit(work.db, viewer, &work.state)?;
    let tag =
        idempotency.map(|asked| work.cell.keys.idempotency_tag(witness.key.as_str(), asked.key.as_str()));
    if let (Some(asked), Some(tag)) = (idempotency, &tag)
        && let Some(receipt) = replay(work, viewer, asked, tag, at)?
    {
        return Ok(receipt);
    }
    let mut change =
        Change { work, viewer, witness, at, terms: Zeroizing::default(), drafts: Vec::new(), prefix: false };
    let outcomes = writes.into_iter().map(|write| change.apply(write)).collect::<Result<Vec<_>, _>>()?;
    let Change { work, drafts, prefix, .. } = change;
    let mut entry = None;
    if !drafts.is_empty() {
        work.state.epochs.content = work.state.epochs.content.next();
        entry = work.append(&drafts, at)?;
    }
    if prefix {
        work.state.epochs.prefix = work.state.epochs.prefix.next();
    }
    let receipt = Receipt { outcomes, entry, epochs: work.state.epochs, replayed: false };
    if let (Some(asked), Some(tag)) = (idempotency, &tag) {
        keep_answer(work, viewer, asked, tag, &receipt)?;
    }
    Ok(receipt)
}

/// The answer given before to the same request. A key that was used with another request, or for somebody
/// else, is a conflict.
fn replay(
    work: &Work<'_>,
    viewer: &Viewer,
    asked: &Idempotency,
    tag: &[u8; 32],
    at: Timestamp,
) -> Result<Option<Receipt>, Error> {
    work.db
        .prepare_cached("DELETE FROM idempotency WHERE keep_until <= ?1")
        .and_then(|mut statement| statement.execute([at.millis()]))
        .sql()?;
    let row: Option<(Vec<u8>, String, String)> = work
        .db
        .prepare_cached("SELECT request, answer, owner FROM idempotency WHERE tag = ?1")
        .and_then(|mut statement| {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            statement.query_row([tag.as_slice()], read).optional()
        })
        .sql()?;
    let Some((request, answer, owner)) = row else { return Ok(None) };
    let holder = holder(viewer);
    if request != asked.request || owner != owner_columns(&work.cell.tenant, &holder).1 {
        return Err(Error::IdempotencyConflict);
    }
    let answer: Answer = serde_json::from_str(&answer).map_err(|_| Error::Damaged)?;
    let epochs = Epochs {
        grants: merkwelt_domain::GrantEpoch::from_number(answer.grants),
        content: merkwelt_domain::ContentEpoch::from_number(answer.content),
        prefix: merkwelt_domain::PrefixEpoch::from_number(answer.prefix),
        knowledge: merkwelt_domain::KnowledgeEpoch::from_number(answer.knowledge),
    };
    Ok(Some(Receipt { outcomes: answer.outcomes, entry: answer.entry, epochs, replayed: true }))
}

fn keep_answer(
    work: &Work<'_>,
    viewer: &Viewer,
    asked: &Idempotency,
    tag: &[u8; 32],
    receipt: &Receipt,
) -> Result<(), Error> {
    let answer = Answer {
        outcomes: receipt.outcomes.clone(),
        entry: receipt.entry.clone(),
        grants: receipt.epochs.grants.number(),
        content: receipt.epochs.content.number(),
        prefix: receipt.epochs.prefix.number(),
        knowledge: receipt.epochs.knowledge.number(),
    };
    let answer = serde_json::to_string(&answer).map_err(|_| Error::Damaged)?;
    let holder = holder(viewer);
    let (owner_kind, owner) = owner_columns(&work.cell.tenant, &holder);
    work.db
        .prepare_cached(
            "INSERT INTO idempotency (tag, owner_kind, owner, request, answer, keep_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )
        .and_then(|mut statement| {
            statement.execute((
                tag.as_slice(),
                owner_kind,
                owner,
                asked.request.as_slice(),
                answer,
                asked.keep_until.millis(),
            ))
        })
        .sql()?;
    Ok(())
}

/// Whose the traces of a request are: the subject's, or, of a request for nobody, the tenant's.
fn holder(viewer: &Viewer) -> Owner {
    viewer.subject.clone().map_or(Owner::Tenant, Owner::Subject)
}

/// Records a read: its evidence, the keys that open it, and the pack it delivered.
pub(crate) fn commit_read(
    work: &mut Work<'_>,
    viewer: &Viewer,
    drafts: &[Draft],
    read: &Read,
    at: Timestamp,
) -> Result<Receipt, Error> {
    admit(work.db, viewer, &work.state)?;
    check_standing(work, viewer, &read.record, at)?;
    for sql in ["DELETE FROM openings WHERE keep_until <= ?1", "DELETE FROM packs WHERE expires_at <= ?1"] {
        work.db.prepare_cached(sql).and_then(|mut statement| statement.execute([at.millis()])).sql()?;
    }
    keep_read(work, viewer, read)?;
    let entry = work.append(drafts, at)?;
    Ok(Receipt { outcomes: Vec::new(), entry, epochs: work.state.epochs, replayed: false })
}

/// A read whose entries are made already.
pub(crate) struct Read {
    pub(crate) id: String,
    pub(crate) record: ReadRest,
}

/// What of a [`ReadRecord`] is left once its event became entries.
pub(crate) struct ReadRest {
    standing: Vec<Shown>,
    knowledge: Option<merkwelt_domain::KnowledgeEpoch>,
    openings: Vec<u8>,
    keep_until: Timestamp,
    pack: Option<merkwelt_store::record::Pack>,
}

impl Read {
    /// Splits the event off.
    pub(crate) fn of(record: ReadRecord) -> (Self, merkwelt_store::change::ReadEvent) {
        let ReadRecord { event, standing, knowledge, openings, keep_until, pack } = record;
        let id = event.id.as_str().to_owned();
        let record = ReadRest { standing, knowledge, openings, keep_until, pack };
        (Self { id, record }, event)
    }
}

impl Drop for ReadRest {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.openings);
    }
}

/// INVARIANT: I-7, what changed since it was read is not released.
fn check_standing(work: &Work<'_>, viewer: &Viewer, read: &ReadRest, at: Timestamp) -> Result<(), Error> {
    for shown in &read.standing {
        if !may_be_shown(work, viewer, shown, at.millis())? {
            return Err(Error::ContentMoved);
        }
    }
    if read.knowledge.is_some_and(|known| known != work.state.epochs.knowledge) {
        return Err(Error::ContentMoved);
    }
    Ok(())
}

/// Whether something may be shown now as what it is about to be shown.
fn may_be_shown(work: &Work<'_>, viewer: &Viewer, shown: &Shown, at: i64) -> Result<bool, Error> {
    let (latest, subject) = (at.saturating_add(SKEW_MILLIS), viewer.subject());
    let exists = |sql, parameters: &[(&str, &dyn ToSql)]| {
        work.db.prepare_cached(sql).and_then(|mut statement| statement.exists(parameters)).sql()
    };
    match shown {
        Shown::Current(id, revision) => exists(
            concat!(
                "SELECT 1 FROM memories WHERE id = :id AND revision = :revision AND standing = 0
                   AND valid_from <= :at AND (expires_at IS NULL OR expires_at > :at)
                   AND written_at <= :latest AND ",
                visible!()
            ),
            named_params! {
                ":id": id.as_str(), ":revision": revision.number(), ":at": at, ":latest": latest,
                ":subject": subject,
            },
        ),
        Shown::Past(id, revision) => exists(
            concat!(
                "SELECT 1 FROM memories WHERE id = :id AND revision = :revision AND standing <> 3
                   AND (expires_at IS NULL OR expires_at > :at) AND ",
                visible!()
            ),
            named_params! {
                ":id": id.as_str(), ":revision": revision.number(), ":at": at, ":subject": subject,
            },
        ),
        Shown::Turn(id, number) => exists(
            "SELECT 1 FROM turns WHERE conversation = :id AND number = :number AND owner = :subject
               AND at <= :at AND expires_at > :at",
            named_params! { ":id": id.as_str(), ":number": number, ":at": at, ":subject": subject },
        ),
        // INVARIANT: R-056, rights and currency are looked at again when an answer is released.
        Shown::Passage(id) => passage_stands(work.db, subject, id, at, true),
        Shown::Cited(id) => passage_stands(work.db, subject, id, at, false),
        Shown::Sitting(id) => exists(
            "SELECT 1 FROM conversations WHERE id = :id AND owner = :subject",
            named_params! { ":id": id.as_str(), ":subject": subject },
        ),
    }
}

fn keep_read(work: &Work<'_>, viewer: &Viewer, read: &Read) -> Result<(), Error> {
    let holder = holder(viewer);
    let (owner_kind, owner) = owner_columns(&work.cell.tenant, &holder);
    let keys = work.cell.owner_keys(owner)?;
    let (env, tenant) = (work.cell.env.as_ref(), &work.cell.tenant);
    let body = keys.sealer.seal(env, plain_place(tenant, "openings", &read.id), &read.record.openings)?;
    let inserted = work
        .db
        .prepare_cached(
            "INSERT INTO openings (read_id, owner_kind, owner, keep_until, body)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .and_then(|mut statement| {
            statement.execute((&read.id, owner_kind, owner, read.record.keep_until.millis(), body))
        });
    refuse_taken(inserted)?;
    if let Some(pack) = &read.record.pack {
        let body =
            keys.sealer.seal(env, plain_place(tenant, "packs", pack.id.as_str()), &pack.composition)?;
        let inserted = work
            .db
            .prepare_cached(
                "INSERT INTO packs (id, owner_kind, owner, read_id, at, expires_at, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut statement| {
                let (at, end) = (pack.at.millis(), pack.expires_at.millis());
                let read_id = pack.read_id.as_str();
                statement.execute((pack.id.as_str(), owner_kind, owner, read_id, at, end, body))
            });
        refuse_taken(inserted)?;
    }
    Ok(())
}

/// A row of that id stands already.
pub(crate) fn refuse_taken(inserted: rusqlite::Result<usize>) -> Result<(), Error> {
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
            Err(Error::Exists)
        }
        Err(error) => Err(error).sql(),
    }
}

/// What an entry says of a written record.
pub(crate) struct Entry<'e> {
    pub(crate) kind: ChangeType,
    pub(crate) record: &'e str,
    pub(crate) commitment: Option<Commitment>,
}

impl Change<'_, '_> {
    fn apply(&mut self, prepared: Prepared) -> Result<Outcome, Error> {
        self.terms = prepared.terms;
        match prepared.write {
            Write::Remember(new) => self.remember(new),
            Write::Correct { id, expected, new } => self.correct(&id, expected, new),
            Write::Retract { id, at } => self.retract(id, at),
            Write::Open(conversation) => self.open(conversation),
            Write::Append(new) => self.append(new),
            Write::DeleteConversation { id, .. } => self.delete_conversation(id),
        }
    }

    /// Adds the entry of one write.
    pub(crate) fn witness_change(
        &mut self,
        owner: &Owner,
        keys: &OwnerKeys,
        entry: Entry<'_>,
    ) -> Result<(), Error> {
        let event_id = random_id(self.work.cell.env.as_ref());
        let draft = self.witness.change(&Touched {
            kind: entry.kind,
            event_id: &event_id,
            record: entry.record,
            commitment: entry.commitment,
            tags: &keys.tags,
            personal: matches!(owner, Owner::Subject(_)),
        })?;
        self.drafts.push(draft);
        Ok(())
    }

    /// Notes that a rule or a fact was written or went.
    pub(crate) fn touch_prefix(&mut self, kind: Kind) {
        self.prefix |= kind.is_prefix();
    }

    /// Refuses a vector of another model than the tenant's (I-14).
    pub(crate) fn check_model(&self, vector: Option<&Vector>) -> Result<(), Error> {
        let Some(vector) = vector else { return Ok(()) };
        match self.work.cell.model_of(&self.work.state) {
            Some(model) if model != vector.model => Err(Error::ModelMismatch),
            Some(_) | None => Ok(()),
        }
    }

    /// The vector as it is stored, after comparing its model.
    pub(crate) fn seal_vector(
        &mut self,
        keys: &OwnerKeys,
        place: Place<'_>,
        vector: Option<&Vector>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.check_model(vector)?;
        let Some(vector) = vector else {
            self.work.cell.lacking.store(true, Ordering::Relaxed);
            return Ok(None);
        };
        self.work.state.model.get_or_insert_with(|| vector.model.clone());
        seal_vector(self.work.cell, keys, place, &vector.values).map(Some)
    }
}

/// The id of one event in the ledger.
pub(crate) fn random_id(env: &dyn merkwelt_domain::Env) -> String {
    let mut bytes = [0u8; 16];
    env.fill(&mut bytes);
    format!("evt_{}", base32(&bytes))
}

/// Commits to a stored record and gives back the key that opens it.
pub(crate) fn commit_record(
    opening: OpeningKey,
    id: &str,
    number: u32,
    at: Timestamp,
    content: &[u8],
) -> Result<(Commitment, zeroize::Zeroizing<[u8; 32]>), Error> {
    let revision = Integer::from_count(u64::from(number)).ok_or(Error::Damaged)?;
    let statement = zeroize::Zeroizing::new(record_statement(&token(id)?, revision, utc(at)?, content));
    let (commitment, opening) = opening.commit(&token("record")?, &statement);
    Ok((commitment, zeroize::Zeroizing::new(*opening.key().expose())))
}
