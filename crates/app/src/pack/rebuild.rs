//! Making a delivered pack again, byte for byte, from its composition and the revisions that are still
//! kept. What was superseded since is part of the past and comes back; what is expired, restricted
//! or erased does not, and then the whole pack is gone: half a pack would be another pack.

use merkwelt_authz::{Pass, Request, action, class};
use merkwelt_domain::basis::{Basis, Footing};
use merkwelt_domain::memory::Revision;
use merkwelt_domain::{KnowledgeEpoch, MemoryId, PackId, ReadId, RevisionId, Timestamp};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::Key;
use merkwelt_store::record::{Found, Pack, Record};
use serde::{Deserialize, Serialize};

use super::fit::{Fitted, Line};
use super::render::{FORMAT, Section, Shown, block};
use super::view::PackView;
use crate::App;
use crate::error::{Attempt, Error, until_settled};
use crate::footing::{rested_on, turns};
use crate::memory::records;
use crate::recall::encode;
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;

/// One line of a composition: where it stands and which record it shows.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    section: Section,
    id: String,
    revision: u32,
    /// What was said of it then; it is part of the past like the words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// What is kept of a delivered pack: the answer without its texts, the places of its lines, and the digest
/// of the bytes. It is kept encrypted under the subject's key, so the plain digest is erasable (L-17).
#[derive(Debug, Serialize, Deserialize)]
struct Composition {
    format: u32,
    view: PackView,
    places: Vec<Place>,
    digest: Vec<u8>,
}

/// A pack that was made again.
#[derive(Clone, Default)]
struct Rebuilt {
    body: Vec<u8>,
    outgoing: Vec<Outgoing>,
    tokens: u32,
    /// The generation in which nothing of it is withheld.
    knowledge: Option<KnowledgeEpoch>,
}

/// The composition of a pack that is about to be delivered as `body`.
pub(crate) fn compose(mut view: PackView, fitted: &Fitted, body: &[u8]) -> Result<Vec<u8>, Attempt> {
    view.system.rules.clear();
    view.system.facts.clear();
    view.turn.clear();
    let places = fitted.lines.iter().map(place).collect();
    let digest = digest(body);
    encode(&Composition { format: FORMAT, view, places, digest })
}

fn place(line: &Line) -> Place {
    let (id, revision) = match line.out.record.record() {
        Record::Memory(memory) => (memory.id.to_string(), memory.revision.number()),
        Record::Turn(turn) => (turn.conversation.to_string(), turn.number),
        Record::Passage(passage) => (passage.id.to_string(), passage.revision.number()),
    };
    Place { section: line.section, id, revision, note: line.note.clone() }
}

fn digest(body: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, body).as_ref().to_vec()
}

impl App {
    /// A delivered pack, byte for byte, while its content is kept.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign pack, [`Error::NotRetained`] if part of it is gone.
    pub async fn read_pack(
        &self,
        request: &Request,
        id: &PackId,
        run: &RunContext,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadPack>(request).await?;
            let now = self.env.now();
            let found = self.backend.fetch(&allowed, &[Key::Pack(id.clone())], now).await?.pop().flatten();
            let rebuilt = match found {
                Some(Found::Pack(pack)) => Some(self.rebuild(&allowed, &pack).await?),
                Some(
                    Found::Memory(_)
                    | Found::Conversation(..)
                    | Found::Turn(_)
                    | Found::Passage(_)
                    | Found::Source(_),
                )
                | None => None,
            };
            let Rebuilt { body, outgoing, tokens, knowledge } = rebuilt.clone().unwrap_or_default();
            let reading = Reading {
                id: ReadId::random(&*self.env),
                kind: ReadKind::Memory,
                run,
                index: records(),
                top_k: 0,
                request: id.as_str().as_bytes(),
                tokens,
                content_kept: "pack",
                knowledge,
            };
            let released = self.release(&allowed, reading, &outgoing, body, None).await?;
            rebuilt.map(|_| released).ok_or_else(|| Error::NotFound.into())
        })
    }

    /// The revisions that a pack rests on: of its documents, and of its turns and summary where they were current
    /// when it was delivered. What was marked as historical in it was known to be.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign pack.
    pub(crate) async fn bases_of(
        &self,
        pass: &Pass<'_, class::Read>,
        id: &PackId,
        now: Timestamp,
    ) -> Result<Vec<Basis>, Attempt> {
        let found = self.backend.fetch(pass, &[Key::Pack(id.clone())], now).await?.pop().flatten();
        let Some(Found::Pack(pack)) = found else { return Err(Error::NotFound.into()) };
        let composition: Composition =
            serde_json::from_slice(&pack.composition).map_err(|_| Error::Unavailable)?;
        let named = composition.view.items.into_iter().flat_map(|item| {
            let cited = item.citation.map(|citation| (citation.source_id, citation.revision));
            let held =
                item.basis.rests_on.into_iter().filter(|footing| footing.state == Footing::Current.name());
            cited.into_iter().chain(held.map(|footing| (footing.source_id, footing.revision)))
        });
        let basis = |(source, revision): (String, u32)| {
            let source = source.parse().map_err(|_| Error::Unavailable)?;
            Ok(Basis { source, revision: Revision::from_number(revision) })
        };
        named.map(basis).collect()
    }

    async fn rebuild(
        &self,
        allowed: &merkwelt_authz::Authorized<'_, action::ReadPack>,
        pack: &Pack,
    ) -> Result<Rebuilt, Attempt> {
        let composition: Composition =
            serde_json::from_slice(&pack.composition).map_err(|_| Error::Unavailable)?;
        if composition.format != FORMAT {
            return Err(Error::NotRetained.into());
        }
        let keys = composition.places.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let found = self.backend.fetch(allowed, &keys, self.env.now()).await?;
        let records = found.into_iter().map(kept).collect::<Result<Vec<_>, _>>()?;
        let mut view = composition.view;
        let as_of: Timestamp = view.as_of.parse().map_err(|_| Error::Unavailable)?;
        let footings = self.footings(allowed, rested_on(turns(&records)), self.env.now()).await?;
        if footings.withhold_any(&records) {
            return Err(Error::NotRetained.into());
        }
        let placed: Vec<_> = composition.places.iter().zip(&records).collect();
        let of = |section| {
            let of_section = placed.iter().filter(|(place, _)| place.section == section);
            of_section.map(|(place, record)| Shown { record, note: place.note.as_deref() }).collect()
        };
        view.system.rules = block([(Section::Rules, of(Section::Rules))], as_of);
        view.system.facts = block([(Section::Facts, of(Section::Facts))], as_of);
        view.turn = block(Section::TURN.map(|section| (section, of(section))), as_of);
        let body = encode(&view)?;
        if digest(&body) != composition.digest {
            return Err(Error::NotRetained.into());
        }
        let past = |record| Outgoing { record: Delivered::Past(record), score: None };
        Ok(Rebuilt {
            body,
            outgoing: records.into_iter().map(past).collect(),
            tokens: view.tokens.total,
            knowledge: footings.withheld_unless(),
        })
    }
}

fn key(place: &Place) -> Result<Key, Attempt> {
    let damaged = |_| Error::Unavailable;
    if place.id.starts_with(MemoryId::PREFIX) {
        let id = place.id.parse().map_err(damaged)?;
        Ok(Key::MemoryAt(id, Revision::from_number(place.revision)))
    } else if place.id.starts_with(RevisionId::PREFIX) {
        // What was withdrawn or deleted since, or is not for this caller any more, does not come back.
        Ok(Key::PassageAt(place.id.parse().map_err(damaged)?))
    } else {
        Ok(Key::Turn(place.id.parse().map_err(damaged)?, place.revision))
    }
}

fn kept(found: Option<Found>) -> Result<Record, Attempt> {
    match found {
        Some(Found::Memory(memory)) => Ok(Record::Memory(memory)),
        Some(Found::Turn(turn)) => Ok(Record::Turn(turn)),
        Some(Found::Passage(passage)) => Ok(Record::Passage(passage)),
        Some(Found::Conversation(..) | Found::Pack(_) | Found::Source(_)) | None => {
            Err(Error::NotRetained.into())
        }
    }
}
