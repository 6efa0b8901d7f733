//! Looking at the register: lists, manifests compared with what is there, and the search for leftovers by id,
//! by filter and by similarity.

use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::{Approval, Audience, EvidencePolicy, SourceState, Terms};
use merkwelt_domain::{Content, RevisionId, SourceId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::query::{Fusion, KindSet, ModelId, RecallQuery, TopK, Turns, Vector};
use merkwelt_store::source::{ManifestEntry, RevisionRecord, SourceProbe, SourceRecord, SourceResidue};
use rusqlite::{Connection, Row};

use super::{audience_of, digest_at, expiry_at, passage_body, passage_place, region_at, source_body};
use crate::cell::Cell;
use crate::error::Sql as _;
use crate::rows::{blob_at, decoded, open_vector, text_at, time_at};
use crate::shard::{Probe, Shard, advance, of_source, passage_key};
use crate::snapshot::{Snapshot, Viewer};

const APPROVALS: [Approval; 2] = [Approval::Draft, Approval::Approved];
const SOURCE_COLUMNS: &str =
    "id, state, expires_at, no_expiry, evidence, purpose, registered_at, current, body";

/// One source with its revisions.
pub(super) fn record(cell: &Cell, db: &Connection, id: &SourceId) -> Result<SourceRecord, Error> {
    let sql = format!("SELECT {SOURCE_COLUMNS} FROM sources WHERE id = ?1");
    let mut statement = db.prepare_cached(&sql).sql()?;
    let mut rows = statement.query([id.as_str()]).sql()?;
    read_record(cell, db, rows.next().sql()?.ok_or(Error::NotFound)?)
}

/// One source under a capability that still holds.
pub(super) fn read_source(snapshot: &Snapshot<'_>, id: &SourceId) -> Result<SourceRecord, Error> {
    record(snapshot.cell, snapshot.db, id)
}

fn read_record(cell: &Cell, db: &Connection, row: &Row<'_>) -> Result<SourceRecord, Error> {
    let id = text_at(row, 0)?;
    let sealed: Option<&[u8]> = row.get_ref(8).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    let (title, origin) = match sealed {
        Some(sealed) => {
            let (title, origin) = source_body(cell, id, sealed)?;
            (Some(title), origin)
        }
        None => (None, None),
    };
    let purpose: Option<String> = row.get(5).sql()?;
    let current: Option<String> = row.get(7).sql()?;
    Ok(SourceRecord {
        id: id.parse().map_err(|_| Error::Damaged)?,
        title,
        origin,
        audience: audience_of(db, id)?.unwrap_or(Audience::Tenant),
        terms: Terms {
            expiry: expiry_at(row, 2)?,
            evidence: decoded(&EvidencePolicy::ALL, row.get(4).sql()?)?,
            purpose: purpose.map(|text| text.parse().map_err(|_| Error::Damaged)).transpose()?,
        },
        state: decoded(&SourceState::ALL, row.get(1).sql()?)?,
        registered_at: time_at(row, 6)?,
        current: current.map(|text| text.parse().map_err(|_| Error::Damaged)).transpose()?,
        revisions: revisions(db, id)?,
    })
}

fn revisions(db: &Connection, source: &str) -> Result<Vec<RevisionRecord>, Error> {
    let mut statement = db
        .prepare_cached(
            "SELECT id, number, digest, media, received_at, valid_from, approval, published_at, passages,
                    NOT EXISTS (SELECT 1 FROM passages WHERE revision = revisions.id AND body IS NULL)
             FROM revisions WHERE source = ?1 ORDER BY number",
        )
        .sql()?;
    let mut rows = statement.query([source]).sql()?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().sql()? {
        let published_at: Option<i64> = row.get(7).sql()?;
        found.push(RevisionRecord {
            id: text_at(row, 0)?.parse().map_err(|_| Error::Damaged)?,
            number: Revision::from_number(row.get(1).sql()?),
            digest: digest_at(row, 2)?,
            media: text_at(row, 3)?.to_owned(),
            received_at: time_at(row, 4)?,
            valid_from: time_at(row, 5)?,
            approval: decoded(&APPROVALS, row.get(6).sql()?)?,
            published_at: published_at.map(Timestamp::from_millis),
            passages: row.get(8).sql()?,
            kept: row.get(9).sql()?,
        });
    }
    Ok(found)
}

impl Snapshot<'_> {
    /// Sources by id.
    pub(crate) fn sources(&self, after: &str, limit: usize) -> Result<Vec<SourceRecord>, Error> {
        let sql = format!("SELECT {SOURCE_COLUMNS} FROM sources WHERE id > ?1 ORDER BY id LIMIT ?2");
        let mut statement = self.db.prepare_cached(&sql).sql()?;
        let mut rows = statement.query((after, limit)).sql()?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().sql()? {
            found.push(read_record(self.cell, self.db, row)?);
        }
        Ok(found)
    }

    pub(crate) fn source(&self, id: &SourceId) -> Result<SourceRecord, Error> {
        read_source(self, id)
    }

    pub(crate) fn source_of_origin(&self, origin: &Content) -> Result<Option<SourceId>, Error> {
        let tag = self.cell.keys.origin_tag(origin.expose());
        let mut statement = self.db.prepare_cached("SELECT id FROM sources WHERE origin_tag = ?1").sql()?;
        let mut rows = statement.query([tag.as_slice()]).sql()?;
        let row = rows.next().sql()?;
        row.map(|row| text_at(row, 0)?.parse().map_err(|_| Error::Damaged)).transpose()
    }

    /// The words and vectors that are still kept of a source.
    pub(crate) fn probes(&self, source: &SourceId) -> Result<Vec<SourceProbe>, Error> {
        read_source(self, source)?;
        let mut statement = self
            .db
            .prepare_cached(
                "SELECT revision, number, body, vector FROM passages
                 WHERE source = ?1 AND body IS NOT NULL ORDER BY seq",
            )
            .sql()?;
        let mut rows = statement.query([source.as_str()]).sql()?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().sql()? {
            found.push(probe(self.cell, self.state.model.as_ref(), source.as_str(), row)?);
        }
        Ok(found)
    }
}

fn probe(cell: &Cell, model: Option<&ModelId>, source: &str, row: &Row<'_>) -> Result<SourceProbe, Error> {
    let (revision, number) = (text_at(row, 0)?, row.get(1).sql()?);
    let place = |column| passage_place(&cell.tenant, revision, number, column);
    let (text, _) = passage_body(cell, source, place("body"), blob_at(row, 2)?)?;
    let sealed: Option<&[u8]> = row.get_ref(3).sql()?.as_blob_or_null().map_err(|_| Error::Damaged)?;
    let vector = match (sealed, model) {
        (Some(sealed), Some(model)) => {
            let values = open_vector(&*cell.owner_keys(source)?, place("vector"), sealed)?;
            Some(Vector { model: model.clone(), values })
        }
        _ => None,
    };
    Ok(SourceProbe { text, vector })
}

impl Cell {
    /// Works on the shard of the epoch of an admitted snapshot.
    fn with_shard<T>(
        &self,
        viewer: &Viewer,
        work: impl FnOnce(&Snapshot<'_>, &Shard) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shard.alone(|place| {
            self.read(viewer, |snapshot| {
                let shard = advance(self, snapshot.db, &snapshot.state, place)?;
                work(snapshot, shard)
            })
        })
    }

    /// The manifest of a revision, compared with records and index.
    pub(crate) fn manifest(
        &self,
        viewer: &Viewer,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<Vec<ManifestEntry>, Error> {
        self.with_shard(viewer, |snapshot, shard| {
            let record = read_source(snapshot, source)?;
            if !record.revisions.iter().any(|known| known.id == *revision) {
                return Err(Error::NotFound);
            }
            let mut statement = snapshot
                .db
                .prepare_cached(
                    "SELECT number, digest, region, body IS NOT NULL FROM passages
                     WHERE revision = ?1 ORDER BY number",
                )
                .sql()?;
            let mut rows = statement.query([revision.as_str()]).sql()?;
            let mut found = Vec::new();
            while let Some(row) = rows.next().sql()? {
                let number = row.get(0).sql()?;
                found.push(ManifestEntry {
                    number,
                    digest: digest_at(row, 1)?,
                    region: region_at(row, 2)?,
                    kept: row.get(3).sql()?,
                    indexed: shard.holds(&passage_key(revision, number)?),
                });
            }
            Ok(found)
        })
    }

    /// What can still be found of a source.
    pub(crate) fn source_residue(
        &self,
        viewer: &Viewer,
        source: &SourceId,
        probes: &[SourceProbe],
        now: Timestamp,
    ) -> Result<SourceResidue, Error> {
        self.with_shard(viewer, |snapshot, shard| {
            read_source(snapshot, source)?;
            let mut by_similarity = 0;
            for probe in probes {
                by_similarity += u64::from(finds(snapshot, shard, source, probe, now)?);
            }
            let searched: u64 = snapshot
                .db
                .query_row(
                    "SELECT count(*) FROM passages AS p JOIN sources AS s ON s.id = p.source
                     WHERE p.source = ?1 AND (s.current = p.revision
                       OR (s.state = 3 AND (p.terms IS NOT NULL OR p.vector IS NOT NULL OR p.vector_next IS NOT NULL)))",
                    [source.as_str()],
                    |row| row.get(0),
                )
                .sql()?;
            Ok(SourceResidue {
                by_id: held(snapshot.db, shard, source)?,
                by_filter: searched.max(shard.owned_by(source.as_str())),
                by_similarity,
            })
        })
    }
}

/// Passages that the index finds by their ids.
fn held(db: &Connection, shard: &Shard, source: &SourceId) -> Result<u64, Error> {
    let mut statement =
        db.prepare_cached("SELECT revision, number FROM passages WHERE source = ?1 ORDER BY seq").sql()?;
    let mut rows = statement.query([source.as_str()]).sql()?;
    let mut n_held = 0;
    while let Some(row) = rows.next().sql()? {
        let revision: RevisionId = text_at(row, 0)?.parse().map_err(|_| Error::Damaged)?;
        n_held += u64::from(shard.holds(&passage_key(&revision, row.get(1).sql()?)?));
    }
    Ok(n_held)
}

/// Whether a probe finds a passage of the source, looked for with the eyes of everybody at once.
fn finds(
    snapshot: &Snapshot<'_>,
    shard: &Shard,
    source: &SourceId,
    probe: &SourceProbe,
    now: Timestamp,
) -> Result<bool, Error> {
    let same_model = probe.vector.as_ref().filter(|vector| shard.model.as_ref() == Some(&vector.model));
    let query = RecallQuery {
        question: probe.text.clone(),
        vector: same_model.map(|vector| (vector.clone(), Fusion { floor: 0.0, span: 1.0 })),
        k: TopK::new(TopK::MAX).unwrap_or_default(),
        kinds: KindSet::of([]),
        turns: Turns::None,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        now,
    };
    let prepared = same_model.and_then(|vector| Probe::of(&vector.values));
    of_source(shard, &query, prepared.as_ref(), source.as_str(), snapshot.cell.tenant.as_str())
}
