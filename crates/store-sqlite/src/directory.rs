//! Subjects, groups and members: who may see what, and the pseudonyms of persons. The customer's reference
//! to a person is kept as a keyed tag to find it and as ciphertext under the person's key to show it.

use std::collections::BTreeSet;

use merkwelt_authz::{Grants, Principal};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{FaultPoint, GroupId, GroupName, SubjectId, SubjectRef, Timestamp};
use merkwelt_ledger::entry::EntryType;
use merkwelt_store::change::EntryRef;
use merkwelt_store::{DirectoryChange, Error, Group};
use rusqlite::{Connection, OptionalExtension as _};

use crate::cell::Cell;
use crate::change::random_id;
use crate::error::Sql as _;
use crate::present::Who;
use crate::rows::{blob_at, code_of, decoded, plain_place, text_at};
use crate::snapshot::{Snapshot, State, Viewer, admit, groups_of, is_active};
use crate::witness::Witness;
use crate::writer::Work;

/// A subject found by the customer's reference.
enum Known {
    Active(SubjectId),
    Erasing,
}

/// Present grants of a subject, or of nobody in particular; `None` for one who is being erased or is gone.
fn grants_of(db: &Connection, subject: Option<SubjectId>) -> Result<Option<Grants>, Error> {
    let epoch = State::read(db)?.epochs.grants;
    let Some(subject) = subject else {
        return Ok(Some(Grants { epoch, subject: None, groups: BTreeSet::new() }));
    };
    if !is_active(db, subject.as_str())? {
        return Ok(None);
    }
    let groups = groups_of(db, subject.as_str())?;
    Ok(Some(Grants { epoch, subject: Some(subject), groups }))
}

impl Cell {
    /// Present grants of a principal. A subject named for the first time gets its pseudonym here.
    pub(crate) fn grants(&self, principal: &Principal) -> Result<Option<Grants>, Error> {
        let grants = self.read_grants(principal)?;
        if let Some(grants) = &grants {
            self.present.keep(Who::of(principal, &self.keys), grants);
        }
        Ok(grants)
    }

    fn read_grants(&self, principal: &Principal) -> Result<Option<Grants>, Error> {
        let subject = match principal {
            Principal::Nobody => None,
            Principal::Bound(subject) => Some(subject.clone()),
            Principal::Named(reference) => {
                // Who is known is found in the snapshot in which their groups are read.
                let tag = self.keys.reference_tag(reference.expose());
                let known = self.snapshot(|_, db| match find(db, &tag)? {
                    Some(Known::Active(subject)) => grants_of(db, Some(subject)).map(Some),
                    Some(Known::Erasing) => Ok(Some(None)),
                    None => Ok(None),
                })?;
                if let Some(grants) = known {
                    return Ok(grants);
                }
                match self.subject(reference) {
                    Ok(subject) => Some(subject),
                    Err(Error::Erasing) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        };
        self.snapshot(|_, db| grants_of(db, subject))
    }

    /// The pseudonym of a person, made if there is none. [`Error::Erasing`] while the person is being erased.
    pub(crate) fn subject(&self, reference: &SubjectRef) -> Result<SubjectId, Error> {
        let tag = self.keys.reference_tag(reference.expose());
        match self.snapshot(|_, db| find(db, &tag))? {
            Some(Known::Active(id)) => Ok(id),
            Some(Known::Erasing) => Err(Error::Erasing),
            None => self.register(reference, tag),
        }
    }

    /// The key first, then the row that needs it.
    fn register(&self, reference: &SubjectRef, tag: [u8; 32]) -> Result<SubjectId, Error> {
        let id = SubjectId::random(self.env.as_ref());
        self.ring.add(self.env.as_ref(), &self.keys, id.as_str())?;
        let registered = self.register_row(&id, reference, tag);
        if registered.as_ref() != Ok(&id) {
            self.discard_unused(id.as_str(), registered.as_ref().err().copied());
        }
        registered
    }

    /// Takes back a key whose row was refused: somebody else was first, or grants moved.
    pub(crate) fn discard_unused(&self, owner: &str, refused: Option<Error>) {
        // INVARIANT: no row is ever without its key. Where it is not known whether the row is durable, the key
        // stays; one without a row is of no use to anybody.
        if !matches!(refused, Some(Error::Unavailable | Error::Damaged)) {
            let _ = self.ring.discard(owner);
        }
    }

    fn register_row(
        &self,
        id: &SubjectId,
        reference: &SubjectRef,
        tag: [u8; 32],
    ) -> Result<SubjectId, Error> {
        self.env.reach(FaultPoint::AfterKey).map_err(|_| Error::Unavailable)?;
        let keys = self.owner_keys(id.as_str())?;
        let place = plain_place(&self.tenant, "subjects", id.as_str());
        let sealed = keys.sealer.seal(self.env.as_ref(), place, reference.expose().as_bytes())?;
        let id = id.clone();
        self.write_blocking(move |work| match find(work.db, &tag)? {
            Some(Known::Active(id)) => Ok(id),
            Some(Known::Erasing) => Err(Error::Erasing),
            None => {
                let sql = "INSERT INTO subjects (id, ref_tag, reference) VALUES (?1, ?2, ?3)";
                work.db.execute(sql, (id.as_str(), tag.as_slice(), sealed)).sql()?;
                Ok(id)
            }
        })
    }

    /// Changes the directory; `None` if it was so already.
    pub(crate) fn change_directory(
        &self,
        viewer: Viewer,
        witness: Witness,
        change: DirectoryChange,
        at: Timestamp,
    ) -> Result<Option<EntryRef>, Error> {
        match change {
            DirectoryChange::CreateGroup { id, name } => self.create_group(viewer, witness, id, name, at),
            DirectoryChange::DeleteGroup { name } => self.write_blocking(move |work| {
                admit(work.db, &viewer, &work.state)?;
                let group = group_by_name(work.db, &name)?;
                work.db.execute("DELETE FROM groups WHERE id = ?1", [&group]).sql()?;
                let draft = witness.admin(EntryType::DirectoryChanged, "group_deleted", &group, None)?;
                work.raise_grants();
                work.raise_knowledge();
                work.append(&[draft], at)
            }),
            DirectoryChange::AddMember { group, subject } => {
                // Nobody is registered for a group that there is not, or under a stale capability.
                self.read(&viewer, |snapshot| group_by_name(snapshot.db, &group).map(|_| ()))?;
                let subject = self.subject(&subject)?;
                self.change_member(viewer, witness, Member { group, subject, added: true }, at)
            }
            DirectoryChange::RemoveMember { group, subject } => {
                let tag = self.keys.reference_tag(subject.expose());
                // Who is not known is no member; nobody is registered for being removed.
                match self.snapshot(|_, db| find(db, &tag))? {
                    Some(Known::Active(subject)) => {
                        self.change_member(viewer, witness, Member { group, subject, added: false }, at)
                    }
                    Some(Known::Erasing) | None => self.write_blocking(move |work| {
                        admit(work.db, &viewer, &work.state)?;
                        group_by_name(work.db, &group).map(|_| None)
                    }),
                }
            }
            DirectoryChange::SetSwitch(switch) => self.set_switch(viewer, witness, switch, at),
        }
    }

    fn set_switch(
        &self,
        viewer: Viewer,
        witness: Witness,
        switch: OrganisationSwitch,
        at: Timestamp,
    ) -> Result<Option<EntryRef>, Error> {
        self.write_blocking(move |work| {
            admit(work.db, &viewer, &work.state)?;
            let code = code_of(&OrganisationSwitch::ALL, switch);
            let sql = "UPDATE state SET organisation_switch = ?1 WHERE organisation_switch <> ?1";
            if work.db.execute(sql, [code]).sql()? == 0 {
                return Ok(None);
            }
            let (kind, word) = (EntryType::DirectoryChanged, format!("switch_{}", switch.name()));
            let draft = witness.admin(kind, &word, work.cell.tenant.as_str(), None)?;
            work.raise_grants();
            work.raise_knowledge();
            work.append(&[draft], at)
        })
    }

    fn create_group(
        &self,
        viewer: Viewer,
        witness: Witness,
        id: GroupId,
        name: GroupName,
        at: Timestamp,
    ) -> Result<Option<EntryRef>, Error> {
        self.ring.add(self.env.as_ref(), &self.keys, id.as_str()).map_err(|error| {
            // Damage here is a key of that id: the id is taken.
            if error == Error::Damaged { Error::Exists } else { error }
        })?;
        let group = id.clone();
        let created = self.env.reach(FaultPoint::AfterKey).map_err(|_| Error::Unavailable).and_then(|()| {
            self.write_blocking(move |work| {
                admit(work.db, &viewer, &work.state)?;
                if group_by_name(work.db, &name).is_ok() {
                    return Err(Error::Exists);
                }
                let sql = "INSERT INTO groups (id, name) VALUES (?1, ?2)";
                work.db.execute(sql, (group.as_str(), name.as_str())).sql()?;
                let kind = EntryType::DirectoryChanged;
                let draft = witness.admin(kind, "group_created", group.as_str(), None)?;
                work.raise_grants();
                work.raise_knowledge();
                work.append(&[draft], at)
            })
        });
        if let Err(refused) = &created {
            self.discard_unused(id.as_str(), Some(*refused));
        }
        created
    }

    fn change_member(
        &self,
        viewer: Viewer,
        witness: Witness,
        member: Member,
        at: Timestamp,
    ) -> Result<Option<EntryRef>, Error> {
        self.write_blocking(move |work| {
            admit(work.db, &viewer, &work.state)?;
            let group = group_by_name(work.db, &member.group)?;
            if !is_active(work.db, member.subject.as_str())? {
                return Err(Error::Erasing);
            }
            let (sql, change) = if member.added {
                ("INSERT OR IGNORE INTO members (group_id, subject) VALUES (?1, ?2)", "member_added")
            } else {
                ("DELETE FROM members WHERE group_id = ?1 AND subject = ?2", "member_removed")
            };
            if work.db.execute(sql, (&group, member.subject.as_str())).sql()? == 0 {
                return Ok(None);
            }
            let keys = work.cell.owner_keys(member.subject.as_str())?;
            let event = random_id(work.cell.env.as_ref());
            let person = Some((&keys.tags, event.as_str()));
            let draft = witness.admin(EntryType::DirectoryChanged, change, &group, person)?;
            work.raise_grants();
            work.raise_knowledge();
            work.append(&[draft], at)
        })
    }
}

struct Member {
    group: GroupName,
    subject: SubjectId,
    added: bool,
}

impl Work<'_> {
    /// Every capability minted before is refused from the commit on (I-2).
    pub(crate) fn raise_grants(&mut self) {
        self.state.epochs.grants = self.state.epochs.grants.next();
    }

    /// Rights to sources may have changed.
    pub(crate) fn raise_knowledge(&mut self) {
        self.state.epochs.knowledge = self.state.epochs.knowledge.next();
    }
}

fn find(db: &Connection, tag: &[u8; 32]) -> Result<Option<Known>, Error> {
    let row: Option<(String, bool)> = db
        .prepare_cached("SELECT id, erasing FROM subjects WHERE ref_tag = ?1")
        .and_then(|mut statement| {
            statement.query_row([tag.as_slice()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .sql()?;
    Ok(match row {
        None => None,
        Some((_, true)) => Some(Known::Erasing),
        Some((id, false)) => Some(Known::Active(id.parse().map_err(|_| Error::Damaged)?)),
    })
}

fn group_by_name(db: &Connection, name: &GroupName) -> Result<String, Error> {
    db.prepare_cached("SELECT id FROM groups WHERE name = ?1")
        .and_then(|mut statement| statement.query_row([name.as_str()], |row| row.get(0)).optional())
        .sql()?
        .ok_or(Error::NotFound)
}

impl Snapshot<'_> {
    /// All groups by name.
    pub(crate) fn organisation_switch(&self) -> Result<OrganisationSwitch, Error> {
        let sql = "SELECT organisation_switch FROM state WHERE one = 1";
        decoded(&OrganisationSwitch::ALL, self.db.query_row(sql, [], |row| row.get(0)).sql()?)
    }

    pub(crate) fn all_groups(&self) -> Result<Vec<Group>, Error> {
        let mut statement = self
            .db
            .prepare_cached(
                "SELECT id, name, (SELECT count(*) FROM members WHERE group_id = groups.id)
                 FROM groups ORDER BY name",
            )
            .sql()?;
        let mut rows = statement.query([]).sql()?;
        let mut groups = Vec::new();
        while let Some(row) = rows.next().sql()? {
            groups.push(Group {
                id: text_at(row, 0)?.parse().map_err(|_| Error::Damaged)?,
                name: text_at(row, 1)?.parse().map_err(|_| Error::Damaged)?,
                members: row.get(2).sql()?,
            });
        }
        Ok(groups)
    }

    /// The members of a group as the customer refers to them.
    pub(crate) fn members(&self, group: &GroupName) -> Result<Vec<SubjectRef>, Error> {
        let group = group_by_name(self.db, group)?;
        let mut statement = self
            .db
            .prepare_cached(
                "SELECT id, reference FROM subjects JOIN members ON members.subject = subjects.id
                 WHERE group_id = ?1 AND erasing = 0",
            )
            .sql()?;
        let mut rows = statement.query([&group]).sql()?;
        let mut members = Vec::new();
        while let Some(row) = rows.next().sql()? {
            let id = text_at(row, 0)?;
            let keys = self.cell.owner_keys(id)?;
            let place = plain_place(&self.cell.tenant, "subjects", id);
            let plain = keys.sealer.open(place, blob_at(row, 1)?)?;
            let text = std::str::from_utf8(&plain).map_err(|_| Error::Damaged)?;
            members.push(text.parse().map_err(|_| Error::Damaged)?);
        }
        members.sort();
        Ok(members)
    }
}
