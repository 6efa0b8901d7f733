//! Reading memories by id and listing them. Each is a memory read with its own event.

use merkwelt_authz::{Request, action};
use merkwelt_domain::freshness::{Fresh, admit};
use merkwelt_domain::{ConversationId, Interval, MemoryId, ReadId};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::{Cursor, Key, KindSet, Listing, PageSize, ScanQuery};
use merkwelt_store::record::{Found, IndexVersion, Listed, Record};

use crate::App;
use crate::error::{Attempt, Error, until_settled};
use crate::recall::{encode, tokens};
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;
use crate::view::{self, MemoriesView};

/// A listing of memories, parsed.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// Which kinds.
    pub kinds: KindSet,
    /// Only those that came from this conversation.
    pub conversation: Option<ConversationId>,
    /// Only what holds during this interval.
    pub interval: Option<Interval>,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// How many.
    pub limit: PageSize,
    /// The caller's own run.
    pub run: RunContext,
}

impl App {
    /// Reads one memory.
    ///
    /// # Errors
    /// [`Error::NotFound`] for what is unknown, foreign, or not current.
    pub async fn read_memory(
        &self,
        request: &Request,
        id: &MemoryId,
        run: &RunContext,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadMemory>(request).await?;
            let now = self.env.now();
            let found = self.backend.fetch(&allowed, &[Key::Memory(id.clone())], now).await?.pop().flatten();
            let fresh = match found {
                Some(Found::Memory(memory)) => admit(Record::Memory(memory), now, None).ok(),
                Some(
                    Found::Conversation(..)
                    | Found::Turn(_)
                    | Found::Pack(_)
                    | Found::Passage(_)
                    | Found::Source(_),
                )
                | None => None,
            };
            let fresh = fresh.into_iter().collect();
            let released = self.release_memories(&allowed, fresh, None, run, id.as_str().as_bytes()).await?;
            // What was not found is recorded as a read of nothing, for unknown and foreign ids alike.
            released.ok_or_else(|| Error::NotFound.into())
        })
    }

    /// Lists current memories, newest first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a cursor of another listing.
    pub async fn list_memories(&self, request: &Request, list: &ListRequest) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadMemory>(request).await?;
            let now = self.env.now();
            let listing =
                Listing::Memories { kinds: list.kinds.clone(), conversation: list.conversation.clone() };
            let query = ScanQuery {
                listing,
                after: list.after.clone(),
                limit: list.limit,
                interval: list.interval,
                now,
            };
            let page = self.backend.scan(&allowed, &query).await?;
            let fresh = page
                .records
                .into_iter()
                .filter_map(|listed| match listed {
                    Listed::Memory(memory) => admit(Record::Memory(memory), now, list.interval).ok(),
                    Listed::Turn(_) | Listed::Conversation(..) => None,
                })
                .collect();
            let next = Some(page.next.map(|cursor| cursor.as_str().to_owned()));
            let released = self.release_memories(&allowed, fresh, next, &list.run, b"list").await?;
            released.ok_or_else(|| Error::NotFound.into())
        })
    }

    /// Records the read and releases it. `next` is `None` for a read by id, which answers nothing if
    /// nothing was found, and `Some` for a listing, which may be empty.
    async fn release_memories(
        &self,
        allowed: &merkwelt_authz::Authorized<'_, action::ReadMemory>,
        fresh: Vec<Fresh<Record>>,
        next: Option<Option<String>>,
        run: &RunContext,
        request: &[u8],
    ) -> Result<Option<Released>, Attempt> {
        let id = ReadId::random(&*self.env);
        let is_listing = next.is_some();
        let empty = fresh.is_empty();
        let answer = MemoriesView {
            read_id: id.to_string(),
            as_of: self.env.now().to_string(),
            items: fresh.iter().map(|f| view::item(f.get(), None, allowed.scope())).collect(),
            next: next.flatten(),
        };
        let outgoing: Vec<_> = fresh
            .into_iter()
            .map(|fresh| Outgoing { record: Delivered::Current(fresh), score: None })
            .collect();
        let reading = Reading {
            id,
            kind: ReadKind::Memory,
            run,
            index: records(),
            top_k: 0,
            request,
            tokens: outgoing.iter().map(|out| tokens(out.record.record())).fold(0, u32::saturating_add),
            content_kept: "source",
            knowledge: None,
        };
        let released = self.release(allowed, reading, &outgoing, encode(&answer)?, None).await?;
        Ok((is_listing || !empty).then_some(released))
    }
}

/// Reads by key go to the records themselves, not to an index.
pub(crate) fn records() -> IndexVersion {
    IndexVersion { id: "records".to_owned(), build: 1 }
}
