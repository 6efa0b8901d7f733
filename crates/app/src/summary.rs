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
use crate::error::{Attempt, Conflict, Error, until_settled};
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
    /// What was marked as historical when it was made. Anything else that is not current now changed meanwhile, and
    /// the summary may say it as if it held.
    pub known_historical: RestsOn,
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
        let rests_on = still_current(&covered, &footings, &wanted.known_historical)?;
        let turn = Turn {
            conversation: conversation.id.clone(),
            number: 0,
            speaker: Speaker::Assistant,
            text: wanted.text.clone(),
            at: now,
            tokens: self.counter.count(wanted.text.expose()),
            expires_at: ends.unwrap_or_else(|| self.end_of_turn(&conversation, now)),
            rests_on,
            summary: Some(wanted.summary.clone()),
        };
        self.add_turn(&allowed, &conversation, (turn, None), idempotent, now).await
    }

    /// The turns a summary stands for. The last of them must be held; where the first are gone from a sitting, a
    /// former summary stands for them and is one of what it stands for.
    async fn covered(
        &self,
        pass: &Pass<'_, class::Read>,
        conversation: &Conversation,
        through: u32,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Attempt> {
        let mut turns = match conversation.retention {
            // A turn of a sitting that is over is not delivered any more, as if it were lost.
            Retention::Session => {
                let held = self.sitting(pass.scope().tenant(), &conversation.id, now);
                held.into_iter().filter(|turn| now < turn.expires_at).collect()
            }
            Retention::KeptDays(_) => self.turns_through(pass, &conversation.id, through, now).await?,
        };
        let first = turns.first().map_or(1, |turn| turn.number);
        let stands_for_lost = |turn: &Turn| turn.summary.as_ref().is_some_and(|of| of.through() + 1 >= first);
        let former = turns.iter().rev().find(|turn| stands_for_lost(turn)).cloned();
        turns.retain(|turn| turn.number <= through && turn.summary.is_none());
        if turns.last().is_none_or(|last| last.number != through) {
            return Err(Error::invalid("through", "is not the number of a turn that is held").into());
        }
        if first > 1 && conversation.retention == Retention::Session {
            let lost = "includes turns that are not held any more, and no summary stands for them";
            turns.push(former.ok_or_else(|| Error::invalid("through", lost))?);
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

    /// The newest summary, or the newest approved one, of a conversation that was just shown to be the subject's.
    pub(crate) async fn newest_summary(
        &self,
        pass: &Pass<'_, class::Read>,
        conversation: &Conversation,
        approved: bool,
        now: Timestamp,
    ) -> Result<Option<Turn>, Attempt> {
        if conversation.retention == Retention::Session {
            let turns = self.sitting(pass.scope().tenant(), &conversation.id, now);
            let counts = |of: &SummaryOf| of.approved() || !approved;
            return Ok(turns.into_iter().rev().find(|turn| turn.summary.as_ref().is_some_and(counts)));
        }
        let key = Key::Summary { of: conversation.id.clone(), approved };
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

/// What is current of all that the covered turns rest on. What is not must be known to the caller: a summary that
/// was made before a source changed would say the old as if it held. What is withheld from the caller cannot be known.
fn still_current(covered: &[Turn], footings: &Footings, known: &RestsOn) -> Result<RestsOn, Attempt> {
    let mut current = Vec::new();
    for turn in covered {
        for (basis, footing) in footings.of(turn) {
            if footing == Footing::Current {
                current.push(basis);
            } else if footings.withhold(turn) || !known.bases().contains(&basis) {
                return Err(Error::Conflict(Conflict::SourceChanged).into());
            }
        }
    }
    RestsOn::new(current).map_err(|reason| Error::invalid("through", reason).into())
}
