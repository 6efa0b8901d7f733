//! Changes of the register, each in one transaction with its evidence and the new generations. A
//! deletion takes the words out in that transaction and destroys the key of the source after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use merkwelt_domain::memory::{Expiry, NoExpiryReason, Revision};
use merkwelt_domain::source::{Audience, EvidencePolicy, SourceState, Title};
use merkwelt_domain::{FaultPoint, GroupName, RevisionId, SourceId, Timestamp};
use merkwelt_ledger::commitment::Commitment;
use merkwelt_store::Error;
use merkwelt_store::analysis::analyse_passage;
use merkwelt_store::evidence::{source_draft, token};
use merkwelt_store::query::Vector;
use merkwelt_store::register::{self, Effect};
use merkwelt_store::source::{NewAudience, NewRevision, NewSource, SourceChange, SourceReceipt};
use rusqlite::{OptionalExtension as _, named_params};
use zeroize::Zeroizing;

use super::look::read_source;
use super::{PassageBody, SourceBody, passage_place, source_place};
use crate::cell::Cell;
use crate::change::refuse_taken;
use crate::crypt::OwnerKeys;
use crate::error::Sql as _;
use crate::rows::{code_of, seal_vector};
use crate::shard::Touch;
use crate::snapshot::{Viewer, admit};
use crate::terms;
use crate::witness::Witness;
use crate::writer::Work;

/// A change whose passages were analysed before it went to the writer.
struct Staged {
    change: SourceChange,
    terms: Vec<Zeroizing<Vec<u8>>>,
}

/// What was done, for the receipt and the evidence.
struct Done {
    revision: Option<Revision>,
    document: Option<Commitment>,
    reused: u32,
}

impl Done {
    fn to(revision: Option<Revision>) -> Self {
        Self { revision, document: None, reused: 0 }
    }
}

impl Cell {
    /// Makes one change of the register.
    pub(crate) fn change_source(
        &self,
        viewer: Viewer,
        witness: Witness,
        change: SourceChange,
        at: Timestamp,
    ) -> Result<SourceReceipt, Error> {
        let source = change.source().clone();
        let (is_new, deletes) =
            (matches!(change, SourceChange::Register(_)), matches!(change, SourceChange::Delete { .. }));
        if is_new {
            self.ring.add(self.env.as_ref(), &self.keys, source.as_str()).map_err(|error| {
                // Damage here is a key of that id: the id is taken.
                if error == Error::Damaged { Error::Exists } else { error }
            })?;
        }
        let staged = self.analysed(&viewer, change)?;
        let reached = self.env.reach(FaultPoint::AfterKey).map_err(|_| Error::Unavailable);
        let receipt = reached
            .and_then(|()| self.write_blocking(move |work| commit(work, &viewer, &witness, staged, at)));
        if let (true, Err(refused)) = (is_new, &receipt) {
            self.discard_unused(source.as_str(), Some(*refused));
        }
        if deletes && receipt.is_ok() {
            self.finish_deletion(&source)?;
        }
        receipt
    }

    /// Destroys the key of a deleted source and rewrites the file without its bytes. Idempotent.
    pub(crate) fn finish_deletion(&self, source: &SourceId) -> Result<(), Error> {
        let keeps: bool = self.snapshot(|_, db| {
            db.query_row("SELECT body IS NOT NULL FROM sources WHERE id = ?1", [source.as_str()], |row| {
                row.get(0)
            })
            .sql()
        })?;
        if !keeps {
            self.destroy_key(source.as_str())?;
        }
        self.env.reach(FaultPoint::BeforeVacuum).map_err(|_| Error::Unavailable)?;
        self.compact()
    }

    /// Deleted sources whose key is still there: their deletion was interrupted.
    pub(crate) fn unfinished_deletions(&self) -> Result<Vec<SourceId>, Error> {
        let gone: Vec<String> = self.snapshot(|_, db| {
            let mut statement =
                db.prepare("SELECT id FROM sources WHERE state = 3 AND body IS NULL").sql()?;
            let rows = statement.query_map([], |row| row.get(0)).sql()?;
            rows.collect::<rusqlite::Result<_>>().sql()
        })?;
        let mut left = Vec::new();
        for id in gone {
            if self.ring.count(&id)? > 0 {
                left.push(id.parse().map_err(|_| Error::Damaged)?);
            }
        }
        Ok(left)
    }

    /// Analyses the passages of a revision, which the writer has no time for.
    fn analysed(&self, viewer: &Viewer, change: SourceChange) -> Result<Staged, Error> {
        let terms = match &change {
            SourceChange::Stage(new) => {
                let record = self.read(viewer, |snapshot| read_source(snapshot, &new.source))?;
                let title = record.title.ok_or(Error::NotFound)?;
                new.passages
                    .iter()
                    .map(|passage| {
                        let headings = passage.headings.iter().map(Title::expose);
                        let terms = analyse_passage(title.expose(), headings, passage.text.expose());
                        terms::write_terms(self.analysis, &terms, false)
                    })
                    .collect()
            }
            SourceChange::Register(_)
            | SourceChange::Publish { .. }
            | SourceChange::Discard { .. }
            | SourceChange::Admit { .. }
            | SourceChange::Withdraw { .. }
            | SourceChange::Restore { .. }
            | SourceChange::Delete { .. } => Vec::new(),
        };
        Ok(Staged { change, terms })
    }
}

fn commit(
    work: &mut Work<'_>,
    viewer: &Viewer,
    witness: &Witness,
    staged: Staged,
    at: Timestamp,
) -> Result<SourceReceipt, Error> {
    admit(work.db, viewer, &work.state)?;
    let (name, source) = (staged.change.name(), staged.change.source().clone());
    let Some(done) = apply(work, staged, at)? else {
        return Ok(SourceReceipt { entry: None, epochs: work.state.epochs, revision: None, reused: 0 });
    };
    work.touched.push(Touch::Source(source.clone()));
    work.state.epochs.content = work.state.epochs.content.next();
    work.raise_knowledge();
    let draft = source_draft(&witness.tenant, &witness.key, name, &source, done.revision, done.document)?;
    let entry = work.append(&[draft], at)?;
    Ok(SourceReceipt { entry, epochs: work.state.epochs, revision: done.revision, reused: done.reused })
}

/// Makes one change; `None` if nothing had to change.
fn apply(work: &mut Work<'_>, staged: Staged, at: Timestamp) -> Result<Option<Done>, Error> {
    let record = |work: &Work<'_>, id: &SourceId| super::look::record(work.cell, work.db, id);
    match staged.change {
        SourceChange::Register(new) => register_source(work, &new, at).map(Some),
        SourceChange::Stage(new) => {
            let number = register::stage(&record(work, &new.source)?)?;
            stage(work, new, staged.terms, number, at).map(Some)
        }
        SourceChange::Publish { source, revision } => {
            let effect = register::publish(&record(work, &source)?, &revision)?;
            make_current(work, &source, &revision, effect, at)
        }
        SourceChange::Restore { source, revision, vectors } => {
            let effect = register::restore(&record(work, &source)?, &revision)?;
            restore_vectors(work, &source, &revision, &vectors)?;
            make_current(work, &source, &revision, effect, at)
        }
        SourceChange::Discard { source, revision } => {
            let record = record(work, &source)?;
            register::discard(&record, &revision)?;
            for sql in ["DELETE FROM passages WHERE revision = ?1", "DELETE FROM revisions WHERE id = ?1"] {
                work.db.execute(sql, [revision.as_str()]).sql()?;
            }
            Ok(Some(Done::to(record.revisions.iter().find(|r| r.id == revision).map(|r| r.number))))
        }
        SourceChange::Admit { source, audience } => {
            let audience = resolve(work, &audience)?;
            when(register::admit(&record(work, &source)?, &audience)?, || {
                set_audience(work, &source, &audience)
            })
        }
        SourceChange::Withdraw { source } => {
            let effect = register::withdraw(&record(work, &source)?)?;
            when(effect, || end(work, &source, SourceState::Withdrawn, at))
        }
        SourceChange::Delete { source } => {
            let record = record(work, &source)?;
            let keeps = record.terms.evidence == EvidencePolicy::DigestWithCopy;
            when(register::delete(&record), || remove(work, &source, keeps, at))
        }
    }
}

fn when(effect: Effect, act: impl FnOnce() -> Result<(), Error>) -> Result<Option<Done>, Error> {
    match effect {
        Effect::Nothing => Ok(None),
        Effect::Happens | Effect::MakesCurrent { .. } => act().map(|()| Some(Done::to(None))),
    }
}

fn resolve(work: &Work<'_>, audience: &NewAudience) -> Result<Audience, Error> {
    match audience {
        NewAudience::Tenant => Ok(Audience::Tenant),
        NewAudience::Groups(names) => {
            let id = |name: &GroupName| -> Result<_, Error> {
                let found: Option<String> = work
                    .db
                    .prepare_cached("SELECT id FROM groups WHERE name = ?1")
                    .and_then(|mut row| row.query_row([name.as_str()], |row| row.get(0)).optional())
                    .sql()?;
                found.ok_or(Error::NotFound)?.parse().map_err(|_| Error::Damaged)
            };
            Ok(Audience::Groups(names.iter().map(id).collect::<Result<BTreeSet<_>, Error>>()?))
        }
    }
}

fn set_audience(work: &Work<'_>, source: &SourceId, audience: &Audience) -> Result<(), Error> {
    let id = source.as_str();
    work.db.execute("DELETE FROM source_groups WHERE source = ?1", [id]).sql()?;
    let code = match audience {
        Audience::Tenant => 0_u8,
        Audience::Groups(groups) => {
            for group in groups {
                let sql = "INSERT INTO source_groups (source, group_id) VALUES (?1, ?2)";
                work.db.execute(sql, (id, group.as_str())).sql()?;
            }
            1
        }
    };
    work.db.execute("UPDATE sources SET audience = ?2 WHERE id = ?1", (id, code)).sql()?;
    Ok(())
}

fn register_source(work: &Work<'_>, new: &NewSource, at: Timestamp) -> Result<Done, Error> {
    let cell = work.cell;
    let id = new.id.as_str();
    let audience = resolve(work, &new.audience)?;
    let keys = cell.owner_keys(id)?;
    let origin = new.origin.as_ref().map(|origin| origin.expose().to_owned());
    let tag = origin.as_ref().map(|origin| cell.keys.origin_tag(origin).to_vec());
    let body = SourceBody { title: new.title.expose().to_owned(), origin };
    let body = Zeroizing::new(serde_json::to_vec(&body).map_err(|_| Error::Damaged)?);
    let body = keys.sealer.seal(cell.env.as_ref(), source_place(&cell.tenant, id), &body)?;
    let (expires_at, no_expiry) = match new.terms.expiry {
        Expiry::At(end) => (Some(end.millis()), None),
        Expiry::Never(reason) => (None, Some(code_of(&NoExpiryReason::ALL, reason))),
    };
    let inserted = work.db.prepare_cached(INSERT_SOURCE).and_then(|mut row| {
        row.execute(named_params! {
            ":id": id, ":expires_at": expires_at, ":no_expiry": no_expiry,
            ":evidence": code_of(&EvidencePolicy::ALL, new.terms.evidence),
            ":purpose": new.terms.purpose.as_ref().map(|purpose| purpose.as_str()),
            ":at": at.millis(), ":origin_tag": tag, ":body": body,
        })
    });
    refuse_taken(inserted)?;
    set_audience(work, &new.id, &audience)?;
    Ok(Done::to(None))
}

const INSERT_SOURCE: &str = "INSERT INTO sources (id, audience, expires_at, no_expiry, evidence, purpose, \
    registered_at, ended_at, origin_tag, body) \
    VALUES (:id, 0, :expires_at, :no_expiry, :evidence, :purpose, :at, :at, :origin_tag, :body)";

fn stage(
    work: &mut Work<'_>,
    new: NewRevision,
    terms: Vec<Zeroizing<Vec<u8>>>,
    number: Revision,
    at: Timestamp,
) -> Result<Done, Error> {
    let cell = work.cell;
    let (id, source) = (new.id.as_str(), new.source.as_str());
    let keys = cell.owner_keys(source)?;
    let passages = u32::try_from(new.passages.len()).map_err(|_| Error::Unavailable)?;
    let (document, opening) = new.opening.commit(&token("document")?, &new.digest);
    let opening = keys.sealer.seal(
        cell.env.as_ref(),
        crate::rows::plain_place(&cell.tenant, "revisions", id),
        opening.key().expose(),
    )?;
    let inserted = work.db.prepare_cached(INSERT_REVISION).and_then(|mut row| {
        row.execute(named_params! {
            ":id": id, ":source": source, ":number": number.number(), ":digest": new.digest.as_slice(),
            ":media": new.media, ":received_at": at.millis(), ":valid_from": new.valid_from.millis(),
            ":passages": passages, ":opening": opening,
        })
    });
    refuse_taken(inserted)?;
    let former = vectors_by_digest(work, &keys, source)?;
    let mut reused = 0;
    for ((place, passage), terms) in (1_u32..).zip(&new.passages).zip(terms) {
        let taken = former.get(&passage.digest).filter(|_| passage.vector.is_none());
        reused += u32::from(taken.is_some());
        if let Some(vector) = &passage.vector {
            check_model(work, vector)?;
        }
        let values = passage.vector.as_ref().map(|vector| &vector.values).or(taken);
        let env = cell.env.as_ref();
        let at = |column| passage_place(&cell.tenant, id, place, column);
        let body = PassageBody {
            text: passage.text.expose().to_owned(),
            headings: passage.headings.iter().map(|heading| heading.expose().to_owned()).collect(),
        };
        let body = Zeroizing::new(serde_json::to_vec(&body).map_err(|_| Error::Damaged)?);
        let body = keys.sealer.seal(env, at("body"), &body)?;
        let terms = keys.sealer.seal(env, at("terms"), &terms)?;
        let vector = values.map(|values| seal_vector(cell, &keys, at("vector"), values)).transpose()?;
        if vector.is_none() {
            cell.lacking.store(true, Ordering::Relaxed);
        }
        let region = serde_json::to_string(&passage.region).map_err(|_| Error::Damaged)?;
        work.db
            .prepare_cached(INSERT_PASSAGE)
            .and_then(|mut row| {
                row.execute(named_params! {
                    ":revision": id, ":number": place, ":source": source, ":region": region,
                    ":digest": passage.digest.as_slice(), ":tokens": passage.tokens,
                    ":body": body, ":terms": terms, ":vector": vector,
                })
            })
            .sql()?;
    }
    Ok(Done { revision: Some(number), document: Some(document), reused })
}

const INSERT_REVISION: &str = "INSERT INTO revisions (id, source, number, digest, media, received_at, \
    valid_from, passages, opening) \
    VALUES (:id, :source, :number, :digest, :media, :received_at, :valid_from, :passages, :opening)";

const INSERT_PASSAGE: &str = "INSERT INTO passages (revision, number, source, digest, region, tokens, body, \
    terms, vector) VALUES (:revision, :number, :source, :digest, :region, :tokens, :body, :terms, :vector)";

/// Refuses a vector of another model than the tenant's (I-14), and notes the first one's.
fn check_model(work: &mut Work<'_>, vector: &Vector) -> Result<(), Error> {
    if work.cell.model_of(&work.state).is_some_and(|model| model != vector.model) {
        return Err(Error::ModelMismatch);
    }
    work.state.model.get_or_insert_with(|| vector.model.clone());
    Ok(())
}

/// The vectors of a source's passages by the digest of what they were made for.
fn vectors_by_digest(
    work: &Work<'_>,
    keys: &OwnerKeys,
    source: &str,
) -> Result<BTreeMap<[u8; 32], Vec<f32>>, Error> {
    let mut statement = work
        .db
        .prepare_cached(
            "SELECT revision, number, digest, vector FROM passages WHERE source = ?1 AND vector IS NOT NULL",
        )
        .sql()?;
    let mut rows = statement.query([source]).sql()?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next().sql()? {
        let place =
            passage_place(&work.cell.tenant, crate::rows::text_at(row, 0)?, row.get(1).sql()?, "vector");
        let vector = crate::rows::open_vector(keys, place, crate::rows::blob_at(row, 3)?)?;
        found.insert(super::digest_at(row, 2)?, vector);
    }
    Ok(found)
}

/// Puts vectors back where a deletion took them out.
fn restore_vectors(
    work: &mut Work<'_>,
    source: &SourceId,
    revision: &RevisionId,
    vectors: &[Vector],
) -> Result<(), Error> {
    if vectors.is_empty() {
        return Ok(());
    }
    let keys = work.cell.owner_keys(source.as_str())?;
    for (number, vector) in (1_u32..).zip(vectors) {
        check_model(work, vector)?;
        let place = passage_place(&work.cell.tenant, revision.as_str(), number, "vector");
        let sealed = seal_vector(work.cell, &keys, place, &vector.values)?;
        let sql = "UPDATE passages SET vector = ?3 WHERE revision = ?1 AND number = ?2";
        work.db.execute(sql, (revision.as_str(), number, sealed)).sql()?;
    }
    Ok(())
}

fn make_current(
    work: &Work<'_>,
    source: &SourceId,
    revision: &RevisionId,
    effect: Effect,
    at: Timestamp,
) -> Result<Option<Done>, Error> {
    let Effect::MakesCurrent { number, instead_of } = effect else { return Ok(None) };
    if let Some(former) = instead_of {
        let sql = "UPDATE revisions SET superseded_by = ?2, superseded_at = ?3 WHERE id = ?1";
        work.db.execute(sql, (former.as_str(), number.number(), at.millis())).sql()?;
    }
    let sql = "UPDATE revisions SET approval = 1, published_at = coalesce(published_at, ?2),
               superseded_by = NULL, superseded_at = NULL WHERE id = ?1";
    work.db.execute(sql, (revision.as_str(), at.millis())).sql()?;
    // A revision that was superseded may be without vectors of the present model.
    work.cell.lacking.store(true, Ordering::Relaxed);
    // INVARIANT: R-050, this is the only statement that says what is current.
    let sql = "UPDATE sources SET state = 1, current = ?2 WHERE id = ?1";
    work.db.execute(sql, (source.as_str(), revision.as_str())).sql()?;
    Ok(Some(Done::to(Some(number))))
}

fn end(work: &Work<'_>, source: &SourceId, state: SourceState, at: Timestamp) -> Result<(), Error> {
    let sql = "UPDATE sources SET state = ?2, current = NULL, ended_at = ?3 WHERE id = ?1";
    let code = code_of(&SourceState::ALL, state);
    work.db.execute(sql, (source.as_str(), code, at.millis())).sql()?;
    Ok(())
}

/// Takes everything out that is searched, and, unless a copy is kept, every word.
fn remove(work: &Work<'_>, source: &SourceId, keeps: bool, at: Timestamp) -> Result<(), Error> {
    let id = source.as_str();
    work.db
        .execute(
            "UPDATE passages SET terms = NULL, vector = NULL, vector_next = NULL WHERE source = ?1",
            [id],
        )
        .sql()?;
    if !keeps {
        for sql in [
            "UPDATE passages SET body = NULL WHERE source = ?1",
            "UPDATE revisions SET opening = NULL WHERE source = ?1",
            "UPDATE sources SET body = NULL, origin_tag = NULL WHERE id = ?1",
        ] {
            work.db.execute(sql, [id]).sql()?;
        }
    }
    end(work, source, SourceState::Deleted, at)
}
