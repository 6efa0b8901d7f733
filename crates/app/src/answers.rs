//! The answer cache: an answer is given again only if every source it rested on passes for the present caller
//! . A time limit alone is never sufficient, and the commit of the read event
//! compares the generation of knowledge once more, so nothing that was revoked meanwhile leaves.

use merkwelt_authz::{Pass, Request, Role, action, class};
use merkwelt_domain::basis::Basis;
use merkwelt_domain::source::{SourceHead, SourceState};
use merkwelt_domain::{Content, ConversationId, KnowledgeEpoch, ReadId, SourceId, Timestamp};
use merkwelt_ledger::read::ReadKind;
use merkwelt_ledger::token::Token;
use merkwelt_store::query::{Key, Vector};
use merkwelt_store::record::{Found, IndexVersion};

use crate::App;
use crate::answer_cache::{Address, Kept};
use crate::error::{Attempt, Error, until_settled};
use crate::recall::encode;
use crate::record::{Reading, RunContext};
use crate::release::Released;
use crate::view::{AnswerSourceView, AnswerView};

/// Whether others may be given an answer for whom all its sources pass too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerAudience {
    /// Only the subject it was made for. The default.
    Subject,
    /// Everybody in the tenant for whom every source passes: the answer rests on sources and on nothing that is
    /// known of a person.
    Shared,
}

/// What an answer was made by. Answers of another model or prompt are other answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Maker {
    /// The model.
    pub model: Token,
    /// The version of the prompt.
    pub prompt: Token,
}

/// An answer to keep, parsed.
#[derive(Debug, Clone)]
pub struct AnswerRequest {
    /// The question it answers.
    pub question: Content,
    /// The answer.
    pub answer: Content,
    /// What it rests on; at least one source.
    pub sources: Vec<Basis>,
    /// For whom it is.
    pub audience: AnswerAudience,
    /// The conversation it was given in; then it is given again there only.
    pub conversation: Option<ConversationId>,
    /// What made it.
    pub maker: Maker,
}

/// A look for a kept answer, parsed.
#[derive(Debug, Clone)]
pub struct LookUpRequest {
    /// The question.
    pub question: Content,
    /// What would make the answer.
    pub maker: Maker,
    /// The conversation it is asked in.
    pub conversation: Option<ConversationId>,
    /// The caller's own run.
    pub run: RunContext,
}

/// Why no kept answer is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Miss {
    /// None is kept for this question.
    Unknown,
    /// It is too old, or claims to be from the future.
    Age,
    /// A source it rests on was withdrawn, deleted, or has ended.
    Withdrawn,
    /// A source it rests on is not for this caller any more.
    Group,
    /// A source it rests on has another revision now.
    StaleRevision,
    /// Sources or rights of the tenant changed since.
    Epoch,
}

impl Miss {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Unknown, Self::Age, Self::Withdrawn, Self::Group, Self::StaleRevision, Self::Epoch];

    /// The name on the wire and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Age => "age",
            Self::Withdrawn => "withdrawn",
            Self::Group => "group",
            Self::StaleRevision => "stale_revision",
            Self::Epoch => "epoch",
        }
    }
}

/// What a look for a kept answer gives.
#[derive(Debug, Clone)]
pub enum LookedUp {
    /// The answer, released like every content.
    Hit(Released),
    /// None, and why. Only the trusted backend is told more than that there is none.
    Miss(Option<Miss>),
}

impl App {
    /// Keeps an answer. Every source it names must be current and for this caller now.
    ///
    /// # Errors
    /// [`Error::Invalid`] names a source that is not; unknown and foreign ones are alike.
    pub async fn store_answer(
        &self,
        request: &Request,
        wanted: &AnswerRequest,
    ) -> Result<KnowledgeEpoch, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::StoreAnswer>(request).await?;
            if wanted.audience == AnswerAudience::Shared && request.caller().role() == Role::Agent {
                let reason = "an agent keeps answers for the subject only: what it says may rest on a person";
                return Err(Error::invalid("audience", reason).into());
            }
            let now = self.env.now();
            let shared = wanted.audience == AnswerAudience::Shared;
            if let Some(id) = &wanted.conversation {
                if shared {
                    let reason =
                        "cannot be named with a shared audience: what was said in it is the subject's";
                    return Err(Error::invalid("conversation", reason).into());
                }
                self.conversation_of(&allowed, id, now).await?;
            }
            let mut knowledge = None;
            for basis in &wanted.sources {
                let head = self.head_of(&allowed, &basis.source, now).await?;
                let current = head.filter(|head| head.revision == basis.revision);
                let current = current.ok_or_else(|| Error::invalid("sources", NOT_CURRENT))?;
                if knowledge.is_some_and(|known| known != current.knowledge) {
                    return Err(Attempt::Moved);
                }
                knowledge = Some(current.knowledge);
            }
            let knowledge =
                knowledge.ok_or_else(|| Error::invalid("sources", "must name at least one source"))?;
            let kept = Kept {
                answer: wanted.answer.clone(),
                sources: wanted.sources.clone(),
                knowledge,
                at: now,
                vector: self
                    .question_vector(allowed.scope(), &wanted.question)
                    .await
                    .map(|(vector, _)| vector),
            };
            let address = if shared {
                self.answers.shared_address(allowed.scope(), &wanted.maker)
            } else {
                self.answers.own_address(allowed.scope(), wanted.conversation.as_ref(), &wanted.maker)
            };
            self.answers.put(address, &wanted.question, kept, now);
            Ok(knowledge)
        })
    }

    /// Looks for a kept answer that is still right for this caller.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn look_up_answer(&self, request: &Request, wanted: &LookUpRequest) -> Result<LookedUp, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::LookUpAnswer>(request).await?;
            let now = self.env.now();
            let vector =
                self.question_vector(allowed.scope(), &wanted.question).await.map(|(vector, _)| vector);
            let (mut told, trusted) = (Miss::Unknown, request.caller().role() == Role::App);
            for address in self.addresses(&allowed, wanted, now).await? {
                let Some(kept) = self.find_answer(&address, wanted, vector.as_ref()) else { continue };
                match self.check_answer(request, &allowed, &kept, now).await? {
                    Ok(heads) => return self.release_answer(&allowed, wanted, &kept, &heads, now).await,
                    Err(miss) => {
                        // Generations, revisions and ages only rise. Whether a source is shown depends on who asks,
                        // so what is kept for others stays.
                        let for_good = matches!(miss, Miss::Age | Miss::StaleRevision | Miss::Epoch);
                        if for_good || !address.is_shared() {
                            self.answers.forget(&address, &kept);
                        }
                        told = miss;
                    }
                }
            }
            Ok(LookedUp::Miss(trusted.then_some(told)))
        })
    }

    /// Where to look, the nearest first.
    async fn addresses(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &LookUpRequest,
        now: Timestamp,
    ) -> Result<Vec<Address>, Attempt> {
        let own = |conversation| self.answers.own_address(pass.scope(), conversation, &wanted.maker);
        let mut addresses = vec![own(None), self.answers.shared_address(pass.scope(), &wanted.maker)];
        if let Some(id) = &wanted.conversation {
            self.conversation_of(pass, id, now).await?;
            addresses.insert(0, own(Some(id)));
        }
        Ok(addresses)
    }

    fn find_answer(
        &self,
        address: &Address,
        wanted: &LookUpRequest,
        vector: Option<&Vector>,
    ) -> Option<Kept> {
        self.answers.exact(address, &wanted.question).or_else(|| {
            let (vector, least) = (vector?, self.settings.answers.cosine_min?);
            self.answers.near(address, vector, least)
        })
    }

    /// Every condition of R-055, the most telling reason first.
    async fn check_answer(
        &self,
        request: &Request,
        pass: &Pass<'_, class::Read>,
        kept: &Kept,
        now: Timestamp,
    ) -> Result<Result<Vec<SourceHead>, Miss>, Attempt> {
        let age = now.millis() - kept.at.millis();
        if !(0..=self.settings.answers.age_ms_max).contains(&age) {
            return Ok(Err(Miss::Age));
        }
        let mut heads = Vec::with_capacity(kept.sources.len());
        for basis in &kept.sources {
            match self.head_of(pass, &basis.source, now).await? {
                None => return Ok(Err(self.why_not_shown(request, &basis.source).await?)),
                Some(head) if head.revision != basis.revision => return Ok(Err(Miss::StaleRevision)),
                Some(head) if head.knowledge != kept.knowledge => return Ok(Err(Miss::Epoch)),
                Some(head) => heads.push(head),
            }
        }
        Ok(Ok(heads))
    }

    /// Why a source is not shown. Only the trusted backend may read the register, and only it is told.
    async fn why_not_shown(&self, request: &Request, source: &SourceId) -> Result<Miss, Attempt> {
        if request.caller().role() != Role::App {
            return Ok(Miss::Withdrawn);
        }
        let reader = self.allow::<action::ReadSources>(request).await?;
        let record = self.backend.source(&reader, source).await?;
        Ok(match record.state {
            SourceState::Active if record.current.is_some() => Miss::Group,
            SourceState::Draft | SourceState::Active | SourceState::Withdrawn | SourceState::Deleted => {
                Miss::Withdrawn
            }
        })
    }

    pub(crate) async fn head_of(
        &self,
        pass: &Pass<'_, class::Read>,
        source: &SourceId,
        now: Timestamp,
    ) -> Result<Option<SourceHead>, Attempt> {
        let keys = [Key::Source(source.clone())];
        Ok(match self.backend.fetch(pass, &keys, now).await?.pop().flatten() {
            Some(Found::Source(head)) => Some(head),
            Some(
                Found::Memory(_)
                | Found::Conversation(..)
                | Found::Turn(_)
                | Found::Pack(_)
                | Found::Passage(_),
            )
            | None => None,
        })
    }

    async fn release_answer(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &LookUpRequest,
        kept: &Kept,
        heads: &[SourceHead],
        now: Timestamp,
    ) -> Result<LookedUp, Attempt> {
        let id = ReadId::random(&*self.env);
        let source = |head: &SourceHead| AnswerSourceView {
            source_id: head.id.to_string(),
            title: head.title.expose().to_owned(),
            revision: head.revision.number(),
            valid_from: head.valid_from.to_string(),
        };
        let answer = AnswerView {
            read_id: id.to_string(),
            as_of: now.to_string(),
            hit: true,
            answer: kept.answer.expose().to_owned(),
            stored_at: kept.at.to_string(),
            sources: heads.iter().map(source).collect(),
        };
        let reading = Reading {
            id,
            kind: ReadKind::Model,
            run: &wanted.run,
            index: IndexVersion { id: "answers".to_owned(), build: kept.knowledge.number() },
            top_k: 1,
            request: wanted.question.expose().as_bytes(),
            tokens: self.counter.count(kept.answer.expose()),
            content_kept: "none",
            knowledge: Some(kept.knowledge),
        };
        let body = encode(&answer)?;
        Ok(LookedUp::Hit(self.release(pass, reading, &[], body, None).await?))
    }
}

const NOT_CURRENT: &str = "names a source or a revision that is not current for this subject";
