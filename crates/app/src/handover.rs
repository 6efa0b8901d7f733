//! A person changes the organisation. Organisations are tenants, and nothing passes from one to another
//! inside this service: one side hands over what its rule allows, as a read with its evidence, and the other takes
//! it in when it opens a conversation, if its own rule allows that.

use merkwelt_authz::{Request, Role, action};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::freshness::admit;
use merkwelt_domain::summary::{OrganisationSwitch, SummaryOf};
use merkwelt_domain::{Content, ConversationId, ReadId, SummaryRule, Timestamp};
use merkwelt_store::DirectoryChange;
use merkwelt_store::change::{NewTurn, Receipt, Write};
use merkwelt_store::record::Record;

use crate::App;
use crate::conversation::{PageRequest, reading};
use crate::error::{Attempt, Conflict, Error, until_settled};
use crate::footing::rested_on;
use crate::recall::encode;
use crate::record::{Delivered, Outgoing};
use crate::release::Released;
use crate::remember::IdempotentRequest;
use crate::summary::holds;
use crate::view::{self, HandOverView};

/// A summary from elsewhere, parsed.
#[derive(Debug, Clone)]
pub struct CarriedOver {
    /// The summary.
    pub text: Content,
    /// The rule that made it.
    pub rule: SummaryRule,
}

/// A conversation to open, parsed.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// How long its turns live.
    pub retention: Retention,
    /// What it goes on from.
    pub carried_over: Option<CarriedOver>,
}

impl App {
    /// Records a conversation of the subject.
    ///
    /// # Errors
    /// [`Error::Conflict`] if something is carried over and the tenant's rule does not allow it.
    pub async fn open_conversation(
        &self,
        request: &Request,
        wanted: &OpenRequest,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Receipt, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::OpenConversation>(request).await?;
            let owner = allowed.scope().subject().ok_or(Error::NotFound)?.clone();
            let now = self.env.now();
            let id = ConversationId::random(&*self.env);
            let conversation = Conversation { id, owner, retention: wanted.retention, opened_at: now };
            let carried = self.carried(request, wanted, &conversation, now).await?;
            let mut writes = vec![Write::Open(conversation.clone())];
            let (kept, sitting) = match wanted.retention {
                Retention::KeptDays(_) => (carried, None),
                Retention::Session => (None, carried),
            };
            writes.extend(
                kept.map(|turn| Write::Append(NewTurn { turn, vector: None, opening: self.opening_key() })),
            );
            let receipt = self.write(&allowed, writes, idempotent, now).await?;
            if let Some(turn) = sitting.filter(|_| !receipt.replayed) {
                self.add_turn(&allowed, &conversation, (turn, None), None, now).await?;
            }
            Ok(receipt)
        })
    }

    /// What is carried over, as the first turn of a conversation.
    async fn carried(
        &self,
        request: &Request,
        wanted: &OpenRequest,
        conversation: &Conversation,
        now: Timestamp,
    ) -> Result<Option<Turn>, Attempt> {
        let Some(carried) = &wanted.carried_over else { return Ok(None) };
        if request.caller().role() != Role::App {
            return Err(Error::invalid("carried_over", "only an application carries a summary over").into());
        }
        if self.switch_of(request).await? == OrganisationSwitch::StartNew {
            return Err(Error::Conflict(Conflict::Switch).into());
        }
        Ok(Some(Turn {
            conversation: conversation.id.clone(),
            number: 0,
            speaker: Speaker::Assistant,
            text: carried.text.clone(),
            at: now,
            tokens: self.counter.count(carried.text.expose()),
            expires_at: self.end_of_turn(conversation, now),
            rests_on: RestsOn::default(),
            summary: Some(SummaryOf::carried_over(carried.rule.clone())),
        }))
    }

    async fn switch_of(&self, request: &Request) -> Result<OrganisationSwitch, Attempt> {
        let allowed = self.allow::<action::ReadSwitch>(request).await?;
        Ok(self.backend.organisation_switch(&allowed).await?)
    }

    /// What goes along when a person changes the organisation.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn organisation_switch(&self, request: &Request) -> Result<OrganisationSwitch, Error> {
        until_settled!(self.switch_of(request))
    }

    /// Says what goes along from now on.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn set_organisation_switch(
        &self,
        request: &Request,
        wanted: OrganisationSwitch,
    ) -> Result<(), Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageDirectory>(request).await?;
            let change = DirectoryChange::SetSwitch(wanted);
            self.backend.change(&allowed, change, self.env.now()).await?;
            Ok(())
        })
    }

    /// What of a conversation may be carried to another organisation: its newest approved summary, or its turns.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or foreign conversation, [`Error::Conflict`] if the rule allows nothing or
    /// there is no approved summary that still holds.
    pub async fn hand_over(
        &self,
        request: &Request,
        id: &ConversationId,
        page: &PageRequest,
    ) -> Result<Released, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::HandOver>(request).await?;
            let now = self.env.now();
            let (conversation, n_kept) = self.conversation_of(&allowed, id, now).await?;
            let n_turns = self.n_turns(allowed.scope(), &conversation, n_kept, now);
            let rule = self.switch_of(request).await?;
            let (mut turns, next) = match rule {
                OrganisationSwitch::StartNew => return Err(Error::Conflict(Conflict::Switch).into()),
                OrganisationSwitch::ApprovedSummary => (
                    self.newest_summary(&allowed, &conversation, true, now).await?.into_iter().collect(),
                    None,
                ),
                OrganisationSwitch::Continue => {
                    self.page_of_turns(&allowed, &conversation, page, now).await?
                }
            };
            let footings = self.footings(&allowed, rested_on(&turns), now).await?;
            if rule == OrganisationSwitch::ApprovedSummary
                && !turns.first().is_some_and(|summary| holds(summary, &footings))
            {
                return Err(Error::Conflict(Conflict::NoSummary).into());
            }
            turns.retain(|turn| !footings.withhold(turn) && admit(turn.clone(), now, None).is_ok());
            let read_id = ReadId::random(&*self.env);
            let answer = HandOverView {
                read_id: read_id.to_string(),
                as_of: now.to_string(),
                rule: rule.name().to_owned(),
                conversation: view::conversation(&conversation, n_turns),
                turns: turns.iter().map(|turn| view::turn(turn, &footings.of(turn))).collect(),
                next: next.map(|cursor| cursor.as_str().to_owned()),
            };
            let delivered = match conversation.retention {
                Retention::Session => Delivered::Sitting,
                Retention::KeptDays(_) => Delivered::Current,
            };
            let fresh = turns.into_iter().filter_map(|turn| admit(Record::Turn(turn), now, None).ok());
            let outgoing: Vec<_> =
                fresh.map(|fresh| Outgoing { record: delivered(fresh), score: None }).collect();
            let mut reading = reading(read_id, &page.run, id.as_str().as_bytes(), &outgoing);
            reading.knowledge = footings.knowledge();
            self.release(&allowed, reading, &outgoing, encode(&answer)?, None).await
        })
    }
}
