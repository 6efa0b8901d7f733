//! What readers ask, and what of the answers may not be. A reader may be interrupted by a change that is made
//! completely meanwhile; what leaves afterwards must be right after it.

use std::collections::BTreeSet;
use std::sync::Arc;

use merkwelt_app::{
    AnswerAudience, AnswerRequest, App, ContextRequest, LookUpRequest, LookedUp, Maker, PageRequest,
    RecallRequest, TurnRequest,
};
use merkwelt_authz::{ApiKey, Request};
use merkwelt_domain::basis::{Basis, RestsOn};
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::conversation::Speaker;
use merkwelt_domain::routing::StateChoice;
use merkwelt_domain::source::PassageId;
use merkwelt_domain::{Content, ConversationId, PackId, Purpose, RevisionId, SubjectRef};
use merkwelt_ledger::token::Token;
use merkwelt_store::query::{KindSet, TopK, Turns};
use serde_json::Value;

use super::paper::Shelf;
use crate::act::run_of;
use crate::env::TaskId;
use crate::failure::{Found, Property, holds};
use crate::marker::{Serial, word, words_in};
use crate::plan::text_of;

/// One question of one person.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Recall,
    /// A question that documents answer, or one that nothing but the conversation answers.
    Context(ConversationId, bool),
    Conversation(ConversationId),
    /// What of a conversation goes along to another organisation.
    HandOver(ConversationId),
    /// A pack that was delivered before.
    Pack(PackId),
    Citation(RevisionId),
    /// Keeps the text of a revision as the answer to the question of its paper.
    Keep(Basis, Serial),
    LookUp(Basis),
    /// Says the text of a revision in a conversation.
    Say(ConversationId, Basis, Serial),
}

/// Who asks.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) app: Arc<App>,
    pub(super) key: ApiKey,
    pub(super) person: usize,
    pub(super) name: SubjectRef,
    pub(super) task: TaskId,
    pub(super) ask: Ask,
}

/// What came: a body, nothing, or a refusal.
pub(super) type Heard = Option<Value>;

fn maker() -> Option<Maker> {
    Some(Maker { model: Token::parse("sim").ok()?, prompt: Token::parse("1").ok()? })
}

fn question(basis: &Basis) -> Option<Content> {
    Content::question(&format!("What does {} say?", basis.source), 1_000).ok()
}

impl Reader {
    /// Asks. What was refused is nothing; that something was refused without a fault is checked elsewhere.
    pub(super) async fn hear(self) -> Heard {
        let caller = self.app.authenticate(&self.key).await.ok()?;
        let request = Request::new(caller, Some(self.name.clone()), Purpose::default());
        match &self.ask {
            Ask::Keep(..) | Ask::Say(..) => self.tell(&request).await,
            Ask::Recall
            | Ask::Context(..)
            | Ask::Conversation(_)
            | Ask::HandOver(_)
            | Ask::Pack(_)
            | Ask::Citation(_)
            | Ask::LookUp(_) => self.read(&request).await,
        }
    }

    async fn tell(&self, request: &Request) -> Heard {
        match &self.ask {
            Ask::Keep(basis, serial) => {
                let wanted = AnswerRequest {
                    question: question(basis)?,
                    answer: Content::question(&text_of(*serial), 1_000).ok()?,
                    sources: vec![basis.clone()],
                    audience: AnswerAudience::Shared,
                    conversation: None,
                    maker: maker()?,
                };
                self.app.store_answer(request, &wanted).await.ok()?;
            }
            Ask::Say(conversation, basis, serial) => {
                let turn = TurnRequest {
                    conversation: conversation.clone(),
                    speaker: Speaker::Assistant,
                    text: Content::to_keep(&text_of(*serial), 1_000).ok()?,
                    rests_on: RestsOn::new([basis.clone()]).ok()?,
                    pack: None,
                };
                self.app.append_turn(request, &turn, None).await.ok()?;
            }
            Ask::Recall
            | Ask::Context(..)
            | Ask::Conversation(_)
            | Ask::HandOver(_)
            | Ask::Pack(_)
            | Ask::Citation(_)
            | Ask::LookUp(_) => {}
        }
        None
    }

    async fn read(&self, request: &Request) -> Heard {
        let run = run_of(self.task);
        let released = match &self.ask {
            Ask::Recall => self.app.recall(request, &everything(run)?).await.ok()?,
            Ask::Context(conversation, documents) => {
                let words = if *documents { EVERYTHING } else { "thank you" };
                let wanted = ContextRequest {
                    question: Content::question(words, 1_000).ok()?,
                    conversation: Some(conversation.clone()),
                    budget: TokenBudget::new(8_000).ok()?,
                    n_turns_max: 20,
                    state: StateChoice::Auto,
                    interval: None,
                    run,
                };
                self.app.context(request, &wanted).await.ok()?
            }
            Ask::Conversation(id) => {
                let page = PageRequest { run, ..PageRequest::default() };
                self.app.read_conversation(request, id, &page).await.ok()?
            }
            Ask::HandOver(id) => {
                let page = PageRequest { run, ..PageRequest::default() };
                self.app.hand_over(request, id, &page).await.ok()?
            }
            Ask::Pack(id) => self.app.read_pack(request, id, &run).await.ok()?,
            Ask::Citation(revision) => {
                let passage = PassageId { revision: revision.clone(), number: 1 };
                self.app.resolve_citation(request, &passage, &run).await.ok()?
            }
            Ask::LookUp(basis) => {
                let wanted =
                    LookUpRequest { question: question(basis)?, maker: maker()?, conversation: None, run };
                match self.app.look_up_answer(request, &wanted).await.ok()? {
                    LookedUp::Hit(released) => released,
                    LookedUp::Miss(_) => return None,
                }
            }
            Ask::Keep(..) | Ask::Say(..) => return None,
        };
        serde_json::from_slice(released.body()).ok()
    }
}

/// Words that stand in every document.
const EVERYTHING: &str = "delivery invoice deadline contract order refund";

/// A search for every passage.
pub(super) fn everything(run: merkwelt_app::RunContext) -> Option<RecallRequest> {
    Some(RecallRequest {
        question: Content::question(EVERYTHING, 1_000).ok()?,
        k: TopK::new(200).ok()?,
        kinds: KindSet::of([]),
        turns: Turns::None,
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        run,
    })
}

/// Checks an answer against what may be shown now.
pub(super) fn check(
    ask: &Ask,
    person: usize,
    heard: &Value,
    shelf: &Shelf,
    withheld: bool,
) -> Result<(), Found> {
    if withheld {
        // Superseded is marked; what cannot be read any more comes out nowhere.
        only(&words_in(&heard.to_string()), &shelf.citable(person), person, shelf)?;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let current = shelf.current(person);
    match ask {
        Ask::Recall => only(&words_in(&heard.to_string()), &current, person, shelf),
        Ask::Context(..) => {
            let turn = text(heard.get("turn").unwrap_or(&Value::Null));
            let present: String =
                turn.lines().filter(|line| !line.contains("[historical: ")).collect::<Vec<_>>().join("\n");
            only(&words_in(&present), &current, person, shelf)
        }
        Ask::Conversation(_) | Ask::HandOver(_) => {
            for turn in heard.pointer("/turns").and_then(Value::as_array).into_iter().flatten() {
                let historical = turn.get("historical") == Some(&Value::Bool(true));
                let said = words_in(&turn.to_string());
                let holds_now = said.is_subset(&current);
                holds(historical != holds_now, Property::Current, || {
                    format!("a turn that says {said:?} is historical: {historical}; current are {current:?}")
                })?;
            }
            Ok(())
        }
        Ask::Citation(_) => {
            let citable = shelf.citable(person);
            only(&words_in(&heard.to_string()), &citable, person, shelf)?;
            let said = heard.get("current") == Some(&Value::Bool(true));
            let is = words_in(&heard.to_string()).is_subset(&current);
            holds(said == is, Property::Current, || format!("a citation says current: {said}, and is: {is}"))
        }
        Ask::LookUp(_) => only(&words_in(&heard.to_string()), &current, person, shelf),
        // What was current then may be superseded now.
        Ask::Pack(_) | Ask::Keep(..) | Ask::Say(..) => Ok(()),
    }
}

pub(super) fn only(
    found: &BTreeSet<Serial>,
    allowed: &BTreeSet<Serial>,
    person: usize,
    shelf: &Shelf,
) -> Result<(), Found> {
    let Some(wrong) = found.difference(allowed).next() else { return Ok(()) };
    let apart = shelf.paper_of(*wrong).is_some_and(|paper| !shelf.admits(paper, person));
    let property = if apart { Property::Apart } else { Property::Current };
    Err((property, format!("{} was shown to person {person}, allowed are {allowed:?}", word(*wrong))))
}
