//! Rows of content and their ciphertext. Words, slots, metadata, pointers, vectors and openings are sealed
//! under the owner's key; what stays in the clear are ids, times and small numbers.

use std::borrow::Cow;

use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{
    Author, Expiry, Kind, Memory, Metadata, NoExpiryReason, Owner, Particulars, Pointer, Revision, Statement,
};
use merkwelt_domain::{Content, ConversationId, TenantId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::record::Pack;
use rusqlite::Row;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::cell::Cell;
use crate::crypt::{OwnerKeys, Place};
use crate::error::Sql as _;

/// The position of a value in its type's closed list is what a row holds of it.
pub(crate) fn code_of<T: Copy + PartialEq>(all: &[T], value: T) -> u8 {
    let position = all.iter().position(|known| *known == value);
    // The lists have a handful of members; 255 is no position and is refused when it is read.
    position.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

pub(crate) fn decoded<T: Copy>(all: &[T], code: u8) -> Result<T, Error> {
    all.get(usize::from(code)).copied().ok_or(Error::Damaged)
}

/// The code of a kind; also its bit in the kind masks of queries.
pub(crate) fn kind_code(kind: Kind) -> u8 {
    code_of(&Kind::ALL, kind)
}

pub(crate) fn kind_of(code: u8) -> Result<Kind, Error> {
    decoded(&Kind::ALL, code)
}

/// `owner_kind` and `owner`.
pub(crate) fn owner_columns<'a>(tenant: &'a TenantId, owner: &'a Owner) -> (u8, &'a str) {
    match owner {
        Owner::Subject(id) => (0, id.as_str()),
        Owner::Group(id) => (1, id.as_str()),
        Owner::Tenant => (2, tenant.as_str()),
    }
}

fn owner_of(kind: u8, id: &str) -> Result<Owner, Error> {
    match kind {
        0 => Ok(Owner::Subject(id.parse().map_err(|_| Error::Damaged)?)),
        1 => Ok(Owner::Group(id.parse().map_err(|_| Error::Damaged)?)),
        2 => Ok(Owner::Tenant),
        _ => Err(Error::Damaged),
    }
}

/// What of a memory is sealed in `body`.
#[derive(Serialize, Deserialize)]
struct Body<'a> {
    text: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Cow<'a, serde_json::Map<String, serde_json::Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uri: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolve: Option<Cow<'a, str>>,
}

pub(crate) fn body_of(statement: &Statement) -> Result<Zeroizing<Vec<u8>>, Error> {
    let metadata = statement.metadata().expose();
    let body = Body {
        text: statement.text().expose().into(),
        slot: statement.slot().map(|slot| slot.expose().into()),
        metadata: (!metadata.is_empty()).then_some(Cow::Borrowed(metadata)),
        uri: statement.pointer().map(|pointer| pointer.uri().into()),
        resolve: statement.pointer().map(|pointer| pointer.resolve().into()),
    };
    serde_json::to_vec(&body).map(Zeroizing::new).map_err(|_| Error::Damaged)
}

/// The words of a body.
pub(crate) fn open_text(plain: &[u8]) -> Result<Zeroizing<String>, Error> {
    let body: Body<'_> = serde_json::from_slice(plain).map_err(|_| Error::Damaged)?;
    Ok(Zeroizing::new(body.text.into_owned()))
}

/// The metadata of a body; the words are passed over.
pub(crate) fn open_metadata(
    plain: &[u8],
) -> Result<Option<serde_json::Map<String, serde_json::Value>>, Error> {
    #[derive(Deserialize)]
    struct Tagged {
        #[serde(default)]
        metadata: Option<serde_json::Map<String, serde_json::Value>>,
    }
    serde_json::from_slice(plain).map(|body: Tagged| body.metadata).map_err(|_| Error::Damaged)
}

/// Where a memory's column stands.
pub(crate) fn memory_place<'a>(
    tenant: &'a TenantId,
    id: &'a str,
    revision: u32,
    column: &'static str,
) -> Place<'a> {
    Place { tenant: tenant.as_str(), table: "memories", row: id, revision, column }
}

/// Where a turn's column stands; the turn's number takes the place of a revision.
pub(crate) fn turn_place<'a>(
    tenant: &'a TenantId,
    conversation: &'a str,
    number: u32,
    column: &'static str,
) -> Place<'a> {
    Place { tenant: tenant.as_str(), table: "turns", row: conversation, revision: number, column }
}

/// Where a row without revisions stands.
pub(crate) fn plain_place<'a>(tenant: &'a TenantId, table: &'static str, id: &'a str) -> Place<'a> {
    Place { tenant: tenant.as_str(), table, row: id, revision: 0, column: "body" }
}

/// The columns [`read_memory`] reads, in its order.
pub(crate) const MEMORY_COLUMNS: &str = "id, revision, owner_kind, owner, kind, author, valid_from, \
    expires_at, no_expiry, written_at, written_by, conversation, tokens, standing, standing_at, \
    superseded_by, body";

pub(crate) fn text_at<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, Error> {
    row.get_ref(column).sql()?.as_str().map_err(|_| Error::Damaged)
}

fn text_or_null<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, Error> {
    row.get_ref(column).sql()?.as_str_or_null().map_err(|_| Error::Damaged)
}

pub(crate) fn blob_at<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], Error> {
    row.get_ref(column).sql()?.as_blob().map_err(|_| Error::Damaged)
}

pub(crate) fn time_at(row: &Row<'_>, column: usize) -> Result<Timestamp, Error> {
    Ok(Timestamp::from_millis(row.get(column).sql()?))
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Damaged)
}

/// A memory from a row of [`MEMORY_COLUMNS`], its content unsealed.
pub(crate) fn read_memory(cell: &Cell, row: &Row<'_>) -> Result<Memory, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 3)?);
    let revision: u32 = row.get(1).sql()?;
    let keys = cell.owner_keys(owner)?;
    let place = memory_place(&cell.tenant, id, revision, "body");
    let plain = keys.sealer.open(place, blob_at(row, 16)?)?;
    let body: Body<'_> = serde_json::from_slice(&plain).map_err(|_| Error::Damaged)?;
    let statement = statement_of(row, &body)?;
    let conversation: Option<String> = row.get(11).sql()?;
    Ok(Memory {
        id: parsed(id)?,
        revision: Revision::from_number(revision),
        owner: owner_of(row.get(2).sql()?, owner)?,
        statement,
        written_at: time_at(row, 9)?,
        written_by: parsed(text_at(row, 10)?)?,
        conversation: conversation.as_deref().map(parsed).transpose()?,
        tokens: row.get(12).sql()?,
        standing: standing_of(row)?,
    })
}

fn statement_of(row: &Row<'_>, body: &Body<'_>) -> Result<Statement, Error> {
    let valid_from = time_at(row, 6)?;
    let end: Option<i64> = row.get(7).sql()?;
    let expiry = match end {
        Some(end) => Expiry::At(Timestamp::from_millis(end)),
        None => Expiry::Never(decoded(&NoExpiryReason::ALL, row.get(8).sql()?)?),
    };
    let pointer = match (&body.uri, &body.resolve) {
        (Some(uri), Some(resolve)) => Some(Pointer::new(uri, resolve).map_err(|_| Error::Damaged)?),
        _ => None,
    };
    let metadata = body.metadata.as_deref().cloned().unwrap_or_default();
    let parts = Particulars {
        slot: body.slot.as_deref().map(parsed).transpose()?,
        metadata: Metadata::new(metadata).map_err(|_| Error::Damaged)?,
        pointer,
        valid_from: None,
        expiry: None,
    };
    let text = Content::question(&body.text, usize::MAX).map_err(|_| Error::Damaged)?;
    let (kind, author) = (kind_of(row.get(4).sql()?)?, decoded(&Author::ALL, row.get(5).sql()?)?);
    Statement::recorded(kind, text, author, parts, valid_from, expiry).map_err(|_| Error::Damaged)
}

fn standing_of(row: &Row<'_>) -> Result<Standing, Error> {
    let code: u8 = row.get(13).sql()?;
    if code == 0 {
        return Ok(Standing::Active);
    }
    let at = time_at(row, 14)?;
    match code {
        1 => Ok(Standing::Superseded { by: Revision::from_number(row.get(15).sql()?), at }),
        2 => Ok(Standing::Retracted { at }),
        3 => Ok(Standing::Restricted { at }),
        _ => Err(Error::Damaged),
    }
}

/// The columns [`read_turn`] reads, in its order.
pub(crate) const TURN_COLUMNS: &str =
    "conversation, number, owner, speaker, at, expires_at, tokens, body, rests_on, summary";

/// What a turn rests on, as a column: its bases with a space between, or nothing.
pub(crate) fn rests_on_column(rests_on: &RestsOn) -> Option<String> {
    let bases: Vec<String> = rests_on.bases().iter().map(ToString::to_string).collect();
    (!bases.is_empty()).then(|| bases.join(" "))
}

fn rests_on_of(column: Option<&str>) -> Result<RestsOn, Error> {
    let bases = column.into_iter().flat_map(|text| text.split(' '));
    let bases = bases.map(parsed).collect::<Result<Vec<_>, _>>()?;
    RestsOn::new(bases).map_err(|_| Error::Damaged)
}

/// A turn from a row of [`TURN_COLUMNS`], its text unsealed.
pub(crate) fn read_turn(cell: &Cell, row: &Row<'_>) -> Result<Turn, Error> {
    let (conversation, owner) = (text_at(row, 0)?, text_at(row, 2)?);
    let number: u32 = row.get(1).sql()?;
    let keys = cell.owner_keys(owner)?;
    let plain = keys.sealer.open(turn_place(&cell.tenant, conversation, number, "body"), blob_at(row, 7)?)?;
    let text = std::str::from_utf8(&plain).map_err(|_| Error::Damaged)?;
    Ok(Turn {
        conversation: parsed(conversation)?,
        number,
        speaker: decoded(&Speaker::ALL, row.get(3).sql()?)?,
        text: Content::question(text, usize::MAX).map_err(|_| Error::Damaged)?,
        at: time_at(row, 4)?,
        tokens: row.get(6).sql()?,
        expires_at: time_at(row, 5)?,
        rests_on: rests_on_of(text_or_null(row, 8)?)?,
        summary: text_or_null(row, 9)?.map(parsed).transpose()?,
    })
}

/// The columns [`read_conversation`] reads, in its order. `:now` is bound: only turns that hold are counted.
pub(crate) const CONVERSATION_COLUMNS: &str = "id, owner, keep_days, opened_at, \
    (SELECT count(*) FROM turns WHERE conversation = conversations.id AND at <= :now AND expires_at > :now)";

pub(crate) fn read_conversation(row: &Row<'_>) -> Result<(Conversation, u32), Error> {
    let keep_days: Option<u32> = row.get(2).sql()?;
    let conversation = Conversation {
        id: parsed::<ConversationId>(text_at(row, 0)?)?,
        owner: parsed(text_at(row, 1)?)?,
        retention: keep_days.map_or(Retention::Session, Retention::KeptDays),
        opened_at: time_at(row, 3)?,
    };
    Ok((conversation, row.get(4).sql()?))
}

/// A pack from `id, owner, read_id, at, expires_at, body`.
pub(crate) fn read_pack(cell: &Cell, row: &Row<'_>) -> Result<Pack, Error> {
    let (id, owner) = (text_at(row, 0)?, text_at(row, 1)?);
    let keys = cell.owner_keys(owner)?;
    let plain = keys.sealer.open(plain_place(&cell.tenant, "packs", id), blob_at(row, 5)?)?;
    Ok(Pack {
        id: parsed(id)?,
        read_id: parsed(text_at(row, 2)?)?,
        at: time_at(row, 3)?,
        composition: plain.to_vec(),
        expires_at: time_at(row, 4)?,
    })
}

/// A vector as little-endian `f32`, sealed like any content: it is personal data like the text.
pub(crate) fn seal_vector(
    cell: &Cell,
    keys: &OwnerKeys,
    place: Place<'_>,
    values: &[f32],
) -> Result<Vec<u8>, Error> {
    let mut plain = Zeroizing::new(Vec::with_capacity(values.len() * 4));
    for value in values {
        plain.extend_from_slice(&value.to_le_bytes());
    }
    keys.sealer.seal(cell.env.as_ref(), place, &plain)
}

pub(crate) fn open_vector(keys: &OwnerKeys, place: Place<'_>, sealed: &[u8]) -> Result<Vec<f32>, Error> {
    let mut values = Vec::new();
    vector_of(&keys.sealer.open(place, sealed)?, &mut values)?;
    Ok(values)
}

/// The components of an opened vector, in place of what `values` held.
pub(crate) fn vector_of(plain: &[u8], values: &mut Vec<f32>) -> Result<(), Error> {
    let (words, rest) = plain.as_chunks::<4>();
    values.clear();
    values.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
    if rest.is_empty() { Ok(()) } else { Err(Error::Damaged) }
}
