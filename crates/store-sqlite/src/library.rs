//! The register of sources in a cell. What may be shown to a person is read here under the scope, with the
//! audience and the present memberships in the same statement; what is current is one column that
//! only a change of the register sets.

use std::collections::BTreeSet;

use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::memory::{Expiry, NoExpiryReason, Revision};
use merkwelt_domain::source::{Audience, Passage, PassageId, Region, SourceHead, SourceState, Title};
use merkwelt_domain::{Content, SourceId, TenantId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::analysis::analyse_passage;
use merkwelt_store::register;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::Place;
use crate::error::Sql as _;
use crate::rows::{blob_at, decoded, text_at, time_at};
use crate::snapshot::{Snapshot, shown};

mod change;
mod look;
mod port;

/// Where a passage's column stands; the passage's number takes the place of a revision.
pub(crate) fn passage_place<'a>(
    tenant: &'a TenantId,
    revision: &'a str,
    number: u32,
    column: &'static str,
) -> Place<'a> {
    Place { tenant: tenant.as_str(), table: "passages", row: revision, revision: number, column }
}

/// Where a source's own words stand.
pub(crate) fn source_place<'a>(tenant: &'a TenantId, id: &'a str) -> Place<'a> {
    Place { tenant: tenant.as_str(), table: "sources", row: id, revision: 0, column: "body" }
}

/// What of a source is sealed.
#[derive(Serialize, Deserialize)]
struct SourceBody {
    title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

/// What of a passage is sealed.
#[derive(Serialize, Deserialize)]
struct PassageBody {
    text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headings: Vec<String>,
}

/// What is current at `:now`, as `freshness::admit` decides it.
macro_rules! current {
    () => {
        "s.state = 1 AND s.current = p.revision AND r.valid_from <= :now
         AND (s.expires_at IS NULL OR s.expires_at > :now) AND r.received_at <= :latest"
    };
}

/// What may be cited at `:now`: what is current, and what was until another revision took its place.
macro_rules! citable {
    () => {
        "s.state = 1 AND r.approval = 1 AND (s.current = p.revision OR r.superseded_by IS NOT NULL)
         AND (s.expires_at IS NULL OR s.expires_at > :now) AND r.received_at <= :latest"
    };
}

/// The columns [`read_passage`] reads, in its order.
macro_rules! passage_rows {
    () => {
        "SELECT p.revision, p.number, p.source, r.number, p.region, p.tokens, p.body, s.body, r.digest,
                r.received_at, r.valid_from, s.expires_at, s.no_expiry, s.state, s.current,
                r.superseded_by, r.superseded_at, s.ended_at
         FROM passages AS p JOIN revisions AS r ON r.id = p.revision JOIN sources AS s ON s.id = p.source
         WHERE p.body IS NOT NULL AND p.revision = :id AND p.number = :number AND s.state = 1 AND "
    };
}

impl Snapshot<'_> {
    /// A passage that the index proposed, if it is of a current revision and for this caller.
    pub(crate) fn current_passage(&self, id: &PassageId) -> Result<Option<Passage>, Error> {
        self.passage(
            concat!(passage_rows!(), "s.current = p.revision AND ", shown!()),
            named_params! {
                ":id": id.revision.as_str(), ":number": id.number, ":subject": self.viewer.subject(),
            },
        )
    }

    /// A passage for this caller: of the current revision, or also of one that was replaced by another.
    pub(crate) fn passage_at(
        &self,
        id: &PassageId,
        now: i64,
        current: bool,
    ) -> Result<Option<Passage>, Error> {
        const CURRENT: &str = concat!(passage_rows!(), current!(), " AND ", shown!());
        const CITED: &str = concat!(passage_rows!(), citable!(), " AND ", shown!());
        self.passage(
            if current { CURRENT } else { CITED },
            named_params! {
                ":id": id.revision.as_str(), ":number": id.number, ":subject": self.viewer.subject(),
                ":now": now, ":latest": now.saturating_add(SKEW_MILLIS),
            },
        )
    }

    fn passage(
        &self,
        sql: &str,
        parameters: &[(&str, &dyn rusqlite::ToSql)],
    ) -> Result<Option<Passage>, Error> {
        let mut statement = self.db.prepare_cached(sql).sql()?;
        let mut rows = statement.query(parameters).sql()?;
        rows.next().sql()?.map(|row| read_passage(self.cell, self.db, row)).transpose()
    }

    /// Which revision of a source is current for this caller.
    pub(crate) fn source_head(&self, id: &SourceId, now: i64) -> Result<Option<SourceHead>, Error> {
        let mut statement = self
            .db
            .prepare_cached(concat!(
                "SELECT s.body, r.number, r.id, r.valid_from, s.expires_at, s.no_expiry
                 FROM sources AS s JOIN revisions AS r ON r.id = s.current
                 WHERE s.id = :id AND s.state = 1 AND r.valid_from <= :now
                   AND (s.expires_at IS NULL OR s.expires_at > :now) AND ",
                shown!()
            ))
            .sql()?;
        let subject = self.viewer.subject();
        let mut rows =
            statement.query(named_params! { ":id": id.as_str(), ":now": now, ":subject": subject }).sql()?;
        let Some(row) = rows.next().sql()? else { return Ok(None) };
        Ok(Some(SourceHead {
            id: id.clone(),
            title: source_body(self.cell, id.as_str(), blob_at(row, 0)?)?.0,
            revision: Revision::from_number(row.get(1).sql()?),
            revision_id: text_at(row, 2)?.parse().map_err(|_| Error::Damaged)?,
            valid_from: time_at(row, 3)?,
            expiry: expiry_at(row, 4)?,
            knowledge: self.state.epochs.knowledge,
        }))
    }
}

/// Whether a passage may be shown to a caller: as current, or as one of the past.
pub(crate) fn passage_stands(
    db: &Connection,
    subject: Option<&str>,
    id: &PassageId,
    at: i64,
    current: bool,
) -> Result<bool, Error> {
    macro_rules! one {
        ($condition:expr) => {
            concat!(
                "SELECT 1 FROM passages AS p JOIN revisions AS r ON r.id = p.revision
                   JOIN sources AS s ON s.id = p.source
                 WHERE p.revision = :id AND p.number = :number AND p.body IS NOT NULL AND ",
                $condition,
                " AND ",
                shown!()
            )
        };
    }
    let sql = if current { one!(current!()) } else { one!(citable!()) };
    let parameters = named_params! {
        ":id": id.revision.as_str(), ":number": id.number, ":now": at,
        ":latest": at.saturating_add(SKEW_MILLIS), ":subject": subject,
    };
    db.prepare_cached(sql).and_then(|mut statement| statement.exists(parameters)).sql()
}

fn source_body(cell: &Cell, id: &str, sealed: &[u8]) -> Result<(Title, Option<Content>), Error> {
    let plain = cell.owner_keys(id)?.sealer.open(source_place(&cell.tenant, id), sealed)?;
    let body: SourceBody = serde_json::from_slice(&plain).map_err(|_| Error::Damaged)?;
    let origin = body.origin.map(|text| Content::question(&text, usize::MAX)).transpose();
    Ok((body.title.parse().map_err(|_| Error::Damaged)?, origin.map_err(|_| Error::Damaged)?))
}

fn passage_body(
    cell: &Cell,
    source: &str,
    place: Place<'_>,
    sealed: &[u8],
) -> Result<(Content, Vec<Title>), Error> {
    let plain = cell.owner_keys(source)?.sealer.open(place, sealed)?;
    let body: PassageBody = serde_json::from_slice(&plain).map_err(|_| Error::Damaged)?;
    let headings = body.headings.iter().map(|text| text.parse().map_err(|_| Error::Damaged));
    let text = Content::question(&body.text, usize::MAX).map_err(|_| Error::Damaged)?;
    Ok((text, headings.collect::<Result<_, _>>()?))
}

/// The words of a passage's unsealed body, from which its vector is made.
pub(crate) fn passage_words(plain: &[u8]) -> Result<Zeroizing<String>, Error> {
    let body: PassageBody = serde_json::from_slice(plain).map_err(|_| Error::Damaged)?;
    Ok(Zeroizing::new(body.text))
}

fn expiry_at(row: &Row<'_>, column: usize) -> Result<Expiry, Error> {
    let end: Option<i64> = row.get(column).sql()?;
    Ok(match end {
        Some(end) => Expiry::At(Timestamp::from_millis(end)),
        None => Expiry::Never(decoded(&NoExpiryReason::ALL, row.get(column + 1).sql()?)?),
    })
}

fn digest_at(row: &Row<'_>, column: usize) -> Result<[u8; 32], Error> {
    blob_at(row, column)?.try_into().map_err(|_| Error::Damaged)
}

fn region_at(row: &Row<'_>, column: usize) -> Result<Region, Error> {
    serde_json::from_str(text_at(row, column)?).map_err(|_| Error::Damaged)
}

/// A passage from a row of `passage_rows!`, its words unsealed.
fn read_passage(cell: &Cell, db: &Connection, row: &Row<'_>) -> Result<Passage, Error> {
    let (revision, source) = (text_at(row, 0)?, text_at(row, 2)?);
    let number: u32 = row.get(1).sql()?;
    let place = passage_place(&cell.tenant, revision, number, "body");
    let (text, headings) = passage_body(cell, source, place, blob_at(row, 6)?)?;
    let current: Option<String> = row.get(14).sql()?;
    let superseded: Option<u32> = row.get(15).sql()?;
    let superseded = match superseded {
        Some(by) => Some((Revision::from_number(by), time_at(row, 16)?)),
        None => None,
    };
    Ok(Passage {
        id: PassageId { revision: revision.parse().map_err(|_| Error::Damaged)?, number },
        source: source.parse().map_err(|_| Error::Damaged)?,
        revision: Revision::from_number(row.get(3).sql()?),
        title: source_body(cell, source, blob_at(row, 7)?)?.0,
        headings,
        text,
        region: region_at(row, 4)?,
        document: digest_at(row, 8)?,
        audience: audience_of(db, source)?.unwrap_or(Audience::Groups(BTreeSet::new())),
        received_at: time_at(row, 9)?,
        valid_from: time_at(row, 10)?,
        expiry: expiry_at(row, 11)?,
        standing: register::standing(
            decoded(&SourceState::ALL, row.get(13).sql()?)?,
            current.as_deref() == Some(revision),
            superseded,
            time_at(row, 17)?,
        ),
        tokens: row.get(5).sql()?,
    })
}

/// Who may be shown a source; `None` for one that does not exist.
pub(crate) fn audience_of(db: &Connection, source: &str) -> Result<Option<Audience>, Error> {
    let audience: Option<u8> = db
        .prepare_cached("SELECT audience FROM sources WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([source], |row| row.get(0)).optional())
        .sql()?;
    match audience {
        None => Ok(None),
        Some(0) => Ok(Some(Audience::Tenant)),
        Some(_) => {
            let mut statement =
                db.prepare_cached("SELECT group_id FROM source_groups WHERE source = ?1").sql()?;
            let rows = statement.query_map([source], |row| row.get::<_, String>(0)).sql()?;
            let groups = rows.map(|id| id.sql()?.parse().map_err(|_| Error::Damaged));
            Ok(Some(Audience::Groups(groups.collect::<Result<_, Error>>()?)))
        }
    }
}

/// The sources whose current revision is searched.
pub(crate) fn active_sources(db: &Connection) -> Result<Vec<String>, Error> {
    let mut statement = db.prepare_cached("SELECT id FROM sources WHERE state = 1").sql()?;
    let rows = statement.query_map([], |row| row.get(0)).sql()?;
    rows.collect::<rusqlite::Result<_>>().sql()
}

/// What a search takes in of one source: revision, number, validity, receipt, terms, vector, words.
pub(crate) const PASSAGES_TO_SEARCH: &str = "SELECT p.revision, p.number, r.valid_from, s.expires_at, \
    r.received_at, p.terms, p.vector, p.body, s.body, p.seq FROM sources AS s \
    JOIN revisions AS r ON r.id = s.current JOIN passages AS p ON p.revision = s.current \
    WHERE s.id = ?1 AND s.state = 1 AND p.body IS NOT NULL ORDER BY p.number";

/// The terms of a row of [`PASSAGES_TO_SEARCH`], made anew from its words.
pub(crate) fn terms_of(cell: &Cell, row: &Row<'_>, source: &str) -> Result<Vec<String>, Error> {
    let (revision, number) = (text_at(row, 0)?, row.get::<_, u32>(1).sql()?);
    let place = passage_place(&cell.tenant, revision, number, "body");
    let (text, headings) = passage_body(cell, source, place, blob_at(row, 7)?)?;
    let (title, _) = source_body(cell, source, blob_at(row, 8)?)?;
    Ok(analyse_passage(title.expose(), headings.iter().map(Title::expose), text.expose()))
}
