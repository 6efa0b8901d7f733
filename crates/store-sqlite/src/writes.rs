//! The six writes. Each finds what it changes under the scope, so an unknown record, one of somebody else
//! and one that may not be written give the same refusal.

use merkwelt_domain::conversation::{Conversation, Retention};
use merkwelt_domain::memory::{Author, Expiry, Memory, NoExpiryReason, Owner, Revision};
use merkwelt_domain::{ConversationId, GroupName, MemoryId, Timestamp};
use merkwelt_ledger::entry::ChangeType;
use merkwelt_store::Error;
use merkwelt_store::change::{NewMemory, NewOwner, NewTurn, Outcome};
use merkwelt_store::merge::{Meeting, may_meet, meet};
use rusqlite::{OptionalExtension as _, ToSql, named_params};

use crate::change::{Change, Entry, commit_record, refuse_taken};
use crate::error::Sql as _;
use crate::rows::{
    MEMORY_COLUMNS, body_of, code_of, kind_code, kind_of, memory_place, owner_columns, read_memory,
    rests_on_column, turn_place,
};
use crate::shard::Touch;
use crate::snapshot::{groups_of, writable};

impl Change<'_, '_> {
    /// The active memories that meet a condition, oldest first.
    fn active(&self, condition: &str, parameters: &[(&str, &dyn ToSql)]) -> Result<Vec<Memory>, Error> {
        let sql =
            format!("SELECT {MEMORY_COLUMNS} FROM memories WHERE standing = 0 AND {condition} ORDER BY seq");
        let mut statement = self.work.db.prepare_cached(&sql).sql()?;
        let mut rows = statement.query(parameters).sql()?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().sql()? {
            found.push(read_memory(self.work.cell, row)?);
        }
        Ok(found)
    }

    /// `Scope::writes` with present memberships.
    fn may_write(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(match owner {
            Owner::Subject(subject) => self.viewer.subject.as_ref() == Some(subject),
            Owner::Tenant => self.viewer.shared_writes,
            Owner::Group(group) => {
                self.viewer.shared_writes
                    && match self.viewer.subject() {
                        None => true,
                        Some(subject) => groups_of(self.work.db, subject)?.contains(group),
                    }
            }
        })
    }

    fn new_owner(&self, owner: &NewOwner) -> Result<Owner, Error> {
        let owner = match owner {
            NewOwner::Subject => Owner::Subject(self.viewer.subject.clone().ok_or(Error::NotFound)?),
            NewOwner::Group(name) => self.group(name)?,
            NewOwner::Tenant => Owner::Tenant,
        };
        if self.may_write(&owner)? { Ok(owner) } else { Err(Error::NotFound) }
    }

    fn group(&self, name: &GroupName) -> Result<Owner, Error> {
        let id: Option<String> = self
            .work
            .db
            .prepare_cached("SELECT id FROM groups WHERE name = ?1")
            .and_then(|mut statement| statement.query_row([name.as_str()], |row| row.get(0)).optional())
            .sql()?;
        id.ok_or(Error::NotFound)?.parse().map(Owner::Group).map_err(|_| Error::Damaged)
    }

    pub(crate) fn remember(&mut self, new: NewMemory) -> Result<Outcome, Error> {
        let owner = self.new_owner(&new.owner)?;
        self.check_new(&new)?;
        let (owner_kind, owner_id) = owner_columns(&self.work.cell.tenant, &owner);
        let keys = self.work.cell.owner_keys(owner_id)?;
        let statement = &new.statement;
        let (condition, tag) = match statement.slot() {
            Some(slot) => ("slot_tag = :tag", keys.slot_tag(slot.expose())),
            None => {
                let tag = keys.text_tag(statement.kind().name(), &statement.text().folded());
                ("slot_tag IS NULL AND text_tag = :tag", tag)
            }
        };
        // The tags only find; what a new statement does to one that stands is decided in one place.
        let met = self
            .active(
                &format!("owner_kind = :kind AND owner = :owner AND {condition}"),
                named_params! { ":kind": owner_kind, ":owner": owner_id, ":tag": tag.as_slice() },
            )?
            .into_iter()
            .filter(|memory| may_meet(memory, &new.statement, new.conversation.as_ref()))
            .map(|memory| (meet(&memory, &new.statement, self.at), memory))
            .find(|(meeting, _)| *meeting != Meeting::Apart);
        match met {
            None => {
                let (id, revision) = (new.id.clone(), Revision::FIRST);
                self.insert(&owner, &id, revision, new, ChangeType::MemoryWritten)?;
                Ok(Outcome::Created { id, revision })
            }
            Some((Meeting::Same, met)) => Ok(Outcome::Merged { id: met.id, revision: met.revision }),
            Some((_, met)) => self.supersede(&met, new, ChangeType::MemoryWritten),
        }
    }

    pub(crate) fn correct(
        &mut self,
        id: &MemoryId,
        expected: Option<Revision>,
        mut new: NewMemory,
    ) -> Result<Outcome, Error> {
        let met = self.writable(id)?;
        if expected.is_some_and(|expected| expected != met.revision) {
            return Err(Error::RevisionConflict);
        }
        self.check_new(&new)?;
        // A correction does not wash off where the statement came from.
        new.conversation = new.conversation.or_else(|| met.conversation.clone());
        self.supersede(&met, new, ChangeType::MemoryCorrected)
    }

    /// The revision that stands, if it may be written. What is unknown, foreign, withdrawn or over is alike.
    fn writable(&self, id: &MemoryId) -> Result<Memory, Error> {
        let found = self.active(
            concat!("id = :id AND (expires_at IS NULL OR expires_at > :at) AND ", writable!()),
            named_params! {
                ":id": id.as_str(), ":at": self.at.millis(),
                ":subject": self.viewer.subject(), ":shares": self.viewer.shared_writes,
            },
        )?;
        found.into_iter().next().ok_or(Error::NotFound)
    }

    fn supersede(&mut self, met: &Memory, new: NewMemory, kind: ChangeType) -> Result<Outcome, Error> {
        let revision = met.revision.next();
        self.end(met, 1, Some(revision), new.at)?;
        self.insert(&met.owner, &met.id, revision, new, kind)?;
        Ok(Outcome::Superseded { id: met.id.clone(), revision })
    }

    /// Ends the active revision.
    fn end(&mut self, met: &Memory, standing: u8, by: Option<Revision>, at: Timestamp) -> Result<(), Error> {
        self.work
            .db
            .prepare_cached(
                "UPDATE memories SET standing = ?3, standing_at = ?4, superseded_by = ?5
                 WHERE id = ?1 AND revision = ?2",
            )
            .and_then(|mut statement| {
                statement.execute((
                    met.id.as_str(),
                    met.revision.number(),
                    standing,
                    at.millis(),
                    by.map(Revision::number),
                ))
            })
            .sql()?;
        self.touch_prefix(met.statement.kind());
        self.work.touched.push(Touch::Memory(met.id.clone()));
        Ok(())
    }

    fn insert(
        &mut self,
        owner: &Owner,
        id: &MemoryId,
        revision: Revision,
        new: NewMemory,
        kind: ChangeType,
    ) -> Result<(), Error> {
        let cell = self.work.cell;
        let (owner_kind, owner_id) = owner_columns(&cell.tenant, owner);
        let keys = cell.owner_keys(owner_id)?;
        let (key, number) = (id.as_str(), revision.number());
        let place = |column| memory_place(&cell.tenant, key, number, column);
        let statement = &new.statement;
        let text = statement.text();
        let (commitment, opening) =
            commit_record(new.opening, key, number, new.at, text.expose().as_bytes())?;
        let (end, reason) = match statement.expiry() {
            Expiry::At(end) => (Some(end.millis()), None),
            Expiry::Never(reason) => (None, Some(code_of(&NoExpiryReason::ALL, reason))),
        };
        let env = cell.env.as_ref();
        let body = keys.sealer.seal(env, place("body"), &body_of(statement)?)?;
        let terms = keys.sealer.seal(env, place("terms"), &self.terms)?;
        let opening = keys.sealer.seal(env, place("opening"), opening.as_slice())?;
        let vector = self.seal_vector(&keys, place("vector"), new.vector.as_ref())?;
        let inserted = self.work.db.prepare_cached(INSERT_MEMORY).and_then(|mut row| {
            row.execute(named_params! {
                ":id": key, ":revision": number, ":owner_kind": owner_kind, ":owner": owner_id,
                ":kind": kind_code(statement.kind()), ":author": code_of(&Author::ALL, statement.author()),
                ":valid_from": statement.valid_from().millis(), ":expires_at": end, ":no_expiry": reason,
                ":written_at": new.at.millis(), ":written_by": self.witness.key.as_str(),
                ":conversation": new.conversation.as_ref().map(ConversationId::as_str),
                ":tokens": new.tokens,
                ":slot_tag": statement.slot().map(|slot| keys.slot_tag(slot.expose()).to_vec()),
                ":text_tag": keys.text_tag(statement.kind().name(), &text.folded()).to_vec(),
                ":body": body, ":terms": terms, ":vector": vector, ":opening": opening,
            })
        });
        refuse_taken(inserted)?;
        self.touch_prefix(statement.kind());
        self.work.touched.push(Touch::Memory(id.clone()));
        self.witness_change(owner, &keys, Entry { kind, record: key, commitment: Some(commitment) })
    }

    pub(crate) fn retract(&mut self, id: MemoryId, at: Timestamp) -> Result<Outcome, Error> {
        let met = self.writable(&id)?;
        self.end(&met, 2, None, at)?;
        let (_, owner_id) = owner_columns(&self.work.cell.tenant, &met.owner);
        let keys = self.work.cell.owner_keys(owner_id)?;
        let entry = Entry { kind: ChangeType::MemoryRetracted, record: id.as_str(), commitment: None };
        self.witness_change(&met.owner, &keys, entry)?;
        Ok(Outcome::Retracted { id })
    }

    /// A conversation that something comes from must exist and be the subject's; a vector must be of the
    /// tenant's model.
    fn check_new(&self, new: &NewMemory) -> Result<(), Error> {
        if let Some(id) = &new.conversation {
            self.own_conversation(id)?;
        }
        self.check_model(new.vector.as_ref())
    }

    /// `keep_days` and the number of the last turn of a conversation of the subject.
    fn own_conversation(&self, id: &ConversationId) -> Result<(Option<u32>, u32), Error> {
        self.work
            .db
            .prepare_cached("SELECT keep_days, turns FROM conversations WHERE id = ?1 AND owner = ?2")
            .and_then(|mut statement| {
                statement
                    .query_row((id.as_str(), self.viewer.subject()), |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()
            })
            .sql()?
            .ok_or(Error::NotFound)
    }

    fn subject(&self) -> Result<Owner, Error> {
        self.viewer.subject.clone().map(Owner::Subject).ok_or(Error::NotFound)
    }

    pub(crate) fn open(&mut self, conversation: Conversation) -> Result<Outcome, Error> {
        let owner = self.subject()?;
        if owner != Owner::Subject(conversation.owner.clone()) {
            return Err(Error::NotFound);
        }
        let keep_days = match conversation.retention {
            Retention::Session => None,
            Retention::KeptDays(days) => Some(days),
        };
        let inserted = self
            .work
            .db
            .prepare_cached(
                "INSERT INTO conversations (id, owner, keep_days, opened_at) VALUES (?1, ?2, ?3, ?4)",
            )
            .and_then(|mut row| {
                let (id, owner) = (conversation.id.as_str(), conversation.owner.as_str());
                row.execute((id, owner, keep_days, conversation.opened_at.millis()))
            });
        refuse_taken(inserted)?;
        let keys = self.work.cell.owner_keys(conversation.owner.as_str())?;
        let record = conversation.id.as_str();
        let entry = Entry { kind: ChangeType::ConversationOpened, record, commitment: None };
        self.witness_change(&owner, &keys, entry)?;
        Ok(Outcome::Opened { id: conversation.id })
    }

    pub(crate) fn append(&mut self, new: NewTurn) -> Result<Outcome, Error> {
        let owner = self.subject()?;
        let id = new.turn.conversation.clone();
        let (keep_days, last) = self.own_conversation(&id)?;
        if keep_days.is_none() {
            return Err(Error::NotKept);
        }
        let number = last.checked_add(1).ok_or(Error::Unavailable)?;
        let cell = self.work.cell;
        let (_, owner_id) = owner_columns(&cell.tenant, &owner);
        let keys = cell.owner_keys(owner_id)?;
        let turn = &new.turn;
        let text = turn.text.expose().as_bytes();
        let (commitment, opening) = commit_record(new.opening, id.as_str(), number, turn.at, text)?;
        let place = |column| turn_place(&cell.tenant, id.as_str(), number, column);
        let env = cell.env.as_ref();
        let body = keys.sealer.seal(env, place("body"), text)?;
        let terms = keys.sealer.seal(env, place("terms"), &self.terms)?;
        let opening = keys.sealer.seal(env, place("opening"), opening.as_slice())?;
        let vector = self.seal_vector(&keys, place("vector"), new.vector.as_ref())?;
        self.work
            .db
            .prepare_cached(INSERT_TURN)
            .and_then(|mut row| {
                row.execute(named_params! {
                    ":conversation": id.as_str(), ":number": number, ":owner": owner_id,
                    ":speaker": code_of(&merkwelt_domain::conversation::Speaker::ALL, turn.speaker),
                    ":at": turn.at.millis(), ":expires_at": turn.expires_at.millis(),
                    ":tokens": turn.tokens, ":body": body, ":terms": terms, ":vector": vector, ":opening": opening,
                    ":rests_on": rests_on_column(&turn.rests_on),
                    ":summary": turn.summary.as_ref().map(ToString::to_string),
                })
            })
            .sql()?;
        self.work
            .db
            .prepare_cached("UPDATE conversations SET turns = ?2 WHERE id = ?1")
            .and_then(|mut row| row.execute((id.as_str(), number)))
            .sql()?;
        self.work.touched.push(Touch::Turn(id.clone(), number));
        let kind = ChangeType::TurnAppended;
        let entry = Entry { kind, record: id.as_str(), commitment: Some(commitment) };
        self.witness_change(&owner, &keys, entry)?;
        Ok(Outcome::Appended { id, number })
    }

    pub(crate) fn delete_conversation(&mut self, id: ConversationId) -> Result<Outcome, Error> {
        let owner = self.subject()?;
        self.own_conversation(&id)?;
        let memories = self.memories_from(&id)?;
        self.work
            .db
            .prepare_cached("DELETE FROM memories WHERE conversation = ?1")
            .and_then(|mut row| row.execute([id.as_str()]))
            .sql()?;
        self.work.touched.extend(memories.iter().cloned().map(Touch::Memory));
        let turns = self
            .work
            .db
            .prepare_cached("DELETE FROM turns WHERE conversation = ?1")
            .and_then(|mut row| row.execute([id.as_str()]))
            .sql()?;
        self.work
            .db
            .prepare_cached("DELETE FROM conversations WHERE id = ?1")
            .and_then(|mut row| row.execute([id.as_str()]))
            .sql()?;
        self.work.touched.push(Touch::Conversation(id.clone()));
        let (_, owner_id) = owner_columns(&self.work.cell.tenant, &owner);
        let keys = self.work.cell.owner_keys(owner_id)?;
        let kind = ChangeType::ConversationDeleted;
        self.witness_change(&owner, &keys, Entry { kind, record: id.as_str(), commitment: None })?;
        let count = |number: usize| u32::try_from(number).map_err(|_| Error::Unavailable);
        Ok(Outcome::ConversationDeleted { id, turns: count(turns)?, memories: count(memories.len())? })
    }

    /// The memories that came from a conversation, noting whether a rule or fact is among them.
    fn memories_from(&mut self, id: &ConversationId) -> Result<Vec<MemoryId>, Error> {
        let rows: Vec<(String, u8)> = {
            let mut statement = self
                .work
                .db
                .prepare_cached("SELECT id, kind FROM memories WHERE conversation = ?1 ORDER BY id")
                .sql()?;
            let rows = statement.query_map([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).sql()?;
            rows.collect::<rusqlite::Result<_>>().sql()?
        };
        let mut memories = Vec::with_capacity(rows.len());
        for (memory, kind) in rows {
            self.touch_prefix(kind_of(kind)?);
            memories.push(memory.parse().map_err(|_| Error::Damaged)?);
        }
        memories.dedup();
        Ok(memories)
    }
}

const INSERT_MEMORY: &str = "INSERT INTO memories (id, revision, owner_kind, owner, kind, author, \
    valid_from, expires_at, no_expiry, written_at, written_by, conversation, tokens, slot_tag, text_tag, \
    body, terms, vector, opening) VALUES (:id, :revision, :owner_kind, :owner, :kind, :author, :valid_from, \
    :expires_at, :no_expiry, :written_at, :written_by, :conversation, :tokens, :slot_tag, :text_tag, \
    :body, :terms, :vector, :opening)";

const INSERT_TURN: &str = "INSERT INTO turns (conversation, number, owner, speaker, at, expires_at, tokens, \
    body, terms, vector, opening, rests_on, summary) VALUES (:conversation, :number, :owner, :speaker, :at, :expires_at, :tokens, \
    :body, :terms, :vector, :opening, :rests_on, :summary)";
