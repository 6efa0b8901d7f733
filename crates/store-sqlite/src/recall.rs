//! A search: the shard proposes keys, and what is returned is read from the records under the same scope, in
//! the snapshot whose epoch the shard has (I-2, I-3). Only what is returned is decrypted.

use merkwelt_store::Error;
use merkwelt_store::query::RecallQuery;
use merkwelt_store::ranking::{Place, cosine, fuse};
use merkwelt_store::record::{Candidate, IndexVersion, Ranking, Recalled, Record, RecordId, Scores};
use rusqlite::{OptionalExtension as _, named_params};

use crate::cell::Cell;
use crate::error::Sql as _;
use crate::library::passage_place;
use crate::rows::{
    MEMORY_COLUMNS, TURN_COLUMNS, memory_place, open_vector, read_memory, read_turn, turn_place,
};
use crate::shard::{Eyes, Probe, Proposals, Row, Shard, advance, search};
use crate::snapshot::{Snapshot, Viewer, shown, visible};

/// The stable name of the index. Its build is the content epoch it holds.
pub(crate) const INDEX: &str = "memory-shard";

/// Searches one cell.
pub(crate) fn recall(cell: &Cell, viewer: &Viewer, query: &RecallQuery) -> Result<Recalled, Error> {
    let current = cell.shard.ask(|shard| {
        cell.read(viewer, |snapshot| {
            let same = shard.epoch == snapshot.state.epochs.content.number();
            if same { answer(snapshot, shard, query).map(Some) } else { Ok(None) }
        })
    })?;
    if let Some(recalled) = current {
        return Ok(recalled);
    }
    cell.shard.alone(|place| {
        cell.read(viewer, |snapshot| {
            let shard = advance(cell, snapshot.db, &snapshot.state, place)?;
            answer(snapshot, shard, query)
        })
    })
}

/// The search with all its checks: by whom, in what, as of when.
fn answer(snapshot: &Snapshot<'_>, shard: &Shard, query: &RecallQuery) -> Result<Recalled, Error> {
    if let Some((vector, _)) = &query.vector {
        // INVARIANT: I-14, vectors of two models are never compared.
        if snapshot.cell.model_of(&snapshot.state).is_some_and(|model| model != vector.model) {
            return Err(Error::ModelMismatch);
        }
    }
    let probe = query.vector.as_ref().and_then(|(vector, _)| Probe::of(&vector.values));
    let groups = snapshot.groups()?;
    let eyes =
        Eyes { subject: snapshot.viewer.subject(), groups: &groups, tenant: snapshot.cell.tenant.as_str() };
    let proposals = search(shard, &eyes, query, probe.as_ref())?;
    dispose(snapshot, proposals, query)
}

/// Ranks what was proposed by its exact vectors, and reads the best from the records.
pub(crate) fn dispose(
    snapshot: &Snapshot<'_>,
    proposals: Proposals,
    query: &RecallQuery,
) -> Result<Recalled, Error> {
    let mut ranked = Vec::with_capacity(proposals.rows.len());
    for proposal in proposals.rows {
        let exact = match &query.vector {
            Some((asked, _)) if proposal.vector => {
                stored_vector(snapshot, &proposal.row)?.and_then(|kept| cosine(&asked.values, &kept))
            }
            _ => None,
        };
        let scores = fuse(proposal.lexical, exact, query.vector.as_ref().map(|(_, fusion)| *fusion));
        let written_at = merkwelt_domain::Timestamp::from_millis(proposal.row.written_at);
        ranked.push((
            Place { total: scores.total, written_at, id: proposal.row.id()? },
            scores,
            proposal.row,
        ));
    }
    ranked.sort_by(|(a, ..), (b, ..)| a.order(b));
    let mut candidates = Vec::with_capacity(query.k.get());
    for (place, scores, row) in ranked.into_iter().take(query.k.get()) {
        candidates.extend(candidate(snapshot, &place.id, &row, scores)?);
    }
    let ranking = if query.vector.is_some() { Ranking::Hybrid } else { Ranking::Lexical };
    let epochs = snapshot.state.epochs;
    let index = IndexVersion { id: INDEX.to_owned(), build: epochs.content.number() };
    Ok(Recalled { candidates, considered: proposals.considered, epochs, ranking, index })
}

/// The exact vector of a proposed row, if the record is visible.
fn stored_vector(snapshot: &Snapshot<'_>, row: &Row) -> Result<Option<Vec<f32>>, Error> {
    const MEMORY: &str = concat!(
        "SELECT owner, vector FROM memories
         WHERE seq = :seq AND id = :id AND revision = :number AND standing = 0 AND ",
        visible!()
    );
    const THE_TURN: &str = "SELECT owner, vector FROM turns \
        WHERE seq = :seq AND conversation = :id AND number = :number AND owner = :subject";
    let id = row.id()?;
    const THE_PASSAGE: &str = concat!(
        "SELECT p.source, p.vector FROM passages AS p JOIN sources AS s ON s.id = p.source
         WHERE p.seq = :seq AND p.revision = :id AND p.number = :number AND s.current = p.revision AND ",
        shown!()
    );
    let (sql, key, number) = match &id {
        RecordId::Memory(id) => (MEMORY, id.as_str(), row.revision().number()),
        RecordId::Turn(id, number) => (THE_TURN, id.as_str(), *number),
        RecordId::Passage(id) => (THE_PASSAGE, id.revision.as_str(), id.number),
    };
    let found: Option<(String, Option<Vec<u8>>)> = snapshot
        .db
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let subject = snapshot.viewer.subject();
            statement
                .query_row(
                    named_params! { ":seq": row.seq, ":id": key, ":number": number, ":subject": subject },
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()
        })
        .sql()?;
    let Some((owner, Some(sealed))) = found else { return Ok(None) };
    let keys = snapshot.cell.owner_keys(&owner)?;
    let tenant = &snapshot.cell.tenant;
    let place = match &id {
        RecordId::Memory(_) => memory_place(tenant, key, number, "vector"),
        RecordId::Turn(..) => turn_place(tenant, key, number, "vector"),
        RecordId::Passage(_) => passage_place(tenant, key, number, "vector"),
    };
    open_vector(&keys, place, &sealed).map(Some)
}

/// The record itself; nothing if the system of record does not confirm the proposal.
fn candidate(
    snapshot: &Snapshot<'_>,
    id: &RecordId,
    row: &Row,
    scores: Scores,
) -> Result<Option<Candidate>, Error> {
    let subject = snapshot.viewer.subject();
    let record = match id {
        RecordId::Memory(id) => {
            let sql = format!(
                "SELECT {MEMORY_COLUMNS} FROM memories
                 WHERE seq = :seq AND id = :id AND revision = :revision AND standing = 0 AND {}",
                visible!()
            );
            let revision = row.revision().number();
            let mut statement = snapshot.db.prepare_cached(&sql).sql()?;
            let parameters = named_params! {
                ":seq": row.seq, ":id": id.as_str(), ":revision": revision, ":subject": subject,
            };
            let mut rows = statement.query(parameters).sql()?;
            let found = rows.next().sql()?;
            found.map(|row| read_memory(snapshot.cell, row).map(Record::Memory)).transpose()?
        }
        RecordId::Turn(id, number) => {
            let sql = format!(
                "SELECT {TURN_COLUMNS} FROM turns
                 WHERE seq = :seq AND conversation = :id AND number = :number AND owner = :subject"
            );
            let mut statement = snapshot.db.prepare_cached(&sql).sql()?;
            let parameters = named_params! {
                ":seq": row.seq, ":id": id.as_str(), ":number": number, ":subject": subject,
            };
            let mut rows = statement.query(parameters).sql()?;
            let found = rows.next().sql()?;
            found.map(|row| read_turn(snapshot.cell, row).map(Record::Turn)).transpose()?
        }
        RecordId::Passage(id) => snapshot.current_passage(id)?.map(Record::Passage),
    };
    Ok(record.map(|record| Candidate { record, scores }))
}
