//! Citations that people resolve: the exact text of a passage, and whether its revision is still the current
//! one.

use merkwelt_authz::{Pass, Request, action, class};
use merkwelt_domain::freshness::{Standing, admit};
use merkwelt_domain::source::{Passage, PassageId, SourceHead};
use merkwelt_domain::{ReadId, Timestamp};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::Key;
use merkwelt_store::record::{Found, Record};

use crate::App;
use crate::error::{Attempt, Error, until_settled};
use crate::memory::records;
use crate::recall::encode;
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;
use crate::view::{self, CitationView, SupersededView};

impl App {
    /// Resolves a citation: the exact text, where it stands, and whether its revision is still the current one
    /// . It is a read of its own.
    ///
    /// # Errors
    /// [`Error::NotFound`] for what is unknown, not for this caller, withdrawn or deleted.
    pub async fn resolve_citation(
        &self,
        request: &Request,
        id: &PassageId,
        run: &RunContext,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::Cite>(request).await?;
            let now = self.env.now();
            let (passage, head) = self.cited(&allowed, id, now).await?;
            let superseded = successor(&passage, head.as_ref());
            let (read_id, cited) = (ReadId::random(&*self.env), id.to_string());
            let answer = CitationView {
                read_id: read_id.to_string(),
                as_of: now.to_string(),
                current: superseded.is_none(),
                superseded,
                item: view::item(&Record::Passage(passage.clone()), None, allowed.scope()),
            };
            let reading = Reading {
                id: read_id,
                kind: ReadKind::Document,
                run,
                index: records(),
                top_k: 0,
                request: cited.as_bytes(),
                tokens: passage.tokens,
                content_kept: "source",
                knowledge: head.map(|head| head.knowledge),
            };
            let record = match admit(Record::Passage(passage.clone()), now, None) {
                Ok(fresh) => Delivered::Current(fresh),
                Err(_) => Delivered::Past(Record::Passage(passage)),
            };
            let outgoing = [Outgoing { record, score: None }];
            self.release(&allowed, reading, &outgoing, encode(&answer)?, None).await
        })
    }

    /// A passage, and, if it is one of the past, which revision of its source is current. The two are read in one
    /// snapshot: between two, the passage could become current again.
    async fn cited(
        &self,
        pass: &Pass<'_, class::Read>,
        id: &PassageId,
        now: Timestamp,
    ) -> Result<(Passage, Option<SourceHead>), Attempt> {
        let mut keys = vec![Key::PassageAt(id.clone())];
        loop {
            let (mut passage, mut head) = (None, None);
            for found in self.backend.fetch(pass, &keys, now).await?.into_iter().flatten() {
                match found {
                    Found::Passage(found) => passage = Some(found),
                    Found::Source(found) => head = Some(found),
                    Found::Memory(_) | Found::Conversation(..) | Found::Turn(_) | Found::Pack(_) => {}
                }
            }
            let passage = passage.ok_or(Error::NotFound)?;
            if passage.standing == Standing::Active || keys.len() > 1 {
                return Ok((passage, head));
            }
            keys.push(Key::Source(passage.source));
        }
    }
}

/// What took the place of a passage's revision, if something did.
fn successor(passage: &Passage, head: Option<&SourceHead>) -> Option<SupersededView> {
    match passage.standing {
        Standing::Active => None,
        Standing::Superseded { at, .. } | Standing::Retracted { at } | Standing::Restricted { at } => {
            Some(view::superseded(at, head))
        }
    }
}
