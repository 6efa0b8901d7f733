//! Summaries of conversations: written by the caller's own rule, never authoritative, and not delivered any more
//! once a source changes that something in them rests on.

use merkwelt_authz::{Pass, Request, Role, action, class};
use merkwelt_domain::basis::{Footing, RestsOn};
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::summary::SummaryOf;
use merkwelt_domain::{Content, ConversationId, Timestamp};
use merkwelt_store::query::{Key, Listing, PageSize, ScanQuery};
use merkwelt_store::record::Found;

use crate::App;
use crate::conversation::{Appended, listed_turn};
use crate::error::{Attempt, Error, until_settled};
use crate::footing::{Footings, rested_on};
use crate::remember::IdempotentRequest;

/// A summary to keep, parsed.
#[derive(Debug, Clone)]
pub struct SummaryRequest {
    /// The conversation.
    pub conversation: ConversationId,
    /// The summary.
    pub text: Content,
    /// The turns it stands for, and the rule that made it.
    pub summary: SummaryOf,
}

impl App {
    /// Keeps a summary of a conversation. The newest one counts.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign conversation; [`Error::Invalid`] if the last turn it stands for
    /// is not held, or an agent approves.
    pub async fn sum_up(
        &self,
        request: &Request,
        wanted: &SummaryRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Appended, Error> {
        until_settled!(self.try_sum_up(request, wanted, idempotent))
    }

    async fn try_sum_up(
        &self,
        request: &Request,
        wanted: &SummaryRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Appended, Attempt> {
        let allowed = self.allow::<action::AppendTurn>(request).await?;
        let reader = self.allow::<action::ReadConversation>(request).await?;
        if wanted.summary.approved() && request.caller().role() != Role::App {
            return Err(Error::invalid("approved", "only an application approves a summary").into());
        }
        let now = self.env.now();
        let (conversation, _) = self.conversation_of(&reader, &wanted.conversation, now).await?;
        let covered = self.covered(&reader, &conversation, wanted.summary.through(), now).await?;
        let footings = self.footings(&reader, rested_on(&covered), now).await?;
        // It ends with the first turn it stands for.
        let ends = covered.iter().map(|turn| turn.expires_at).min();
        let turn = Turn {
            conversation: conversation.id.clone(),
            number: 0,
            speaker: Speaker::Assistant,
            text: wanted.text.clone(),
            at: now,
            tokens: self.counter.count(wanted.text.expose()),
            expires_at: ends.unwrap_or_else(|| self.end_of_turn(&conversation, now)),
            rests_on: still_current(&covered, &footings)?,
            summary: Some(wanted.summary.clone()),
        };
        self.add_turn(&allowed, &conversation, (turn, None), idempotent, now).await
    }

    /// The turns a summary stands for. The last of them must be held.
    async fn covered(
        &self,
        pass: &Pass<'_, class::Read>,
        conversation: &Conversation,
        through: u32,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Attempt> {
        let mut turns = match conversation.retention {
            Retention::Session => self.sitting(pass.scope().tenant(), &conversation.id, now),
            Retention::KeptDays(_) => self.turns_through(pass, &conversation.id, through, now).await?,
        };
        turns.retain(|turn| turn.number <= through && turn.summary.is_none());
        if turns.last().is_none_or(|last| last.number != through) {
            return Err(Error::invalid("through", "is not the number of a turn that is held").into());
        }
        Ok(turns)
    }

    async fn turns_through(
        &self,
        pass: &Pass<'_, class::Read>,
        id: &ConversationId,
        through: u32,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Attempt> {
        let limit = PageSize::new(PageSize::MAX).unwrap_or_default();
        let (mut turns, mut after) = (Vec::new(), None);
        loop {
            let listing = Listing::Turns(id.clone());
            let query = ScanQuery { listing, after, limit, interval: None, now };
            let page = self.backend.scan(pass, &query).await?;
            turns.extend(page.records.into_iter().filter_map(listed_turn));
            after = page.next;
            if after.is_none() || turns.last().is_some_and(|last: &Turn| last.number >= through) {
                return Ok(turns);
            }
        }
    }

    /// The newest summary of a conversation that was just shown to be the subject's.
    pub(crate) async fn newest_summary(
        &self,
        pass: &Pass<'_, class::Read>,
        conversation: &Conversation,
        now: Timestamp,
    ) -> Result<Option<Turn>, Attempt> {
        if conversation.retention == Retention::Session {
            let turns = self.sitting(pass.scope().tenant(), &conversation.id, now);
            return Ok(turns.into_iter().rev().find(|turn| turn.summary.is_some()));
        }
        let key = Key::Summary(conversation.id.clone());
        Ok(match self.backend.fetch(pass, &[key], now).await?.pop().flatten() {
            Some(Found::Turn(turn)) => Some(turn),
            Some(
                Found::Memory(_)
                | Found::Conversation(..)
                | Found::Pack(_)
                | Found::Passage(_)
                | Found::Source(_),
            )
            | None => None,
        })
    }
}

/// Whether everything that a summary rests on is current. If not, it is invalid until a new one is kept.
pub(crate) fn holds(summary: &Turn, footings: &Footings) -> bool {
    footings.of(summary).iter().all(|(_, footing)| *footing == Footing::Current)
}

/// What is current now of all that the covered turns rest on. What was historical already was marked when the
/// summary was made, and cannot become old again.
fn still_current(covered: &[Turn], footings: &Footings) -> Result<RestsOn, Attempt> {
    let all = covered.iter().flat_map(|turn| footings.of(turn));
    let current = all.filter(|(_, footing)| *footing == Footing::Current).map(|(basis, _)| basis);
    RestsOn::new(current).map_err(|reason| Error::invalid("through", reason).into())
}
