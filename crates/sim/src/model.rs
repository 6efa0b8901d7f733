//! The oracle: what was written, whose it is, and what became of it. It knows nothing of epochs, indexes, caches
//! or files; it answers by looking at everything.

use std::collections::BTreeSet;

use merkwelt_domain::freshness::SKEW_MILLIS;
use merkwelt_domain::memory::Kind;
use merkwelt_domain::{ConversationId, MemoryId, PackId};

use crate::marker::{Serial, word};

/// A person in one of their lives: who is erased and comes back is somebody else.
pub(crate) type Life = (usize, u32);

/// Whose something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whose {
    Person(Life),
    Group(Life),
    Everybody,
}

/// What became of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is the latest revision.
    Stands,
    /// A newer one took its place.
    Superseded,
    /// It was withdrawn.
    Retracted,
    /// It is nowhere any more.
    Gone,
}

/// One revision of a memory.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) serial: Serial,
    pub(crate) whose: Whose,
    pub(crate) kind: Kind,
    pub(crate) slot: Option<u8>,
    pub(crate) from: i64,
    pub(crate) end: i64,
    pub(crate) written: i64,
    pub(crate) talk: Option<usize>,
    pub(crate) id: Option<MemoryId>,
    pub(crate) revision: u32,
    pub(crate) fate: Fate,
}

impl Item {
    /// Whether it may be served as current at a time.
    pub(crate) fn is_current(&self, now: i64) -> bool {
        self.fate == Fate::Stands && self.from <= now && now < self.end && self.written <= now + SKEW_MILLIS
    }

    /// Whether a pack that once showed it may show it again.
    fn is_kept(&self, now: i64) -> bool {
        self.fate != Fate::Gone && now < self.end
    }
}

/// One turn.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) serial: Serial,
    pub(crate) number: u32,
    pub(crate) at: i64,
    pub(crate) end: i64,
}

impl Said {
    pub(crate) fn is_current(&self, now: i64) -> bool {
        self.at <= now && now < self.end
    }
}

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct Talk {
    pub(crate) owner: Life,
    pub(crate) kept_days: Option<u32>,
    pub(crate) id: Option<ConversationId>,
    pub(crate) gone: bool,
    pub(crate) said: Vec<Said>,
}

/// A delivered pack.
#[derive(Debug, Clone)]
pub(crate) struct Delivered {
    pub(crate) owner: Option<Life>,
    pub(crate) id: PackId,
    pub(crate) body: Vec<u8>,
}

/// What became of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    /// The erasure was accepted and is not finished.
    Erasing,
}

/// A person, by a name that the customer may use again after an erasure.
#[derive(Debug, Clone)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) life: u32,
    pub(crate) presence: Presence,
}

/// A group, by a name that may be used again.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) life: u32,
    pub(crate) exists: bool,
    pub(crate) members: BTreeSet<Life>,
    pub(crate) serial: Serial,
}

/// One tenant as it should be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tenant {
    pub(crate) persons: Vec<Person>,
    pub(crate) groups: Vec<Group>,
    pub(crate) items: Vec<Item>,
    pub(crate) talks: Vec<Talk>,
    pub(crate) packs: Vec<Delivered>,
}

/// Who asks in a tenant; nobody in particular is `None`.
pub(crate) type Asker = Option<Life>;

impl Tenant {
    /// A person in their present life.
    pub(crate) fn life(&self, person: usize) -> Life {
        (person, self.persons.get(person).map_or(0, |person| person.life))
    }

    pub(crate) fn group_life(&self, group: usize) -> Life {
        (group, self.groups.get(group).map_or(0, |group| group.life))
    }

    pub(crate) fn is_member(&self, group: Life, person: Life) -> bool {
        let same = |found: &&Group| found.exists && found.life == group.1;
        self.groups.get(group.0).filter(same).is_some_and(|group| group.members.contains(&person))
    }

    /// Whether somebody may see what belongs to an owner.
    pub(crate) fn sees(&self, asker: Asker, whose: Whose) -> bool {
        match (whose, asker) {
            (Whose::Everybody, _) => true,
            (Whose::Person(owner), Some(asker)) => owner == asker,
            (Whose::Group(group), Some(asker)) => self.is_member(group, asker),
            (Whose::Person(_) | Whose::Group(_), None) => false,
        }
    }

    /// The memory with a word.
    pub(crate) fn item(&self, serial: Serial) -> Option<&Item> {
        self.items.iter().find(|item| item.serial == serial)
    }

    /// What somebody may be served as current.
    pub(crate) fn current(&self, asker: Asker, now: i64) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.is_current(now) && self.sees(asker, item.whose))
    }

    /// Serials of current memories of these kinds.
    pub(crate) fn serials(&self, asker: Asker, now: i64, kinds: &[Kind]) -> BTreeSet<Serial> {
        self.current(asker, now).filter(|item| kinds.contains(&item.kind)).map(|item| item.serial).collect()
    }

    /// Kept turns that may be served, of one conversation or of all.
    pub(crate) fn turns(&self, asker: Asker, now: i64, of: Option<usize>) -> BTreeSet<Serial> {
        let own = |(place, talk): &(usize, &Talk)| {
            let kept = !talk.gone && talk.kept_days.is_some();
            kept && Some(talk.owner) == asker && of.is_none_or(|of| of == *place)
        };
        self.talks
            .iter()
            .enumerate()
            .filter(own)
            .flat_map(|(_, talk)| talk.said.iter().filter(|said| said.is_current(now)))
            .map(|said| said.serial)
            .collect()
    }

    /// Everything that may be in an answer to somebody: current memories and turns.
    pub(crate) fn servable(&self, asker: Asker, now: i64) -> BTreeSet<Serial> {
        let mut all = self.serials(asker, now, &Kind::ALL);
        all.extend(self.turns(asker, now, None));
        all
    }

    /// Everything that may be in a pack that is made again.
    pub(crate) fn rebuildable(&self, asker: Asker, now: i64) -> BTreeSet<Serial> {
        let kept = |item: &&Item| item.is_kept(now) && self.sees(asker, item.whose);
        let mut all: BTreeSet<Serial> = self.items.iter().filter(kept).map(|item| item.serial).collect();
        all.extend(self.turns(asker, now, None));
        all
    }

    /// Whether somebody may write for an owner with a key that shares.
    pub(crate) fn writes(&self, asker: Life, whose: Whose) -> bool {
        match whose {
            Whose::Everybody => true,
            Whose::Person(owner) => owner == asker,
            Whose::Group(group) => self.is_member(group, asker),
        }
    }

    /// The latest revision of a memory.
    pub(crate) fn latest(&self, id: &MemoryId) -> Option<&Item> {
        self.items.iter().rfind(|item| item.id.as_ref() == Some(id) && item.fate != Fate::Gone)
    }

    /// What stands in a slot of an owner.
    pub(crate) fn in_slot(&self, whose: Whose, slot: u8) -> Option<usize> {
        let there = |item: &Item| item.whose == whose && item.slot == Some(slot) && item.fate == Fate::Stands;
        self.items.iter().rposition(there)
    }

    pub(crate) fn own_talk(&self, talk: usize, asker: Life) -> Option<&Talk> {
        self.talks.get(talk).filter(|talk| !talk.gone && talk.owner == asker)
    }

    /// A conversation goes with its turns and the memories that came from it.
    pub(crate) fn delete_talk(&mut self, talk: usize) {
        if let Some(talk) = self.talks.get_mut(talk) {
            talk.gone = true;
            talk.said.clear();
        }
        for item in self.items.iter_mut().filter(|item| item.talk == Some(talk)) {
            item.fate = Fate::Gone;
        }
    }

    /// A person goes; who is named so afterwards is somebody else.
    pub(crate) fn erase(&mut self, life: Life) {
        for item in self.items.iter_mut().filter(|item| item.whose == Whose::Person(life)) {
            item.fate = Fate::Gone;
        }
        let mut unlinked = BTreeSet::new();
        for (place, talk) in self.talks.iter_mut().enumerate().filter(|(_, talk)| talk.owner == life) {
            talk.gone = true;
            talk.said.clear();
            unlinked.insert(place);
        }
        for item in &mut self.items {
            // What is shared stays, but no longer says in whose conversation it arose.
            if item.talk.is_some_and(|talk| unlinked.contains(&talk)) {
                item.talk = None;
            }
        }
        for group in &mut self.groups {
            group.members.remove(&life);
        }
        self.packs.retain(|pack| pack.owner != Some(life));
    }

    /// Conversations of a process are gone with it.
    pub(crate) fn end_sittings(&mut self) {
        for talk in self.talks.iter_mut().filter(|talk| talk.kept_days.is_none()) {
            talk.said.clear();
        }
    }
}

const TENANTS_MAX: Serial = 4;

/// Everything there should be, and whose each serial is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) tenants: Vec<Tenant>,
    /// How many words each tenant has. Those of one do not depend on another's.
    words: Vec<Serial>,
}

impl Model {
    /// Tenants with persons and groups, nothing written.
    pub(crate) fn new(tenants: usize, persons: usize, groups: usize) -> Self {
        let mut model = Self::default();
        for tenant in 0..tenants {
            model.tenants.push(Tenant::default());
            model.words.push(0);
            for _ in 0..persons {
                let serial = model.serial(tenant);
                let (name, presence) = (format!("person-{}", word(serial)), Presence::Here);
                model.tenant_mut(tenant, |t| t.persons.push(Person { name, life: 0, presence }));
            }
            for _ in 0..groups {
                let serial = model.serial(tenant);
                let name = format!("group-{}", word(serial));
                let group = Group { name, life: 0, exists: false, members: BTreeSet::new(), serial };
                model.tenant_mut(tenant, |t| t.groups.push(group));
            }
        }
        model
    }

    /// A new unique word of a tenant.
    pub(crate) fn serial(&mut self, tenant: usize) -> Serial {
        let place = Serial::try_from(tenant).unwrap_or(0);
        let Some(count) = self.words.get_mut(tenant) else { return 0 };
        *count += 1;
        *count * TENANTS_MAX + place
    }

    /// Whose word it is.
    pub(crate) fn tenant_of(&self, serial: Serial) -> Option<usize> {
        usize::try_from(serial % TENANTS_MAX).ok().filter(|tenant| *tenant < self.tenants.len())
    }

    pub(crate) fn tenant_mut<T>(
        &mut self,
        tenant: usize,
        change: impl FnOnce(&mut Tenant) -> T,
    ) -> Option<T> {
        self.tenants.get_mut(tenant).map(change)
    }
}
