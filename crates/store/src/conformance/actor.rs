//! Somebody who asks: a key, and the person it acts for. Each verb authenticates and authorises anew, as a
//! server does for each request.

use merkwelt_authz::{
    Action, ApiKey, Caller, Pass, Refusal, Request, Role, action, authenticate, authorize, class,
};
use merkwelt_domain::basis::RestsOn;
use merkwelt_domain::conversation::{Conversation, Retention, Speaker, Turn};
use merkwelt_domain::memory::{Memory, Revision};
use merkwelt_domain::summary::SummaryOf;
use merkwelt_domain::{
    ConversationId, Env, GroupId, GroupName, MemoryId, Purpose, SubjectId, TenantId, Timestamp,
};

use super::Failure;
use super::block;
use super::failure::there;
use super::note::{Note, ask, content, opening, reading};
use super::subject::{Subject, new_key};
use crate::change::{Batch, Idempotency, NewTurn, Outcome, Receipt, Shown, Write};
use crate::error::Error;
use crate::ports::{DirectoryChange, Erased, Residue, Tenant};
use crate::query::{Key, Listing, PageSize, RecallQuery, ScanQuery};
use crate::record::{FlatCost, Found, Listed, Page, Recalled, Record};

/// Who asks, and for whom.
#[derive(Clone, Copy)]
pub(super) struct Actor<'s> {
    pub(super) subject: &'s dyn Subject,
    pub(super) key: &'s ApiKey,
    who: Option<&'s str>,
}

/// The customer's backend of the first tenant, for a person.
pub(super) fn app<'s>(subject: &'s dyn Subject, who: &'s str) -> Actor<'s> {
    Actor { subject, key: &subject.keys().app, who: Some(who) }
}

/// Any key, for a person or for nobody in particular.
pub(super) fn actor<'s>(subject: &'s dyn Subject, key: &'s ApiKey, who: Option<&'s str>) -> Actor<'s> {
    Actor { subject, key, who }
}

impl<'s> Actor<'s> {
    /// The caller behind the key, if it is valid.
    pub(super) fn caller(&self) -> Result<Caller, Failure> {
        block::on(authenticate(self.subject.backend(), self.key, self.subject.env().now()))
            .map_err(|_| Failure::new("not authenticated"))
    }

    /// The request that an act is authorised for.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        let who = self.who.map(str::parse).transpose().map_err(|_| Failure::new("bad subject"))?;
        Ok(Request::new(self.caller()?, who, Purpose::default()))
    }

    /// Does something under a fresh capability.
    #[track_caller]
    pub(super) fn act<A: Action, T>(
        &self,
        act: impl FnOnce(&Pass<'_, A::Class>) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let request = self.request()?;
        match block::on(authorize::<A>(self.subject.backend(), &request)) {
            Ok(pass) => Ok(act(&pass)?),
            Err(Refusal::Denied(denied)) => {
                Err(Failure::new(format!("denied: {} {}", denied.action().name(), denied.reason().name())))
            }
            Err(Refusal::Unavailable(_)) => Err(Failure::new("directory unavailable")),
        }
    }

    /// The pseudonym of the person.
    pub(super) fn id(&self) -> Result<SubjectId, Failure> {
        there(self.act::<action::Recall, _>(|pass| Ok(pass.scope().subject().cloned()))?, "subject")
    }

    /// The tenant of the key.
    pub(super) fn tenant(&self) -> Result<TenantId, Failure> {
        Ok(self.caller()?.tenant().clone())
    }

    /// Commits writes, with an idempotency key if one is given.
    #[track_caller]
    pub(super) fn commit(
        &self,
        writes: Vec<Write>,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Failure> {
        let now = self.subject.env().now();
        self.act::<action::Correct, _>(|pass| {
            block::on(self.subject.backend().commit(Batch::writes(pass, writes, idempotency, now)))
        })
    }

    #[track_caller]
    fn one(&self, write: Write) -> Result<Outcome, Failure> {
        there(self.commit(vec![write], None)?.outcomes.pop(), "outcome")
    }

    #[track_caller]
    pub(super) fn remember(&self, note: Note) -> Result<Outcome, Failure> {
        self.one(Write::Remember(note.build(self.subject)?))
    }

    /// Remembers something and returns the id under which it stands.
    #[track_caller]
    pub(super) fn keep(&self, note: Note) -> Result<MemoryId, Failure> {
        match self.remember(note)? {
            Outcome::Created { id, .. } | Outcome::Superseded { id, .. } | Outcome::Merged { id, .. } => {
                Ok(id)
            }
            other @ (Outcome::Retracted { .. }
            | Outcome::Opened { .. }
            | Outcome::Appended { .. }
            | Outcome::ConversationDeleted { .. }) => Err(Failure::new(format!("unexpected {other:?}"))),
        }
    }

    #[track_caller]
    pub(super) fn correct(
        &self,
        id: &MemoryId,
        expected: Option<u32>,
        note: Note,
    ) -> Result<Outcome, Failure> {
        let expected = expected.map(Revision::from_number);
        self.one(Write::Correct { id: id.clone(), expected, new: note.build(self.subject)? })
    }

    #[track_caller]
    pub(super) fn retract(&self, id: &MemoryId) -> Result<Outcome, Failure> {
        self.one(Write::Retract { id: id.clone(), at: self.subject.env().now() })
    }

    /// Opens a conversation whose turns are kept for 30 days.
    #[track_caller]
    pub(super) fn open(&self) -> Result<ConversationId, Failure> {
        self.open_as(Retention::KeptDays(30))
    }

    #[track_caller]
    pub(super) fn open_as(&self, retention: Retention) -> Result<ConversationId, Failure> {
        let id = ConversationId::random(self.subject.env());
        let (owner, opened_at) = (self.id()?, self.subject.env().now());
        self.one(Write::Open(Conversation { id: id.clone(), owner, retention, opened_at }))?;
        Ok(id)
    }

    /// Appends a turn and returns its number.
    #[track_caller]
    pub(super) fn say(&self, conversation: &ConversationId, text: &str) -> Result<u32, Failure> {
        self.say_from(conversation, text, RestsOn::default())
    }

    /// Appends a summary.
    #[track_caller]
    pub(super) fn sum_up(
        &self,
        conversation: &ConversationId,
        text: &str,
        summary: SummaryOf,
    ) -> Result<u32, Failure> {
        self.append(conversation, text, RestsOn::default(), Some(summary))
    }

    /// Appends a turn that rests on these revisions.
    #[track_caller]
    pub(super) fn say_from(
        &self,
        conversation: &ConversationId,
        text: &str,
        rests_on: RestsOn,
    ) -> Result<u32, Failure> {
        self.append(conversation, text, rests_on, None)
    }

    #[track_caller]
    fn append(
        &self,
        conversation: &ConversationId,
        text: &str,
        rests_on: RestsOn,
        summary: Option<SummaryOf>,
    ) -> Result<u32, Failure> {
        let now = self.subject.env().now();
        let turn = Turn {
            conversation: conversation.clone(),
            number: 0,
            speaker: Speaker::Person,
            text: content(text)?,
            at: now,
            tokens: 5,
            expires_at: now.plus_days(30),
            rests_on,
            summary,
        };
        match self.one(Write::Append(NewTurn { turn, vector: None, opening: opening(self.subject) }))? {
            Outcome::Appended { number, .. } => Ok(number),
            other @ (Outcome::Created { .. }
            | Outcome::Superseded { .. }
            | Outcome::Merged { .. }
            | Outcome::Retracted { .. }
            | Outcome::Opened { .. }
            | Outcome::ConversationDeleted { .. }) => Err(Failure::new(format!("unexpected {other:?}"))),
        }
    }

    #[track_caller]
    pub(super) fn delete(&self, conversation: &ConversationId) -> Result<Outcome, Failure> {
        self.one(Write::DeleteConversation { id: conversation.clone(), at: self.subject.env().now() })
    }

    #[track_caller]
    pub(super) fn recall(&self, query: &RecallQuery) -> Result<Recalled, Failure> {
        self.act::<action::Recall, _>(|pass| block::on(self.subject.backend().recall(pass, query)))
    }

    /// The texts a question finds, best first.
    #[track_caller]
    pub(super) fn texts(&self, question: &str) -> Result<Vec<String>, Failure> {
        Ok(texts(&self.recall(&ask(self.subject, question)?)?))
    }

    #[track_caller]
    pub(super) fn fetch(&self, key: Key) -> Result<Option<Found>, Failure> {
        let (keys, now) = ([key], self.subject.env().now());
        let found = self
            .act::<action::ReadMemory, _>(|pass| block::on(self.subject.backend().fetch(pass, &keys, now)))?;
        there(found.into_iter().next(), "answer to a key")
    }

    /// A current memory by its id.
    #[track_caller]
    pub(super) fn memory(&self, id: &MemoryId) -> Result<Option<Memory>, Failure> {
        match self.fetch(Key::Memory(id.clone()))? {
            Some(Found::Memory(memory)) => Ok(Some(memory)),
            None => Ok(None),
            Some(
                Found::Conversation(..)
                | Found::Turn(_)
                | Found::Pack(_)
                | Found::Passage(_)
                | Found::Source(_),
            ) => Err(Failure::new("a memory's key found something else")),
        }
    }

    #[track_caller]
    pub(super) fn scan(&self, query: &ScanQuery) -> Result<Page, Failure> {
        self.act::<action::ReadMemory, _>(|pass| block::on(self.subject.backend().scan(pass, query)))
    }

    /// Everything of a listing on one page.
    #[track_caller]
    pub(super) fn list(&self, listing: Listing) -> Result<Vec<Listed>, Failure> {
        let limit = PageSize::new(PageSize::MAX).map_err(|e| Failure::new(e.to_string()))?;
        let now = self.subject.env().now();
        Ok(self.scan(&ScanQuery { listing, after: None, limit, interval: None, now })?.records)
    }

    #[track_caller]
    pub(super) fn cost(&self, conversation: Option<&ConversationId>) -> Result<FlatCost, Failure> {
        let now = self.subject.env().now();
        self.act::<action::Assemble, _>(|pass| {
            block::on(self.subject.backend().flat_cost(pass, conversation, now))
        })
    }

    /// Records a read that delivers `records` as current.
    #[track_caller]
    pub(super) fn deliver(&self, records: &[Record]) -> Result<Receipt, Failure> {
        let (record, now) = (reading(self.subject, records, None)?, self.subject.env().now());
        self.act::<action::Recall, _>(|pass| {
            block::on(self.subject.backend().commit(Batch::read(pass, record, now)))
        })
    }

    /// Records a read that shows one thing.
    #[track_caller]
    pub(super) fn show(&self, shown: Shown) -> Result<Receipt, Failure> {
        let (mut record, now) = (reading(self.subject, &[], None)?, self.subject.env().now());
        record.standing = vec![shown];
        self.act::<action::Recall, _>(|pass| {
            block::on(self.subject.backend().commit(Batch::read(pass, record, now)))
        })
    }

    #[track_caller]
    pub(super) fn change(&self, change: DirectoryChange) -> Result<(), Failure> {
        let now = self.subject.env().now();
        self.act::<action::ManageDirectory, _>(|pass| {
            block::on(self.subject.backend().change(pass, change, now)).map(|_| ())
        })
    }

    #[track_caller]
    pub(super) fn create_group(&self, name: &str) -> Result<(), Failure> {
        let id = GroupId::random(self.subject.env());
        self.change(DirectoryChange::CreateGroup { id, name: group(name)? })
    }

    #[track_caller]
    pub(super) fn add(&self, name: &str, who: &str) -> Result<(), Failure> {
        self.change(DirectoryChange::AddMember { group: group(name)?, subject: parse(who)? })
    }

    #[track_caller]
    pub(super) fn remove(&self, name: &str, who: &str) -> Result<(), Failure> {
        self.change(DirectoryChange::RemoveMember { group: group(name)?, subject: parse(who)? })
    }

    #[track_caller]
    pub(super) fn erase(&self) -> Result<Erased, Failure> {
        let now = self.subject.env().now();
        self.act::<action::Erase, _>(|pass| block::on(self.subject.backend().erase(pass, now)))
    }

    #[track_caller]
    pub(super) fn residue(&self, of: &SubjectId) -> Result<Residue, Failure> {
        self.act::<action::Erase, _>(|pass| block::on(self.subject.backend().residue(pass, of)))
    }

    /// All entries of the ledger, and the number of those of a type.
    #[track_caller]
    pub(super) fn entries(&self) -> Result<Vec<Vec<u8>>, Failure> {
        self.act::<action::ReadEvidence, _>(|pass| block::on(all_entries(self.subject, pass)))
    }
}

async fn all_entries(subject: &dyn Subject, pass: &Pass<'_, class::Evidence>) -> Result<Vec<Vec<u8>>, Error> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        let from = u64::try_from(all.len()).unwrap_or(u64::MAX);
        let mut page = subject.backend().entries(pass, from, 7).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.append(&mut page);
    }
}

/// The runner of the first tenant's directory.
pub(super) fn tenant_admin(subject: &dyn Subject) -> Actor<'_> {
    actor(subject, &subject.keys().tenant_admin, None)
}

/// A second tenant, created through the registry, and its customer's backend.
pub(super) fn second_tenant(subject: &dyn Subject) -> Result<ApiKey, Failure> {
    let (id, key) = (TenantId::random(subject.env()), ApiKey::random(subject.env()));
    let name = "second".parse().map_err(|_| Failure::new("bad name"))?;
    let tenant = Tenant { id: id.clone(), name, created_at: subject.env().now() };
    let first = new_key(&key, &id, Role::App);
    actor(subject, &subject.keys().admin, None).act::<action::ManageTenants, _>(|pass| {
        block::on(subject.backend().create_tenant(pass, tenant, first))
    })?;
    Ok(key)
}

pub(super) fn group(name: &str) -> Result<GroupName, Failure> {
    parse(name)
}

pub(super) fn parse<T: std::str::FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new("a text of the suite does not parse"))
}

/// The texts of hits, best first.
pub(super) fn texts(recalled: &Recalled) -> Vec<String> {
    recalled.candidates.iter().map(|candidate| text_of(&candidate.record)).collect()
}

fn text_of(record: &Record) -> String {
    match record {
        Record::Memory(memory) => memory.statement.text().expose().to_owned(),
        Record::Turn(turn) => turn.text.expose().to_owned(),
        Record::Passage(passage) => passage.text.expose().to_owned(),
    }
}

/// The text of a listed record; a conversation has none.
pub(super) fn listed_text(listed: &Listed) -> String {
    match listed {
        Listed::Memory(memory) => memory.statement.text().expose().to_owned(),
        Listed::Turn(turn) => turn.text.expose().to_owned(),
        Listed::Conversation(..) => String::new(),
    }
}

/// A time some milliseconds after the present.
pub(super) fn later(subject: &dyn Subject, millis: i64) -> Timestamp {
    Timestamp::from_millis(subject.env().now().millis() + millis)
}
