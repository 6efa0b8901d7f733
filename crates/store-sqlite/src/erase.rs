//! The erasure of a subject, step by step, each one idempotent and recorded in the job row: tombstone, so
//! that nothing is served any more; the key, which is the point of no return; derived data and rows; the
//! dead bytes of the file; the receipt. A kill at any point is resumed from the row.

use merkwelt_domain::{FaultPoint, KeyId, SubjectId, TenantId, Timestamp};
use merkwelt_ledger::canonical::Integer;
use merkwelt_ledger::entry::{Actor, Draft, EntryType};
use merkwelt_store::evidence::token;
use merkwelt_store::{Erased, Error, Residue};
use rusqlite::{Connection, OptionalExtension as _};

use crate::cell::Cell;
use crate::error::Sql as _;
use crate::snapshot::{State, Viewer, admit, is_active};
use crate::writer::Work;

/// The job row says "done" with this step; before that any step may have to be repeated.
const DONE: u8 = 1;

/// Tables with content of a subject, and the condition by which it is found. Rows that others refer to come
/// last.
const PLACES: [(&str, &str); 7] = [
    ("memories", "owner_kind = 0 AND owner = ?1"),
    ("openings", "owner_kind = 0 AND owner = ?1"),
    ("packs", "owner_kind = 0 AND owner = ?1"),
    ("idempotency", "owner_kind = 0 AND owner = ?1"),
    ("turns", "owner = ?1"),
    ("conversations", "owner = ?1"),
    ("subjects", "id = ?1"),
];

struct Job {
    subject: String,
    actor: String,
    done: bool,
    erased: Erased,
}

fn job(db: &Connection, subject: &str) -> Result<Option<Job>, Error> {
    let row = db
        .prepare_cached(
            "SELECT subject, actor, step, memories, conversations, turns, evidence
             FROM erasures WHERE subject = ?1",
        )
        .and_then(|mut statement| {
            statement
                .query_row([subject], |row| {
                    let counts: [u64; 4] = [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
                    Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, u8>(2)?, counts))
                })
                .optional()
        })
        .sql()?;
    let Some((subject, actor, step, [memories, conversations, turns, evidence])) = row else {
        return Ok(None);
    };
    let id = subject.parse().map_err(|_| Error::Damaged)?;
    let erased = Erased { subject: id, memories, conversations, turns, evidence };
    Ok(Some(Job { subject, actor, done: step == DONE, erased }))
}

impl Cell {
    /// Accepts an erasure: from the commit on nothing of the subject is served or written. Idempotent; tells
    /// whether there is something to do.
    pub(crate) fn tombstone(
        &self,
        viewer: Viewer,
        actor: KeyId,
        requested: Draft,
        at: Timestamp,
    ) -> Result<bool, Error> {
        self.write_blocking(move |work| {
            let subject = viewer.subject().ok_or(Error::NotFound)?.to_owned();
            if let Some(job) = job(work.db, &subject)? {
                return Ok(!job.done);
            }
            admit(work.db, &viewer, &work.state)?;
            let count = |table: &str| count(work.db, table, &subject);
            let (memories, turns) = (count("memories")?, count("turns")?);
            // Each revision and each turn has an opening of its own in its row.
            let evidence = memories + turns + count("openings")? + count("packs")?;
            let counts = [memories, count("conversations")?, turns, evidence];
            work.db
                .execute(
                    "INSERT INTO erasures
                       (subject, requested_at, actor, step, memories, conversations, turns, evidence)
                     VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7)",
                    (&subject, at.millis(), actor.as_str(), counts[0], counts[1], counts[2], counts[3]),
                )
                .sql()?;
            work.db.execute("UPDATE subjects SET erasing = 1 WHERE id = ?1", [&subject]).sql()?;
            work.db.execute("DELETE FROM members WHERE subject = ?1", [&subject]).sql()?;
            work.raise_grants();
            work.raise_content();
            work.append(&[requested], at).map(|_| true)
        })
    }

    /// Carries an accepted erasure to its end, from wherever it stands.
    pub(crate) fn finish_erasure(&self, subject: &str, at: Timestamp) -> Result<Erased, Error> {
        let job = self.snapshot(|_, db| job(db, subject))?.ok_or(Error::NotFound)?;
        if job.done {
            return Ok(job.erased);
        }
        let reach = |point| self.env.reach(point).map_err(|_| Error::Unavailable);
        reach(FaultPoint::AfterTombstone)?;
        self.shard.evict();
        self.destroy_key(&job.subject)?;
        reach(FaultPoint::AfterDestroy)?;
        let owner = job.subject.clone();
        self.write_blocking(move |work| purge(work, &owner))?;
        // Whoever built a shard between the two steps built it without the subject; this is for whoever
        // was still building.
        self.shard.evict();
        reach(FaultPoint::BeforeVacuum)?;
        self.compact()?;
        reach(FaultPoint::BeforeReceipt)?;
        let (owner, erased) = (job.subject, job.erased.clone());
        self.write_blocking(move |work| {
            let receipt = erasure_receipt(&work.cell.tenant, &job.actor, &erased)?;
            work.db.execute("DELETE FROM subjects WHERE id = ?1", [&owner]).sql()?;
            work.db.execute("UPDATE erasures SET step = ?2 WHERE subject = ?1", (&owner, DONE)).sql()?;
            work.append(&[receipt], at).map(|_| ())
        })?;
        self.compact()?;
        Ok(job.erased)
    }

    /// Subjects whose erasure was accepted and is not finished.
    pub(crate) fn pending_erasures(&self) -> Result<Vec<String>, Error> {
        self.snapshot(|_, db| {
            let mut statement = db.prepare("SELECT subject FROM erasures WHERE step <> ?1").sql()?;
            let rows = statement.query_map([DONE], |row| row.get(0)).sql()?;
            rows.collect::<rusqlite::Result<_>>().sql()
        })
    }

    /// What is left of a subject, asked of every place. A capability for a subject that was erased still
    /// serves to look at what is left of it.
    pub(crate) fn residue(&self, viewer: &Viewer, subject: &SubjectId) -> Result<Residue, Error> {
        let id = subject.as_str();
        let (rows, memberships) = self.snapshot(|_, db| {
            let own = viewer.subject().ok_or(Error::NotFound)?;
            if own != id || job(db, own)?.is_none() {
                admit(db, viewer, &State::read(db)?)?;
            }
            let mut rows = 0;
            for (table, _) in PLACES {
                rows += count(db, table, id)?;
            }
            let members = "SELECT count(*) FROM members WHERE subject = ?1";
            Ok((rows, db.query_row(members, [id], |row| row.get(0)).sql()?))
        })?;
        Ok(Residue { rows, indexed: self.shard.owned_by(id), keys: self.ring.count(id)?, memberships })
    }
}

/// Everything of the subject but the tombstone itself, which goes last.
fn purge(work: &mut Work<'_>, subject: &str) -> Result<(), Error> {
    // INVARIANT: I-8, only what is tombstoned is purged, and the tombstone is checked in this transaction.
    if is_active(work.db, subject)? {
        return Err(Error::NotFound);
    }
    // A shared memory stays, but no longer says in whose conversation it arose.
    let unlink = "UPDATE memories SET conversation = NULL
                  WHERE conversation IN (SELECT id FROM conversations WHERE owner = ?1)";
    work.db.execute(unlink, [subject]).sql()?;
    for (table, condition) in PLACES.iter().filter(|(table, _)| *table != "subjects") {
        work.db.execute(&format!("DELETE FROM {table} WHERE {condition}"), [subject]).sql()?;
    }
    work.db.execute("UPDATE subjects SET reference = x'' WHERE id = ?1", [subject]).sql()?;
    Ok(())
}

fn count(db: &Connection, table: &str, subject: &str) -> Result<u64, Error> {
    let Some((table, condition)) = PLACES.iter().find(|(name, _)| *name == table) else {
        return Err(Error::Unavailable);
    };
    db.query_row(&format!("SELECT count(*) FROM {table} WHERE {condition}"), [subject], |row| row.get(0))
        .sql()
}

/// The same entry as `evidence::erasure_receipt_draft`, without the capability, which a resumed erasure does
/// not have.
pub(crate) fn erasure_receipt(tenant: &TenantId, actor: &str, erased: &Erased) -> Result<Draft, Error> {
    let actor = Actor::Key(token(actor)?);
    Ok(Draft::new(EntryType::ErasureReceipt, token(tenant.as_str())?, actor)
        .field("memories", integer(erased.memories)?)
        .field("conversations", integer(erased.conversations)?)
        .field("turns", integer(erased.turns)?)
        .field("evidence", integer(erased.evidence)?))
}

fn integer(count: u64) -> Result<Integer, Error> {
    Integer::from_count(count).ok_or(Error::Damaged)
}

impl Work<'_> {
    /// Content and the stable prefix are of a new generation.
    fn raise_content(&mut self) {
        self.state.epochs.content = self.state.epochs.content.next();
        self.state.epochs.prefix = self.state.epochs.prefix.next();
    }
}
