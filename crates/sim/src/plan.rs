//! What callers do, drawn from the seed: who asks for what with which key. A plan is complete before it runs, so
//! that it can be tried again and written to the trace.

use std::collections::BTreeMap;

use merkwelt_authz::{ApiKey, Role};
use merkwelt_domain::memory::Kind;
use merkwelt_domain::{ConversationId, MemoryId, PackId};

use crate::draws::Draws;
use crate::marker::{Serial, word};
use crate::model::{Asker, Life, Model, Tenant};

/// A key as its holder knows it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) role: Role,
    pub(crate) key: ApiKey,
    pub(crate) bound: Option<Life>,
    pub(crate) revoked: bool,
    /// Whether a fault left open if it was revoked.
    pub(crate) unsure: bool,
}

/// Whose a note is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Oneself,
    Group(usize),
    Everybody,
}

/// A statement to write.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) serial: Serial,
    pub(crate) whose: For,
    pub(crate) kind: Kind,
    pub(crate) slot: Option<u8>,
    pub(crate) from: Option<i64>,
    pub(crate) end: i64,
    pub(crate) talk: Option<(usize, ConversationId)>,
}

/// A conversation: of which tenant, its place there, its id.
pub(crate) type TalkAt = (usize, usize, ConversationId);

/// Which turns a search takes in.
#[derive(Debug, Clone)]
pub(crate) enum TurnsIn {
    None,
    All,
    Of(TalkAt),
}

/// The bytes of an answer.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Remember { notes: Vec<Note>, again: Option<u32> },
    Correct { id: MemoryId, expected: Option<u32>, note: Note },
    Retract { id: MemoryId },
    Open { kept: Option<u32> },
    Say { talk: TalkAt, serial: Serial },
    ReadTalk { talk: TalkAt, limit: u16 },
    Talks,
    DeleteTalk { talk: TalkAt },
    Recall { aim: Option<Serial>, words: String, k: u16, kinds: Vec<Kind>, turns: TurnsIn },
    Read { id: MemoryId },
    List { kinds: Vec<Kind>, limit: u16 },
    Context { words: String, budget: u32, talk: Option<TalkAt> },
    Pack { id: PackId, owner: (usize, Asker), body: Bytes },
    MakeGroup { group: usize },
    DropGroup { group: usize },
    Join { group: usize, person: usize },
    Leave { group: usize, person: usize },
    Groups,
    Members { group: usize },
    Erase,
    NewKey { role: Role, bound: Option<usize> },
    RevokeKey { client: usize },
}

/// Who asks for what.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tenant: usize,
    pub(crate) client: usize,
    /// The person named in the request.
    pub(crate) person: Option<usize>,
    /// The person the key is bound to.
    pub(crate) bound: Option<Life>,
    pub(crate) role: Role,
    pub(crate) op: Op,
}

impl Plan {
    /// For whom the request acts, if it may act at all.
    pub(crate) fn asker(&self, tenant: &Tenant) -> Asker {
        self.bound.or_else(|| self.person.map(|person| tenant.life(person)))
    }
}

const VOCABULARY: [&str; 16] = [
    "delivery", "invoice", "allergic", "deadline", "contract", "quarter", "machine", "order", "holiday",
    "payment", "refund", "shipping", "warranty", "meeting", "address", "discount",
];

/// The text of a serial: its own word among words that everybody uses.
pub(crate) fn text_of(serial: Serial) -> String {
    let mut draws = Draws::of(u64::from(serial));
    let common = common(&mut draws, 1 + usize::try_from(serial % 4).unwrap_or(0));
    format!("{} {common}", word(serial))
}

fn common(draws: &mut Draws, count: usize) -> String {
    let words: Vec<&str> = (0..count).filter_map(|_| draws.pick(&VOCABULARY).copied()).collect();
    words.join(" ")
}

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Draws plans over the present state of things.
pub(crate) struct Planner<'p> {
    pub(crate) draws: &'p mut Draws,
    pub(crate) model: &'p mut Model,
    pub(crate) clients: &'p [Vec<Client>],
    pub(crate) now: i64,
    /// Earlier writes of each tenant that may be sent again, with their numbers.
    pub(crate) sent: &'p mut BTreeMap<usize, Vec<(Plan, u32)>>,
    /// Whether ids of other tenants are tried too.
    pub(crate) curious: bool,
}

impl Planner<'_> {
    /// A plan in a tenant; `None` if what was drawn does not exist yet.
    pub(crate) fn draw(&mut self, tenant: usize) -> Option<Plan> {
        let person = self.draws.below(self.persons(tenant));
        let drawn = self.draws.below(100);
        let op = match drawn {
            0..=19 => return self.remember(tenant, person),
            20..=24 => self.correct(tenant, person)?,
            25..=28 => Op::Retract { id: self.memory(tenant)? },
            29..=32 => Op::Open { kept: self.draws.chance(70).then_some(2) },
            33..=39 => Op::Say { talk: self.talk(tenant, person)?, serial: self.model.serial(tenant) },
            40..=43 => Op::ReadTalk { talk: self.talk(tenant, person)?, limit: self.limit() },
            44 => Op::Talks,
            45..=46 => Op::DeleteTalk { talk: self.talk(tenant, person)? },
            47..=57 => self.recall(tenant, person),
            58..=63 => Op::Read { id: self.memory(tenant)? },
            64..=69 => Op::List { kinds: self.kinds(), limit: self.limit() },
            70..=78 => self.context(tenant, person),
            79..=82 => self.pack(tenant)?,
            83..=94 => return self.administer(tenant, person),
            95..=96 => return self.misuse(tenant, person),
            _ => return self.keys(tenant),
        };
        let agent = matches!(op, Op::Recall { .. } | Op::Context { .. } | Op::Read { .. } | Op::List { .. })
            && self.draws.chance(15);
        let nobody = matches!(op, Op::Recall { .. } | Op::List { .. } | Op::Context { talk: None, .. })
            && self.draws.chance(6);
        self.plan(tenant, (!nobody).then_some(person), if agent { Role::Agent } else { Role::App }, op)
    }

    fn persons(&self, tenant: usize) -> usize {
        self.model.tenants.get(tenant).map_or(0, |tenant| tenant.persons.len())
    }

    fn groups(&self, tenant: usize) -> usize {
        self.model.tenants.get(tenant).map_or(0, |tenant| tenant.groups.len())
    }

    /// A plan with a key of that role; seldom one that was revoked.
    pub(crate) fn plan(&mut self, tenant: usize, person: Option<usize>, role: Role, op: Op) -> Option<Plan> {
        let ended = self.draws.chance(4);
        let clients = self.clients.get(tenant)?;
        let fits: Vec<usize> = clients
            .iter()
            .enumerate()
            .filter(|(_, client)| client.role == role && (ended || !client.revoked))
            .map(|(place, _)| place)
            .collect();
        let client = *self.draws.pick(&fits)?;
        let bound = clients.get(client)?.bound;
        let person = if bound.is_some() { None } else { person };
        Some(Plan { tenant, client, person, bound, role, op })
    }

    fn remember(&mut self, tenant: usize, person: usize) -> Option<Plan> {
        if self.draws.chance(15) {
            let (mut plan, number) = self.draws.pick(self.sent.get(&tenant)?)?.clone();
            if let Op::Remember { again, .. } = &mut plan.op {
                *again = Some(number);
            }
            return Some(plan);
        }
        let count = 1 + self.draws.below(3);
        let notes = (0..count).map(|_| self.note(tenant, person)).collect();
        let sent = self.sent.get(&tenant).map_or(0, Vec::len);
        let number = u32::try_from(sent).unwrap_or(u32::MAX);
        let again = self.draws.chance(40).then_some(number);
        let plan = self.plan(tenant, Some(person), Role::App, Op::Remember { notes, again })?;
        if again.is_some() {
            self.sent.entry(tenant).or_default().push((plan.clone(), number));
        }
        Some(plan)
    }

    fn note(&mut self, tenant: usize, person: usize) -> Note {
        let whose = match self.draws.below(10) {
            0..=5 => For::Oneself,
            6..=8 => For::Group(self.draws.below(self.groups(tenant))),
            _ => For::Everybody,
        };
        let kind = match self.draws.below(8) {
            0 => Kind::Feedback,
            1..=2 => Kind::ProjectState,
            3 => Kind::Reference,
            _ => Kind::UserFact,
        };
        let slot = self.draws.chance(35).then(|| u8::try_from(self.draws.below(3)).unwrap_or(0));
        let from =
            (slot.is_none() && self.draws.chance(12)).then(|| self.now + self.draws.between(-HOUR, HOUR));
        let end = self.now.max(from.unwrap_or(0)) + self.lifetime();
        let talk = if self.draws.chance(20) { self.own_talk(tenant, person) } else { None };
        let serial = self.model.serial(tenant);
        Note { serial, whose, kind, slot, from, end, talk: talk.map(|(_, place, id)| (place, id)) }
    }

    fn lifetime(&mut self) -> i64 {
        match self.draws.below(4) {
            0 => self.draws.between(1, 20_000),
            1 => self.draws.between(1, 2 * HOUR),
            _ => self.draws.between(DAY, 90 * DAY),
        }
    }

    fn correct(&mut self, tenant: usize, person: usize) -> Option<Op> {
        let id = self.memory(tenant)?;
        let found = self.model.tenants.iter().find_map(|tenant| tenant.latest(&id))?;
        let (kind, slot, revision) = (found.kind, found.slot, found.revision);
        let mut note = Note { kind, slot, from: None, ..self.note(tenant, person) };
        note.end = self.now + self.lifetime();
        let expected = match self.draws.below(4) {
            0 => Some(revision),
            1 => Some(revision + 1),
            _ => None,
        };
        Some(Op::Correct { id, expected, note })
    }

    /// A memory of the tenant, or, now and then, of another.
    fn memory(&mut self, tenant: usize) -> Option<MemoryId> {
        let tenant = self.mostly(tenant);
        let items = &self.model.tenants.get(tenant)?.items;
        let recent = items.len().saturating_sub(12);
        let from = if self.draws.chance(60) { recent } else { 0 };
        let place = from + self.draws.below(items.len() - from);
        items.get(place)?.id.clone()
    }

    fn mostly(&mut self, tenant: usize) -> usize {
        let other = self.draws.chance(15) && self.curious;
        if other { self.draws.below(self.model.tenants.len()) } else { tenant }
    }

    fn own_talk(&mut self, tenant: usize, person: usize) -> Option<TalkAt> {
        let found = self.model.tenants.get(tenant)?;
        let life = found.life(person);
        let own: Vec<TalkAt> = found
            .talks
            .iter()
            .enumerate()
            .filter(|(_, talk)| talk.owner == life && !talk.gone)
            .filter_map(|(place, talk)| Some((tenant, place, talk.id.clone()?)))
            .collect();
        self.draws.pick(&own).cloned()
    }

    /// A conversation: mostly one's own, else any.
    fn talk(&mut self, tenant: usize, person: usize) -> Option<TalkAt> {
        if self.draws.chance(80) {
            return self.own_talk(tenant, person);
        }
        let tenant = self.mostly(tenant);
        let talks = &self.model.tenants.get(tenant)?.talks;
        let place = self.draws.below(talks.len());
        Some((tenant, place, talks.get(place)?.id.clone()?))
    }

    fn limit(&mut self) -> u16 {
        if self.draws.chance(30) { 2 } else { 500 }
    }

    fn kinds(&mut self) -> Vec<Kind> {
        if self.draws.chance(60) {
            return Kind::ALL.to_vec();
        }
        Kind::ALL.into_iter().filter(|_| self.draws.chance(50)).collect()
    }

    /// A question: for the word of one text of any owner, or in everybody's words.
    fn question(&mut self, tenant: usize) -> (Option<Serial>, String) {
        let words = common(self.draws, 2);
        let tenant = self.mostly(tenant);
        let items = self.model.tenants.get(tenant).map_or(&[][..], |tenant| &tenant.items);
        let aim = if self.draws.chance(60) { self.draws.pick(items).map(|item| item.serial) } else { None };
        (aim, aim.map_or(words, word))
    }

    fn recall(&mut self, tenant: usize, person: usize) -> Op {
        let (aim, words) = self.question(tenant);
        let k = if self.draws.chance(40) { 3 } else { 200 };
        let turns = match self.draws.below(3) {
            0 => TurnsIn::None,
            1 => TurnsIn::All,
            _ => self.talk(tenant, person).map_or(TurnsIn::All, TurnsIn::Of),
        };
        Op::Recall { aim, words, k, kinds: self.kinds(), turns }
    }

    fn context(&mut self, tenant: usize, person: usize) -> Op {
        let (_, words) = self.question(tenant);
        let budget = if self.draws.chance(20) { 200 } else { 4_000 };
        let talk = if self.draws.chance(50) { self.talk(tenant, person) } else { None };
        Op::Context { words, budget, talk }
    }

    fn pack(&mut self, tenant: usize) -> Option<Op> {
        let tenant = self.mostly(tenant);
        let packs = &self.model.tenants.get(tenant)?.packs;
        let place = self.draws.below(packs.len());
        let pack = packs.get(place)?;
        Some(Op::Pack { id: pack.id.clone(), owner: (tenant, pack.owner), body: Bytes(pack.body.clone()) })
    }

    fn administer(&mut self, tenant: usize, person: usize) -> Option<Plan> {
        let group = self.draws.below(self.groups(tenant));
        let op = match self.draws.below(14) {
            0..=4 => Op::Leave { group, person },
            5..=8 => Op::Join { group, person },
            9 => Op::DropGroup { group },
            10 => Op::MakeGroup { group },
            11 => {
                if self.draws.chance(50) {
                    Op::Groups
                } else {
                    Op::Members { group }
                }
            }
            _ => return self.plan(tenant, Some(person), Role::PrivacyOfficer, Op::Erase),
        };
        self.plan(tenant, None, Role::TenantAdmin, op)
    }

    /// What a role may not do.
    fn misuse(&mut self, tenant: usize, person: usize) -> Option<Plan> {
        let (role, op) = match self.draws.below(4) {
            0 => (Role::Auditor, Op::Talks),
            1 => (Role::TenantAdmin, self.recall(tenant, person)),
            2 => (Role::Agent, Op::Erase),
            _ => (Role::PrivacyOfficer, Op::Context { words: "order".to_owned(), budget: 200, talk: None }),
        };
        self.plan(tenant, Some(person), role, op)
    }

    fn keys(&mut self, tenant: usize) -> Option<Plan> {
        let clients = self.clients.get(tenant)?;
        let live: Vec<usize> = clients
            .iter()
            .enumerate()
            .filter(|(_, client)| client.role == Role::App && !client.revoked)
            .map(|(place, _)| place)
            .collect();
        let op = if live.len() > 1 && self.draws.chance(50) {
            Op::RevokeKey { client: *self.draws.pick(&live)? }
        } else {
            let bound = self.draws.chance(50).then(|| self.draws.below(self.persons(tenant)));
            Op::NewKey { role: Role::App, bound }
        };
        self.plan(tenant, None, Role::TenantAdmin, op)
    }
}
