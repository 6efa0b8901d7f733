//! Who looks, and from where: a read transaction whose grant epoch was compared and whose memberships are
//! read from the same snapshot (I-2). The visibility condition is one text with bound parameters; every
//! query of content contains it.

use std::collections::BTreeSet;

use merkwelt_authz::{Class, Pass};
use merkwelt_domain::memory::Owner;
use merkwelt_domain::{ContentEpoch, GrantEpoch, GroupId, KnowledgeEpoch, PrefixEpoch, SubjectId};
use merkwelt_store::Error;
use merkwelt_store::query::ModelId;
use merkwelt_store::record::Epochs;
use rusqlite::{Connection, OptionalExtension as _};

use crate::cell::Cell;
use crate::error::Sql as _;

/// What may be seen, as a condition on `owner_kind` and `owner` with the subject bound as `:subject`.
/// Memberships are read in the same statement. For nobody in particular `:subject` is null, which is equal
/// to nothing.
macro_rules! visible {
    () => {
        "(owner_kind = 2 \
          OR (owner_kind = 0 AND owner = :subject) \
          OR (owner_kind = 1 AND owner IN (SELECT group_id FROM members WHERE subject = :subject)))"
    };
}
pub(crate) use visible;

/// What may be written, as `Scope::writes` says it, but by present membership. `:shares` says whether the
/// role may share at all.
macro_rules! writable {
    () => {
        "((owner_kind = 0 AND owner = :subject) \
          OR (:shares AND owner_kind = 2) \
          OR (:shares AND owner_kind = 1 AND (:subject IS NULL \
              OR owner IN (SELECT group_id FROM members WHERE subject = :subject))))"
    };
}
pub(crate) use writable;

/// Whether a source `s` may be shown, by its audience and present membership, read in the same statement.
macro_rules! shown {
    () => {
        "(s.audience = 0 \
          OR EXISTS (SELECT 1 FROM source_groups AS g JOIN members AS m ON m.group_id = g.group_id \
                     WHERE g.source = s.id AND m.subject = :subject))"
    };
}
pub(crate) use shown;

/// What a capability says, without its lifetime: it is made inside one store call and dropped with it.
#[derive(Debug, Clone)]
pub(crate) struct Viewer {
    pub(crate) subject: Option<SubjectId>,
    pub(crate) epoch: GrantEpoch,
    pub(crate) shared_writes: bool,
}

impl Viewer {
    pub(crate) fn of<C: Class>(pass: &Pass<'_, C>) -> Self {
        let scope = pass.scope();
        Self {
            subject: scope.subject().cloned(),
            epoch: pass.epoch(),
            shared_writes: scope.writes(&Owner::Tenant),
        }
    }

    pub(crate) fn subject(&self) -> Option<&str> {
        self.subject.as_ref().map(SubjectId::as_str)
    }
}

/// The one row of `state`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) epochs: Epochs,
    pub(crate) model: Option<ModelId>,
}

impl State {
    pub(crate) fn read(connection: &Connection) -> Result<Self, Error> {
        connection
            .prepare_cached("SELECT grants, content, prefix, model, knowledge FROM state WHERE one = 1")
            .and_then(|mut statement| {
                statement.query_row([], |row| {
                    let model: Option<String> = row.get(3)?;
                    Ok(Self {
                        epochs: Epochs {
                            grants: GrantEpoch::from_number(row.get(0)?),
                            content: ContentEpoch::from_number(row.get(1)?),
                            prefix: PrefixEpoch::from_number(row.get(2)?),
                            knowledge: KnowledgeEpoch::from_number(row.get(4)?),
                        },
                        model: model.map(|text| ModelId::recorded(&text)),
                    })
                })
            })
            .sql()
    }

    pub(crate) fn write(&self, connection: &Connection) -> Result<(), Error> {
        connection
            .prepare_cached(
                "UPDATE state SET grants = ?1, content = ?2, prefix = ?3, model = ?4, knowledge = ?5 WHERE one = 1",
            )
            .and_then(|mut statement| {
                statement.execute((
                    self.epochs.grants.number(),
                    self.epochs.content.number(),
                    self.epochs.prefix.number(),
                    self.model.as_ref().map(ModelId::as_str),
                    self.epochs.knowledge.number(),
                ))
            })
            .sql()?;
        Ok(())
    }
}

/// Refuses a capability that does not hold any more: its subject is being erased or is gone, or grants
/// moved since it was minted (I-2, I-9).
pub(crate) fn admit(connection: &Connection, viewer: &Viewer, state: &State) -> Result<(), Error> {
    // INVARIANT: I-2, compared in the transaction in which rows are read and written.
    if viewer.epoch != state.epochs.grants {
        return Err(Error::GrantsMoved);
    }
    match viewer.subject() {
        Some(subject) if !is_active(connection, subject)? => Err(Error::Erasing),
        Some(_) | None => Ok(()),
    }
}

/// Whether a subject is known and is not being erased.
pub(crate) fn is_active(connection: &Connection, subject: &str) -> Result<bool, Error> {
    let erasing: Option<bool> = connection
        .prepare_cached("SELECT erasing FROM subjects WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([subject], |row| row.get(0)).optional())
        .sql()?;
    Ok(erasing == Some(false))
}

/// Present memberships.
pub(crate) fn groups_of(connection: &Connection, subject: &str) -> Result<BTreeSet<GroupId>, Error> {
    let mut statement = connection.prepare_cached("SELECT group_id FROM members WHERE subject = ?1").sql()?;
    let rows = statement.query_map([subject], |row| row.get::<_, String>(0)).sql()?;
    rows.map(|id| id.sql()?.parse().map_err(|_| Error::Damaged)).collect()
}

/// An open read transaction that was admitted.
pub(crate) struct Snapshot<'c> {
    pub(crate) cell: &'c Cell,
    pub(crate) db: &'c Connection,
    pub(crate) viewer: &'c Viewer,
    pub(crate) state: State,
}

impl<'c> Snapshot<'c> {
    pub(crate) fn take(cell: &'c Cell, db: &'c Connection, viewer: &'c Viewer) -> Result<Self, Error> {
        let state = State::read(db)?;
        admit(db, viewer, &state)?;
        Ok(Self { cell, db, viewer, state })
    }

    pub(crate) fn groups(&self) -> Result<BTreeSet<GroupId>, Error> {
        self.viewer.subject().map_or_else(|| Ok(BTreeSet::new()), |subject| groups_of(self.db, subject))
    }
}
