//! Doing what a plan says, as a caller of the application does it: prove the key, call one use case, hear the
//! answer. Erasing has no use case yet, so it is done at the ports, with the same checks.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

use std::sync::Arc;

use merkwelt_app::OpenRequest;
use merkwelt_app::{
    App, ContextRequest, CorrectRequest, Error, GroupRequest, IdempotentRequest, KeyRequest, ListRequest,
    PageRequest, RecallRequest, Released, RunContext, StatementRequest, TurnRequest,
};
use merkwelt_authz::{ApiKey, Refusal, Request, Role, action, authorize};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::memory::{Expiry, Kind, Metadata, Particulars, Pointer, Revision};
use merkwelt_domain::routing::StateChoice;
use merkwelt_domain::{Content, GroupName, SubjectRef, Timestamp};
use merkwelt_ledger::token::Token;
use merkwelt_store::change::NewOwner;
use merkwelt_store::query::{KindSet, PageSize, TopK, Turns};
use merkwelt_store::{Backend, Residue};

use crate::env::{SimEnv, TaskId};
use crate::marker::word;
use crate::model::Model;
use crate::plan::{For, Note, Op, Plan, TurnsIn, text_of};
use crate::world::acts_for;

/// What a caller hears.
#[derive(Debug)]
pub(crate) enum Answer {
    Released(Released),
    Written,
    Said(u32),
    Done,
    Names(Vec<String>),
    Key(ApiKey),
    Erased(Residue),
}

/// Why a caller got nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Key,
    App(Error),
    /// The plan could not be put into words; a mistake of the simulation.
    Plan,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::App(error)
    }
}

/// The outcome of a plan.
pub(crate) type Outcome = Result<Answer, Refused>;

/// A caller with everything they need.
pub(crate) struct Caller {
    pub(crate) app: Arc<App>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) env: Arc<SimEnv>,
    pub(crate) task: TaskId,
    pub(crate) key: ApiKey,
    pub(crate) plan: Plan,
    pub(crate) names: Names,
}

/// Names as the customer writes them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) subject: Option<SubjectRef>,
    persons: Vec<SubjectRef>,
    groups: Vec<GroupName>,
}

impl Names {
    pub(crate) fn of(model: &Model, plan: &Plan) -> Option<Self> {
        let tenant = model.tenants.get(plan.tenant)?;
        let persons: Vec<SubjectRef> = tenant.persons.iter().filter_map(|p| p.name.parse().ok()).collect();
        let groups = tenant.groups.iter().filter_map(|g| g.name.parse().ok()).collect();
        let subject = match plan.person {
            Some(person) => Some(persons.get(person)?.clone()),
            None => None,
        };
        Some(Self { subject, persons, groups })
    }

    fn group(&self, group: usize) -> Result<GroupName, Refused> {
        self.groups.get(group).cloned().ok_or(Refused::Plan)
    }

    fn person(&self, person: usize) -> Result<SubjectRef, Refused> {
        self.persons.get(person).cloned().ok_or(Refused::Plan)
    }
}

pub(crate) fn run_of(task: TaskId) -> RunContext {
    RunContext { run: Token::parse(&format!("run-{task}")).ok(), ..RunContext::default() }
}

impl Caller {
    /// Does it.
    pub(crate) async fn act(self) -> Outcome {
        let caller = self.app.authenticate(&self.key).await.map_err(|_| Refused::Key)?;
        let request = Request::new(caller, self.names.subject.clone(), merkwelt_domain::Purpose::default());
        match &self.plan.op {
            Op::Remember { .. } | Op::Correct { .. } | Op::Retract { .. } => self.write(&request).await,
            Op::Open { .. } | Op::Say { .. } | Op::DeleteTalk { .. } => self.converse(&request).await,
            Op::MakeGroup { .. } | Op::DropGroup { .. } | Op::Join { .. } | Op::Leave { .. } => {
                self.app.change_directory(&request, &self.directory()?).await?;
                Ok(Answer::Done)
            }
            Op::Groups | Op::Members { .. } => self.directory_read(&request).await,
            Op::Erase => self.erase(&request).await,
            Op::NewKey { role, bound } => self.new_key(&request, *role, *bound).await,
            Op::RevokeKey { .. } => Err(Refused::Plan),
            Op::ReadTalk { .. }
            | Op::Talks
            | Op::Recall { .. }
            | Op::Read { .. }
            | Op::List { .. }
            | Op::Context { .. }
            | Op::Pack { .. } => Ok(Answer::Released(self.read(&request).await?)),
        }
    }

    /// Ends a key; the plan names it by its place, so the key itself comes along.
    pub(crate) async fn revoke(self, ended: ApiKey) -> Outcome {
        let caller = self.app.authenticate(&self.key).await.map_err(|_| Refused::Key)?;
        let request = Request::new(caller, None, merkwelt_domain::Purpose::default());
        self.app.revoke_key(&request, ended.id()).await?;
        Ok(Answer::Done)
    }

    async fn write(&self, request: &Request) -> Outcome {
        match &self.plan.op {
            Op::Remember { notes, again } => {
                let statements =
                    notes.iter().map(|note| self.statement(note)).collect::<Result<Vec<_>, _>>()?;
                let idempotent = again.map(again_of).transpose()?;
                let _ = self.app.remember(request, &statements, idempotent.as_ref()).await?;
            }
            Op::Correct { id, expected, note } => {
                let expected = expected.map(Revision::from_number);
                let statement = self.statement(note)?;
                let correction = CorrectRequest { id: id.clone(), expected, statement };
                let _ = self.app.correct(request, &correction, None).await?;
            }
            Op::Retract { id } => drop(self.app.retract(request, id, None).await?),
            _ => return Err(Refused::Plan),
        }
        Ok(Answer::Written)
    }

    async fn converse(&self, request: &Request) -> Outcome {
        match &self.plan.op {
            Op::Open { kept } => {
                let retention = kept.map_or(Retention::Session, Retention::KeptDays);
                let _ = self
                    .app
                    .open_conversation(request, &OpenRequest { retention, carried_over: None }, None)
                    .await?;
                Ok(Answer::Written)
            }
            Op::Say { talk, serial } => {
                let text = content(&text_of(*serial))?;
                let turn = TurnRequest {
                    conversation: talk.2.clone(),
                    speaker: Speaker::Person,
                    text,
                    rests_on: RestsOn::default(),
                    pack: None,
                };
                let appended = self.app.append_turn(request, &turn, None).await?;
                Ok(Answer::Said(appended.number))
            }
            Op::DeleteTalk { talk } => {
                let _ = self.app.delete_conversation(request, &talk.2, None).await?;
                Ok(Answer::Written)
            }
            _ => Err(Refused::Plan),
        }
    }

    async fn read(&self, request: &Request) -> Result<Released, Refused> {
        let run = run_of(self.task);
        let page = |limit| PageRequest { after: None, limit: page_size(limit), run: run.clone() };
        Ok(match &self.plan.op {
            Op::ReadTalk { talk, limit } => {
                self.app.read_conversation(request, &talk.2, &page(*limit)).await?
            }
            Op::Talks => self.app.list_conversations(request, &page(500)).await?,
            Op::Recall { words, k, kinds, turns, .. } => {
                let search = search(words, *k, kinds, turns, run)?;
                self.app.recall(request, &search).await?
            }
            Op::Read { id } => self.app.read_memory(request, id, &run).await?,
            Op::List { kinds, limit } => {
                let kinds = KindSet::of(kinds.iter().copied());
                let limit = page_size(*limit);
                let list = ListRequest { kinds, conversation: None, interval: None, after: None, limit, run };
                self.app.list_memories(request, &list).await?
            }
            Op::Context { words, budget, talk } => {
                let wanted = ContextRequest {
                    question: content(words)?,
                    conversation: talk.as_ref().map(|talk| talk.2.clone()),
                    budget: TokenBudget::new(*budget).map_err(|_| Refused::Plan)?,
                    n_turns_max: 4,
                    state: StateChoice::Auto,
                    interval: None,
                    run,
                };
                self.app.context(request, &wanted).await?
            }
            Op::Pack { id, .. } => self.app.read_pack(request, id, &run).await?,
            _ => return Err(Refused::Plan),
        })
    }

    fn directory(&self) -> Result<GroupRequest, Refused> {
        Ok(match &self.plan.op {
            Op::MakeGroup { group } => GroupRequest::Create(self.names.group(*group)?),
            Op::DropGroup { group } => GroupRequest::Delete(self.names.group(*group)?),
            Op::Join { group, person } => {
                GroupRequest::Add(self.names.group(*group)?, self.names.person(*person)?)
            }
            Op::Leave { group, person } => {
                GroupRequest::Remove(self.names.group(*group)?, self.names.person(*person)?)
            }
            _ => return Err(Refused::Plan),
        })
    }

    async fn directory_read(&self, request: &Request) -> Outcome {
        let names = match &self.plan.op {
            Op::Groups => {
                let groups = self.app.list_groups(request).await?;
                groups.into_iter().map(|group| group.name.as_str().to_owned()).collect()
            }
            Op::Members { group } => {
                let members = self.app.list_members(request, &self.names.group(*group)?).await?;
                members.iter().map(|member| member.expose().to_owned()).collect()
            }
            _ => return Err(Refused::Plan),
        };
        Ok(Answer::Names(names))
    }

    async fn new_key(&self, request: &Request, role: Role, bound: Option<usize>) -> Outcome {
        let subject = bound.map(|person| self.names.person(person)).transpose()?;
        let wanted = KeyRequest {
            label: "key".parse().map_err(|_| Refused::Plan)?,
            role,
            act_for: subject.is_none() && acts_for(role),
            subject,
            expires_at: None,
        };
        Ok(Answer::Key(self.app.create_key(request, &wanted).await?.1))
    }

    async fn erase(&self, request: &Request) -> Outcome {
        use merkwelt_store::Error as Store;
        for _ in 0..16 {
            let pass = match authorize::<action::Erase>(&*self.backend, request).await {
                Ok(pass) => pass,
                Err(Refusal::Denied(denied)) => {
                    let recorded = self.backend.record_denial(&denied, self.now()).await;
                    return Err(if recorded.is_ok() { Error::Denied } else { Error::Unavailable }.into());
                }
                Err(Refusal::Unavailable(_)) => return Err(Error::Unavailable.into()),
            };
            match self.backend.erase(&pass, self.now()).await {
                Ok(erased) => {
                    let left = self.backend.residue(&pass, &erased.subject).await;
                    return left.map(Answer::Erased).map_err(|_| Error::Unavailable.into());
                }
                Err(Store::GrantsMoved) => {}
                Err(Store::Erasing) => return Err(Error::Erasing.into()),
                Err(_) => return Err(Error::Unavailable.into()),
            }
        }
        Err(Error::Busy.into())
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.env.clock())
    }

    fn statement(&self, note: &Note) -> Result<StatementRequest, Refused> {
        let word = word(note.serial);
        let mut metadata = serde_json::Map::new();
        metadata.insert("mark".to_owned(), serde_json::Value::String(word.clone()));
        let pointer =
            (note.kind == Kind::Reference).then(|| Pointer::new(&format!("crm://{word}"), "tool:crm.get"));
        let parts = Particulars {
            slot: note
                .slot
                .map(|slot| format!("slot-{slot}").parse())
                .transpose()
                .map_err(|_| Refused::Plan)?,
            metadata: Metadata::new(metadata).map_err(|_| Refused::Plan)?,
            pointer: pointer.transpose().map_err(|_| Refused::Plan)?,
            valid_from: note.from.map(Timestamp::from_millis),
            expiry: Some(Expiry::At(Timestamp::from_millis(note.end))),
        };
        Ok(StatementRequest {
            owner: match note.whose {
                For::Oneself => NewOwner::Subject,
                For::Group(group) => NewOwner::Group(self.names.group(group)?),
                For::Everybody => NewOwner::Tenant,
            },
            kind: note.kind,
            text: content(&text_of(note.serial))?,
            author: None,
            parts,
            conversation: note.talk.as_ref().map(|(_, id)| id.clone()),
        })
    }
}

fn content(text: &str) -> Result<Content, Refused> {
    Content::to_keep(text, Content::STATEMENT_MAX_BYTES).map_err(|_| Refused::Plan)
}

fn page_size(limit: u16) -> PageSize {
    PageSize::new(limit).unwrap_or_default()
}

fn again_of(number: u32) -> Result<IdempotentRequest, Refused> {
    let mut digest = [0; 32];
    for (to, from) in digest.iter_mut().zip(number.to_le_bytes()) {
        *to = from;
    }
    let key = format!("again-{number}").parse().map_err(|_| Refused::Plan)?;
    Ok(IdempotentRequest { key, digest })
}

fn search(
    words: &str,
    k: u16,
    kinds: &[Kind],
    turns: &TurnsIn,
    run: RunContext,
) -> Result<RecallRequest, Refused> {
    Ok(RecallRequest {
        question: content(words)?,
        k: TopK::new(k).map_err(|_| Refused::Plan)?,
        kinds: KindSet::of(kinds.iter().copied()),
        turns: match turns {
            TurnsIn::None => Turns::None,
            TurnsIn::All => Turns::All,
            TurnsIn::Of(talk) => Turns::Of(talk.2.clone()),
        },
        documents: false,
        conversation: None,
        metadata: Vec::new(),
        interval: None,
        run,
    })
}
