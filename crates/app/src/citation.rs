//! Citations that people resolve: the exact text of a passage, and whether its revision is still the current
//! one.

use merkwelt_authz::{Request, action};
use merkwelt_domain::freshness::{Standing, admit};
use merkwelt_domain::source::{Passage, PassageId};
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
            let keys = [Key::PassageAt(id.clone())];
            let passage = match self.backend.fetch(&allowed, &keys, now).await?.pop().flatten() {
                Some(Found::Passage(passage)) => passage,
                Some(
                    Found::Memory(_)
                    | Found::Conversation(..)
                    | Found::Turn(_)
                    | Found::Pack(_)
                    | Found::Source(_),
                )
                | None => return Err(Error::NotFound.into()),
            };
            let superseded = self.successor(&allowed, &passage, now).await?;
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
                knowledge: None,
            };
            let record = match admit(Record::Passage(passage.clone()), now, None) {
                Ok(fresh) => Delivered::Current(fresh),
                Err(_) => Delivered::Past(Record::Passage(passage)),
            };
            let outgoing = [Outgoing { record, score: None }];
            self.release(&allowed, reading, &outgoing, encode(&answer)?, None).await
        })
    }

    /// What took the place of a passage's revision, if something did.
    async fn successor(
        &self,
        pass: &merkwelt_authz::Pass<'_, merkwelt_authz::class::Read>,
        passage: &Passage,
        now: Timestamp,
    ) -> Result<Option<SupersededView>, Attempt> {
        let since = match passage.standing {
            Standing::Active => return Ok(None),
            Standing::Superseded { at, .. } | Standing::Retracted { at } | Standing::Restricted { at } => at,
        };
        let head = self.head_of(pass, &passage.source, now).await?;
        Ok(Some(view::superseded(since, head.as_ref())))
    }
}
