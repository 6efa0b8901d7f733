//! Conversations: open, append, read, list, delete. A conversation is recorded with its owner before its
//! first turn; its turns stay in memory unless the caller asked to keep them.

use merkwelt_authz::{Pass, Request, Scope, action, class};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::freshness::{Fresh, admit};
use merkwelt_domain::{Content, ConversationId, PackId, ReadId, TenantId, Timestamp};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::analysis::turn_passage;
use merkwelt_store::change::{NewTurn, Outcome, Receipt, Write};
use merkwelt_store::query::{Cursor, Key, Listing, PageSize, ScanQuery, Vector};
use merkwelt_store::record::{Found, Listed, Record};

use crate::App;
use crate::error::{Attempt, Error, until_settled};
use crate::footing::{rested_on, turns as turns_among};
use crate::memory::records;
use crate::recall::encode;
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;
use crate::remember::IdempotentRequest;
use crate::view::{self, ConversationsView, TurnsView};

/// A turn, parsed.
#[derive(Debug, Clone)]
pub struct TurnRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// Who spoke.
    pub speaker: Speaker,
    /// What was said.
    pub text: Content,
    /// The revisions of sources it rests on.
    pub rests_on: RestsOn,
    /// A pack it rests on: all documents that were delivered in it.
    pub pack: Option<PackId>,
}

/// What became of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub number: u32,
    /// The receipt, if the turn is kept; a turn of the session layer leaves no trace on disk.
    pub receipt: Option<Receipt>,
}

/// One page of something, parsed.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// How many.
    pub limit: PageSize,
    /// The caller's own run.
    pub run: RunContext,
}

impl App {
    /// Appends a turn: to disk if the conversation is kept, else to the present sitting.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign conversation.
    pub async fn append_turn(
        &self,
        request: &Request,
        turn: &TurnRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Appended, Error> {
        until_settled!(self.try_append(request, turn, idempotent))
    }

    async fn try_append(
        &self,
        request: &Request,
        turn: &TurnRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Appended, Attempt> {
        let allowed = self.allow::<action::AppendTurn>(request).await?;
        let reader = self.allow::<action::ReadConversation>(request).await?;
        let now = self.env.now();
        let (conversation, _) = self.conversation_of(&reader, &turn.conversation, now).await?;
        let rests_on = self.basis_of(&reader, turn, now).await?;
        let vector = match conversation.retention {
            Retention::Session => None,
            Retention::KeptDays(_) => self.turn_vector(&reader, turn, now).await?,
        };
        let said = Turn {
            conversation: turn.conversation.clone(),
            number: 0,
            speaker: turn.speaker,
            text: turn.text.clone(),
            at: now,
            tokens: self.counter.count(turn.text.expose()),
            expires_at: self.end_of_turn(&conversation, now),
            rests_on,
            summary: None,
        };
        self.add_turn(&allowed, &conversation, (said, vector), idempotent, now).await
    }

    /// When a turn ends that is said now.
    pub(crate) fn end_of_turn(&self, conversation: &Conversation, now: Timestamp) -> Timestamp {
        match conversation.retention {
            Retention::Session => {
                Timestamp::from_millis(now.millis().saturating_add(self.settings.session.idle_ms_max))
            }
            Retention::KeptDays(days) => now.plus_days(days),
        }
    }

    /// Adds a turn where the conversation keeps its turns.
    pub(crate) async fn add_turn(
        &self,
        allowed: &Pass<'_, class::Write>,
        conversation: &Conversation,
        (turn, vector): (Turn, Option<Vector>),
        idempotent: Option<&IdempotentRequest>,
        now: Timestamp,
    ) -> Result<Appended, Attempt> {
        if conversation.retention == Retention::Session {
            let key = (allowed.scope().tenant().clone(), conversation.id.clone());
            let number = self.sessions.append(key, turn, idempotent, now).map_err(Error::Conflict)?;
            return Ok(Appended { number, receipt: None });
        }
        let new = NewTurn { turn, vector, opening: self.opening_key() };
        let receipt = self.write(allowed, vec![Write::Append(new)], idempotent, now).await?;
        Ok(Appended { number: appended_number(&receipt)?, receipt: Some(receipt) })
    }

    /// The vector of a turn to keep. It is made with the turn before, because "yes, on Thursday" alone means
    /// nothing.
    async fn turn_vector(
        &self,
        pass: &Pass<'_, class::Read>,
        turn: &TurnRequest,
        now: Timestamp,
    ) -> Result<Option<Vector>, Attempt> {
        if self.engine_for(pass.scope()).await.is_none() {
            return Ok(None);
        }
        let listing = Listing::TurnsBackwards(turn.conversation.clone());
        let limit = PageSize::new(1).unwrap_or_default();
        let query = ScanQuery { listing, after: None, limit, interval: None, now };
        let page = self.backend.scan(pass, &query).await?;
        let before = page.records.into_iter().find_map(listed_turn);
        let previous = before.as_ref().map(|turn| (turn.text.expose(), turn.at));
        let passage = turn_passage(previous, turn.text.expose(), now);
        match Content::question(&passage, usize::MAX) {
            Ok(passage) => Ok(self.passage_vector(pass.scope(), &passage).await),
            Err(_) => Ok(None),
        }
    }

    /// What a turn rests on: what its writer named, and the documents of the pack it named.
    async fn basis_of(
        &self,
        pass: &Pass<'_, class::Read>,
        turn: &TurnRequest,
        now: Timestamp,
    ) -> Result<RestsOn, Attempt> {
        let Some(pack) = &turn.pack else { return Ok(turn.rests_on.clone()) };
        let delivered = self.bases_of(pass, pack, now).await?;
        let named = turn.rests_on.bases().iter().cloned();
        RestsOn::new(named.chain(delivered)).map_err(|reason| Error::invalid("rests_on", reason).into())
    }

    /// A conversation of the scope's subject and the number of its kept turns.
    pub(crate) async fn conversation_of(
        &self,
        pass: &Pass<'_, class::Read>,
        id: &ConversationId,
        now: Timestamp,
    ) -> Result<(Conversation, u32), Attempt> {
        let found = self.backend.fetch(pass, &[Key::Conversation(id.clone())], now).await?.pop().flatten();
        match found {
            Some(Found::Conversation(conversation, n_turns)) => Ok((conversation, n_turns)),
            Some(
                Found::Memory(_) | Found::Turn(_) | Found::Pack(_) | Found::Passage(_) | Found::Source(_),
            )
            | None => Err(Error::NotFound.into()),
        }
    }

    /// Reads a conversation with a page of its turns, oldest first.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign conversation.
    pub async fn read_conversation(
        &self,
        request: &Request,
        id: &ConversationId,
        page: &PageRequest,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadConversation>(request).await?;
            let now = self.env.now();
            let (conversation, n_kept) = self.conversation_of(&allowed, id, now).await?;
            let (turns, next) = self.page_of_turns(&allowed, &conversation, page, now).await?;
            let n_turns = self.n_turns(allowed.scope(), &conversation, n_kept, now);
            let read_id = ReadId::random(&*self.env);
            let footings = self.footings(&allowed, rested_on(&turns), now).await?;
            let (turns, withheld): (Vec<_>, Vec<_>) =
                turns.into_iter().partition(|turn| !footings.withhold(turn));
            let fresh: Vec<_> =
                turns.into_iter().filter_map(|t| admit(Record::Turn(t), now, None).ok()).collect();
            let answer = TurnsView {
                read_id: read_id.to_string(),
                as_of: now.to_string(),
                conversation: view::conversation(&conversation, n_turns),
                turns: turns_among(fresh.iter().map(Fresh::get))
                    .map(|turn| view::turn(turn, &footings.of(turn)))
                    .collect(),
                n_withheld: u32::try_from(withheld.len()).unwrap_or(u32::MAX),
                next: next.map(|cursor| cursor.as_str().to_owned()),
            };
            let delivered = match conversation.retention {
                Retention::Session => Delivered::Sitting,
                Retention::KeptDays(_) => Delivered::Current,
            };
            let outgoing: Vec<_> =
                fresh.into_iter().map(|f| Outgoing { record: delivered(f), score: None }).collect();
            let mut reading = reading(read_id, &page.run, id.as_str().as_bytes(), &outgoing);
            reading.knowledge = footings.knowledge();
            self.release(&allowed, reading, &outgoing, encode(&answer)?, None).await
        })
    }

    /// A page of the turns of a conversation that was just shown to be the subject's, oldest first.
    pub(crate) async fn page_of_turns(
        &self,
        pass: &Pass<'_, class::Read>,
        conversation: &Conversation,
        page: &PageRequest,
        now: Timestamp,
    ) -> Result<(Vec<Turn>, Option<Cursor>), Attempt> {
        if conversation.retention == Retention::Session {
            return Ok((self.sitting(pass.scope().tenant(), &conversation.id, now), None));
        }
        let listing = Listing::Turns(conversation.id.clone());
        let (after, limit) = (page.after.clone(), page.limit);
        let found =
            self.backend.scan(pass, &ScanQuery { listing, after, limit, interval: None, now }).await?;
        Ok((found.records.into_iter().filter_map(listed_turn).collect(), found.next))
    }

    /// Lists the subject's conversations, newest first.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_conversations(&self, request: &Request, page: &PageRequest) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadConversation>(request).await?;
            let now = self.env.now();
            let query = ScanQuery {
                listing: Listing::Conversations,
                after: page.after.clone(),
                limit: page.limit,
                interval: None,
                now,
            };
            let found = self.backend.scan(&allowed, &query).await?;
            let read_id = ReadId::random(&*self.env);
            let one = |listed: &Listed| match listed {
                Listed::Conversation(conversation, n_turns) => {
                    let n_turns = self.n_turns(allowed.scope(), conversation, *n_turns, now);
                    Some(view::conversation(conversation, n_turns))
                }
                Listed::Memory(_) | Listed::Turn(_) => None,
            };
            let answer = ConversationsView {
                read_id: read_id.to_string(),
                as_of: now.to_string(),
                conversations: found.records.iter().filter_map(one).collect(),
                next: found.next.as_ref().map(|cursor| cursor.as_str().to_owned()),
            };
            let reading = reading(read_id, &page.run, b"conversations", &[]);
            self.release(&allowed, reading, &[], encode(&answer)?, None).await
        })
    }

    /// Deletes a conversation, its turns and the memories that came from it, and nothing else.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign conversation.
    pub async fn delete_conversation(
        &self,
        request: &Request,
        id: &ConversationId,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::DeleteConversation>(request).await?;
            let now = self.env.now();
            let write = Write::DeleteConversation { id: id.clone(), at: now };
            let receipt = self.write(&allowed, vec![write], idempotent, now).await?;
            self.answers.forget_conversation(allowed.scope().tenant(), id);
            self.sessions.forget(&(allowed.scope().tenant().clone(), id.clone()));
            Ok(receipt)
        })
    }

    /// How many turns a conversation has, wherever they are.
    pub(crate) fn n_turns(
        &self,
        scope: &Scope,
        conversation: &Conversation,
        n_kept: u32,
        now: Timestamp,
    ) -> u32 {
        match conversation.retention {
            Retention::KeptDays(_) => n_kept,
            Retention::Session => {
                let key = (scope.tenant().clone(), conversation.id.clone());
                u32::try_from(self.sessions.count(&key, now)).unwrap_or(u32::MAX)
            }
        }
    }

    /// Turns of the present sitting. The caller has just shown that the conversation is the subject's.
    pub(crate) fn sitting(&self, tenant: &TenantId, id: &ConversationId, now: Timestamp) -> Vec<Turn> {
        self.sessions.turns(&(tenant.clone(), id.clone()), now)
    }
}

pub(crate) fn reading<'a>(
    id: ReadId,
    run: &'a RunContext,
    request: &'a [u8],
    outgoing: &[Outgoing],
) -> Reading<'a> {
    Reading {
        id,
        kind: ReadKind::Memory,
        run,
        index: records(),
        top_k: 0,
        request,
        tokens: outgoing
            .iter()
            .map(|o| crate::recall::tokens(o.record.record()))
            .fold(0, u32::saturating_add),
        content_kept: "source",
        knowledge: None,
    }
}

pub(crate) fn listed_turn(listed: Listed) -> Option<Turn> {
    match listed {
        Listed::Turn(turn) => Some(turn),
        Listed::Memory(_) | Listed::Conversation(..) => None,
    }
}

fn appended_number(receipt: &Receipt) -> Result<u32, Attempt> {
    match receipt.outcomes.first() {
        Some(Outcome::Appended { number, .. }) => Ok(*number),
        Some(
            Outcome::Created { .. }
            | Outcome::Superseded { .. }
            | Outcome::Merged { .. }
            | Outcome::Retracted { .. }
            | Outcome::Opened { .. }
            | Outcome::ConversationDeleted { .. },
        )
        | None => Err(Error::Unavailable.into()),
    }
}
