//! Committing batches: rows, generations and evidence change together (I-11).

use merkwelt_authz::{Pass, class};
use merkwelt_domain::conversation::{Conversation, Retention};
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Memory, Owner, Revision};
use merkwelt_domain::{ConversationId, Env, MemoryId, Timestamp};
use merkwelt_ledger::canonical::Integer;
use merkwelt_ledger::commitment::{Commitment, OpeningKey};
use merkwelt_ledger::entry::{ChangeType, Draft};
use merkwelt_ledger::read::record_statement;

use super::directory::event_id;
use super::read::find;
use super::rows::{AnsweredRow, ConversationRow, MemoryRow, OpeningRow, PackRow, State, TurnRow};
use super::view::View;
use crate::change::{Idempotency, NewMemory, NewTurn, Outcome, ReadRecord, Receipt, Shown, Write};
use crate::error::Error;
use crate::evidence::{Touched, change_draft, read_drafts, token, utc};
use crate::merge::{Meeting, may_meet, meet};
use crate::query::Key;
use crate::record::Found;

/// One batch of writes in the making.
struct Batch<'b> {
    state: &'b mut State,
    env: &'b dyn Env,
    pass: &'b Pass<'b, class::Write>,
    view: View,
    at: Timestamp,
    drafts: Vec<Draft>,
    prefix: bool,
}

/// Commits changes of content, all or none.
pub(super) fn writes(
    state: &mut State,
    env: &dyn Env,
    pass: &Pass<'_, class::Write>,
    writes: Vec<Write>,
    idempotency: Option<Idempotency>,
    at: Timestamp,
) -> Result<Receipt, Error> {
    let view = View::open(state, pass)?;
    if let Some(receipt) = state.answered(&view, pass, idempotency.as_ref(), at)? {
        return Ok(receipt);
    }
    let mut batch = Batch { state, env, pass, view, at, drafts: Vec::new(), prefix: false };
    let outcomes = writes.into_iter().map(|write| batch.apply(write)).collect::<Result<Vec<_>, _>>()?;
    let receipt = batch.finish(outcomes)?;
    if let Some(asked) = idempotency {
        state.answered.push(AnsweredRow {
            tenant: pass.scope().tenant().clone(),
            subject: pass.scope().subject().cloned(),
            key: pass.key().clone(),
            idempotency: asked.key,
            request: asked.request,
            keep_until: asked.keep_until,
            receipt: receipt.clone(),
        });
    }
    Ok(receipt)
}

impl State {
    /// The answer given before to the same request. A key that was used with another request, or for
    /// somebody else, is a conflict.
    fn answered(
        &mut self,
        view: &View,
        pass: &Pass<'_, class::Write>,
        asked: Option<&Idempotency>,
        at: Timestamp,
    ) -> Result<Option<Receipt>, Error> {
        self.answered.retain(|row| at < row.keep_until);
        let Some(asked) = asked else { return Ok(None) };
        let is_same = |row: &&AnsweredRow| {
            row.tenant == view.tenant && row.key == *pass.key() && row.idempotency == asked.key
        };
        match self.answered.iter().find(is_same) {
            None => Ok(None),
            Some(row) if row.request == asked.request && row.subject == view.subject => {
                Ok(Some(Receipt { replayed: true, ..row.receipt.clone() }))
            }
            Some(_) => Err(Error::IdempotencyConflict),
        }
    }
}

impl Batch<'_> {
    fn apply(&mut self, write: Write) -> Result<Outcome, Error> {
        match write {
            Write::Remember(new) => self.remember(new),
            Write::Correct { id, expected, new } => self.correct(&id, expected, new),
            Write::Retract { id, at } => self.retract(&id, at),
            Write::Open(conversation) => self.open(conversation),
            Write::Append(new) => self.append(new),
            Write::DeleteConversation { id, .. } => self.delete_conversation(&id),
        }
    }

    /// Raises the generations once for the batch and appends its entries.
    fn finish(self, outcomes: Vec<Outcome>) -> Result<Receipt, Error> {
        let tenant = self.view.tenant;
        let mut entry = None;
        if !self.drafts.is_empty() {
            entry = self.state.append(&tenant, &self.drafts, self.at)?;
        }
        let cell = self.state.cells.get_mut(&tenant).ok_or(Error::NotFound)?;
        if entry.is_some() {
            cell.epochs.content = cell.epochs.content.next();
        }
        if self.prefix {
            cell.epochs.prefix = cell.epochs.prefix.next();
        }
        Ok(Receipt { outcomes, entry, epochs: cell.epochs, replayed: false })
    }

    fn remember(&mut self, new: NewMemory) -> Result<Outcome, Error> {
        let owner = self.view.resolve(self.state, &new.owner)?;
        self.check_new(&new)?;
        let met = self
            .state
            .memories
            .iter()
            .filter(|row| row.tenant == self.view.tenant && row.memory.owner == owner)
            .filter(|row| may_meet(&row.memory, &new.statement, new.conversation.as_ref()))
            .map(|row| (&row.memory, meet(&row.memory, &new.statement, self.at)))
            .find(|(_, meeting)| *meeting != Meeting::Apart)
            .map(|(memory, meeting)| (memory.clone(), meeting));
        match met {
            Some((memory, Meeting::Same)) => Ok(Outcome::Merged { id: memory.id, revision: memory.revision }),
            Some((memory, _)) => self.supersede(&memory, new, None, ChangeType::MemoryWritten),
            None => {
                if self.state.latest(&self.view.tenant, &new.id).is_some() {
                    return Err(Error::Exists);
                }
                let id = new.id.clone();
                self.insert(new, id.clone(), Revision::FIRST, owner, None, ChangeType::MemoryWritten)?;
                Ok(Outcome::Created { id, revision: Revision::FIRST })
            }
        }
    }

    fn check_new(&self, new: &NewMemory) -> Result<(), Error> {
        if let Some(conversation) = &new.conversation {
            self.state.own_conversation(&self.view, conversation).ok_or(Error::NotFound)?;
        }
        match &new.vector {
            Some(vector) => self.state.check_model(&self.view, vector),
            None => Ok(()),
        }
    }

    fn correct(
        &mut self,
        id: &MemoryId,
        expected: Option<Revision>,
        new: NewMemory,
    ) -> Result<Outcome, Error> {
        let current = self.writable(id)?;
        if expected.is_some_and(|expected| expected != current.revision) {
            return Err(Error::RevisionConflict);
        }
        self.check_new(&new)?;
        self.check_slot(&current, &new)?;
        // A correction does not wash off where the statement came from.
        let origin = current.conversation.clone();
        self.supersede(&current, new, origin, ChangeType::MemoryCorrected)
    }

    /// A slot has one value, so a correction cannot move a memory into one that another memory holds.
    fn check_slot(&self, current: &Memory, new: &NewMemory) -> Result<(), Error> {
        let taken = |row: &MemoryRow| {
            row.tenant == self.view.tenant
                && row.memory.owner == current.owner
                && row.memory.id != current.id
                && row.memory.standing == Standing::Active
                && row.memory.statement.slot() == new.statement.slot()
        };
        let taken = new.statement.slot().is_some() && self.state.memories.iter().any(taken);
        if taken { Err(Error::Exists) } else { Ok(()) }
    }

    fn retract(&mut self, id: &MemoryId, at: Timestamp) -> Result<Outcome, Error> {
        let current = self.writable(id)?;
        self.mark(&current, Standing::Retracted { at });
        self.touch(&current, ChangeType::MemoryRetracted, None)?;
        Ok(Outcome::Retracted { id: id.clone() })
    }

    /// The revision that stands, if it may be written. What is unknown, foreign, withdrawn or over is alike.
    fn writable(&self, id: &MemoryId) -> Result<Memory, Error> {
        let latest = self.state.latest(&self.view.tenant, id).ok_or(Error::NotFound)?;
        let ended = latest.validity().end().is_some_and(|end| end <= self.at);
        let stands = latest.standing == Standing::Active && !ended;
        if stands && self.view.writes(&self.view.tenant, &latest.owner) {
            Ok(latest.clone())
        } else {
            Err(Error::NotFound)
        }
    }

    fn supersede(
        &mut self,
        current: &Memory,
        new: NewMemory,
        origin: Option<ConversationId>,
        kind: ChangeType,
    ) -> Result<Outcome, Error> {
        let revision = current.revision.next();
        self.mark(current, Standing::Superseded { by: revision, at: new.at });
        self.prefix |= current.statement.kind().is_prefix();
        self.insert(new, current.id.clone(), revision, current.owner.clone(), origin, kind)?;
        Ok(Outcome::Superseded { id: current.id.clone(), revision })
    }

    fn mark(&mut self, revision: &Memory, standing: Standing) {
        for row in &mut self.state.memories {
            let same = row.memory.id == revision.id && row.memory.revision == revision.revision;
            if row.tenant == self.view.tenant && same {
                row.memory.standing = standing;
            }
        }
    }

    fn insert(
        &mut self,
        new: NewMemory,
        id: MemoryId,
        revision: Revision,
        owner: Owner,
        origin: Option<ConversationId>,
        kind: ChangeType,
    ) -> Result<(), Error> {
        let memory = Memory {
            id,
            revision,
            owner,
            statement: new.statement,
            written_at: new.at,
            written_by: self.pass.key().clone(),
            conversation: new.conversation.or(origin),
            tokens: new.tokens,
            standing: Standing::Active,
        };
        let text = memory.statement.text().expose();
        let commitment =
            self.commit_to(&memory.owner, memory.id.as_str(), revision.number(), new.at, text, new.opening)?;
        self.touch(&memory, kind, Some(commitment))?;
        self.state.memories.push(MemoryRow { tenant: self.view.tenant.clone(), memory, vector: new.vector });
        Ok(())
    }

    /// Commits to a content and keeps the opening with its owner.
    fn commit_to(
        &mut self,
        owner: &Owner,
        id: &str,
        revision: u32,
        at: Timestamp,
        text: &str,
        key: OpeningKey,
    ) -> Result<Commitment, Error> {
        let revision = Integer::from_count(u64::from(revision)).ok_or(Error::Damaged)?;
        let statement = record_statement(&token(id)?, revision, utc(at)?, text.as_bytes());
        let (commitment, opening) = key.commit(&token("record")?, &statement);
        self.state.openings.push(OpeningRow {
            tenant: self.view.tenant.clone(),
            owner: Some(owner.clone()),
            keys: opening.key().expose().to_vec(),
            keep_until: None,
        });
        Ok(commitment)
    }

    fn touch(
        &mut self,
        memory: &Memory,
        kind: ChangeType,
        commitment: Option<Commitment>,
    ) -> Result<(), Error> {
        self.prefix |= memory.statement.kind().is_prefix();
        self.draft(kind, memory.id.as_str(), &memory.owner, commitment)
    }

    fn draft(
        &mut self,
        kind: ChangeType,
        record: &str,
        owner: &Owner,
        commitment: Option<Commitment>,
    ) -> Result<(), Error> {
        let event_id = event_id(self.env);
        let tags = self.state.tag_key(&self.view.tenant, owner, self.env);
        let personal = matches!(owner, Owner::Subject(_));
        let touched = Touched { kind, event_id: &event_id, record, commitment, tags: &tags, personal };
        self.drafts.push(change_draft(self.pass, &touched)?);
        Ok(())
    }

    fn open(&mut self, conversation: Conversation) -> Result<Outcome, Error> {
        if !self.view.owns(&self.view.tenant, &conversation.owner) {
            return Err(Error::NotFound);
        }
        let taken =
            |row: &ConversationRow| row.tenant == self.view.tenant && row.conversation.id == conversation.id;
        if self.state.conversations.iter().any(taken) {
            return Err(Error::Exists);
        }
        let (id, owner) = (conversation.id.clone(), Owner::Subject(conversation.owner.clone()));
        self.draft(ChangeType::ConversationOpened, id.as_str(), &owner, None)?;
        let tenant = self.view.tenant.clone();
        self.state.conversations.push(ConversationRow { tenant, conversation, last: 0 });
        Ok(Outcome::Opened { id })
    }

    fn append(&mut self, new: NewTurn) -> Result<Outcome, Error> {
        let id = new.turn.conversation.clone();
        let row = self.state.own_conversation(&self.view, &id).ok_or(Error::NotFound)?;
        let (owner, number) = (row.conversation.owner.clone(), row.last.saturating_add(1));
        match row.conversation.retention {
            Retention::Session => return Err(Error::NotKept),
            Retention::KeptDays(_) => {}
        }
        if let Some(vector) = &new.vector {
            self.state.check_model(&self.view, vector)?;
        }
        let turn = merkwelt_domain::conversation::Turn { number, ..new.turn };
        let whose = Owner::Subject(owner.clone());
        let commitment =
            self.commit_to(&whose, id.as_str(), number, turn.at, turn.text.expose(), new.opening)?;
        self.draft(ChangeType::TurnAppended, id.as_str(), &whose, Some(commitment))?;
        for row in &mut self.state.conversations {
            if row.tenant == self.view.tenant && row.conversation.id == id {
                row.last = number;
            }
        }
        let tenant = self.view.tenant.clone();
        self.state.turns.push(TurnRow { tenant, owner, turn, vector: new.vector });
        Ok(Outcome::Appended { id, number })
    }

    fn delete_conversation(&mut self, id: &ConversationId) -> Result<Outcome, Error> {
        let owner = self.state.own_conversation(&self.view, id).ok_or(Error::NotFound)?;
        let owner = Owner::Subject(owner.conversation.owner.clone());
        self.draft(ChangeType::ConversationDeleted, id.as_str(), &owner, None)?;
        let tenant = &self.view.tenant;
        let from_it =
            |row: &&MemoryRow| row.tenant == *tenant && row.memory.conversation.as_ref() == Some(id);
        let gone: Vec<&MemoryRow> = self.state.memories.iter().filter(from_it).collect();
        self.prefix |= gone.iter().any(|row| row.memory.statement.kind().is_prefix());
        let ids: std::collections::BTreeSet<MemoryId> =
            gone.iter().map(|row| row.memory.id.clone()).collect();
        let n_turns = self.state.turns.len();
        self.state.memories.retain(|row| !from_it(&row));
        self.state.turns.retain(|row| !(row.tenant == *tenant && row.turn.conversation == *id));
        self.state.conversations.retain(|row| !(row.tenant == *tenant && row.conversation.id == *id));
        Ok(Outcome::ConversationDeleted {
            id: id.clone(),
            turns: u32::try_from(n_turns - self.state.turns.len()).unwrap_or(u32::MAX),
            memories: u32::try_from(ids.len()).unwrap_or(u32::MAX),
        })
    }
}

/// Whether something may be shown now as what it is about to be shown.
fn may_be_shown(state: &State, view: &View, shown: &Shown, at: Timestamp) -> bool {
    let key = match shown {
        Shown::Current(id, _) => Key::Memory(id.clone()),
        Shown::Past(id, revision) => Key::MemoryAt(id.clone(), *revision),
        Shown::Turn(id, number) => Key::Turn(id.clone(), *number),
        Shown::Sitting(id) => Key::Conversation(id.clone()),
        Shown::Passage(id) => Key::Passage(id.clone()),
        Shown::Cited(id) => Key::PassageAt(id.clone()),
    };
    match (find(state, view, &key, at), shown) {
        (Some(Found::Memory(memory)), Shown::Current(_, revision)) => memory.revision == *revision,
        (found, _) => found.is_some(),
    }
}

/// Commits a read event.
pub(super) fn read(
    state: &mut State,
    env: &dyn Env,
    pass: &Pass<'_, class::Read>,
    record: ReadRecord,
    at: Timestamp,
) -> Result<Receipt, Error> {
    let view = View::open(state, pass)?;
    state.openings.retain(|row| row.keep_until.is_none_or(|end| at < end));
    // INVARIANT: I-7, what changed since it was read is not released.
    if !record.standing.iter().all(|shown| may_be_shown(state, &view, shown, at)) {
        return Err(Error::ContentMoved);
    }
    if record.knowledge.is_some_and(|known| known != view.epochs.knowledge) {
        return Err(Error::ContentMoved);
    }
    if let Some(pack) = record.pack {
        if state.packs.iter().any(|row| row.tenant == view.tenant && row.pack.id == pack.id) {
            return Err(Error::Exists);
        }
        state.packs.push(PackRow { tenant: view.tenant.clone(), owner: view.subject.clone(), pack });
    }
    state.openings.push(OpeningRow {
        tenant: view.tenant.clone(),
        owner: view.subject.clone().map(Owner::Subject),
        keys: record.openings,
        keep_until: Some(record.keep_until),
    });
    let owner = view.subject.clone().map(Owner::Subject);
    let tags = owner.map(|owner| state.tag_key(&view.tenant, &owner, env));
    let drafts = read_drafts(pass, record.event, tags.as_ref())?;
    let entry = state.append(&view.tenant, &drafts, at)?;
    Ok(Receipt { outcomes: Vec::new(), entry, epochs: view.epochs, replayed: false })
}
