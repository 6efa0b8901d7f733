//! The world under attack: tenants with people, groups, conversations and shared memories that look alike,
//! each text and name with a mark of its own; the keys of attackers; and everything a guess could aim at.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};

use super::catalogue::Operation;
use super::marks::{Marks, Owner, Sight};
use crate::bench::dice::Dice;
use crate::bench::wire::{Ask, Wire};

/// How large the world is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) tenants: usize,
    pub(super) hostile: usize,
    pub(super) subjects: usize,
    pub(super) items: usize,
}

/// Something that was planted and must be found by its owner, and by nobody else.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) mark: String,
    pub(super) text: String,
    pub(super) owner: Owner,
}

/// A person with everything that is theirs.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) name: String,
    pub(super) groups: Vec<usize>,
    pub(super) items: Vec<Item>,
    pub(super) conversation: String,
    pub(super) turns: Vec<String>,
    pub(super) pack: String,
    pub(super) cursor: Option<String>,
}

/// A tenant.
#[derive(Debug, Clone)]
pub(super) struct Company {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) admin: String,
    pub(super) app: String,
    pub(super) hostile: bool,
    pub(super) groups: Vec<String>,
    pub(super) group_items: Vec<Item>,
    pub(super) shared: Vec<Item>,
    pub(super) people: Vec<Person>,
    pub(super) key_ids: Vec<String>,
}

/// Who attacks.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) what: &'static str,
    pub(super) key: Option<String>,
    /// The subject its requests name, if it must name one.
    pub(super) subject: Option<String>,
    pub(super) sight: Sight,
    /// Whether it may act for whomever it names; then it must not name a victim of its own tenant.
    pub(super) acts_for: bool,
    /// Whether no key of it is valid: everything is 401.
    pub(super) refused: bool,
    /// Whether it governs its tenant: then nothing of its own tenant is aimed at.
    pub(super) governs: bool,
}

/// The person of each tenant who attacks.
pub(super) const MALLORY: usize = 0;
const GROUPS: usize = 2;

/// Whether attackers know the name of this person and send it; then it is no mark. The names of the others must
/// never be seen.
pub(super) fn is_named(subject: usize) -> bool {
    subject % 2 == 1
}

/// Everything.
#[derive(Debug)]
pub(super) struct World {
    pub(super) address: SocketAddr,
    pub(super) marks: Arc<Marks>,
    pub(super) companies: Vec<Company>,
    pub(super) actors: Vec<Actor>,
    /// Who has no key.
    pub(super) nobody: Actor,
    /// An operation that asks for nothing.
    pub(super) nothing: Operation,
}

impl World {
    /// Creates and plants everything.
    ///
    /// # Errors
    /// The service cannot be reached or refuses what a customer may do.
    pub(super) fn plant(
        address: SocketAddr,
        admin: &str,
        size: Size,
        seed: u64,
        marks: Arc<Marks>,
    ) -> anyhow::Result<Self> {
        let mut maker = Maker {
            wire: Wire::to(address),
            dice: Dice::seeded(seed, 0x504C_414E),
            marks,
            size,
            admin: admin.to_owned(),
        };
        let mut companies = Vec::new();
        let mut actors = vec![
            Actor::without_key("no key", None),
            Actor::without_key("garbage for a key", Some("let-me-in".to_owned())),
        ];
        for number in 0..size.tenants + size.hostile {
            let company = maker.company(number, number >= size.tenants)?;
            actors.extend(maker.actors(number, &company)?);
            companies.push(company);
        }
        let instance = Sight { instance: true, ..Sight::nothing() };
        let admin_actor = Actor { governs: true, ..Actor::with("instance admin", admin, None, instance) };
        actors.push(admin_actor);
        actors.extend(mixed_keys(&companies));
        Ok(Self {
            address,
            marks: maker.marks,
            companies,
            actors,
            nobody: Actor::without_key("no key", None),
            nothing: Operation {
                method: "GET".to_owned(),
                path: "/healthz".to_owned(),
                query: Vec::new(),
                body: None,
                public: true,
            },
        })
    }

    /// A person as their own application sees them.
    pub(super) fn owner(&self, tenant: usize, subject: usize) -> Option<(&Company, &Person, Sight)> {
        let company = self.companies.get(tenant)?;
        let person = company.people.get(subject)?;
        Some((company, person, Sight::person(tenant, subject, &person.groups)))
    }
}

impl Actor {
    pub(super) fn with(what: &'static str, key: &str, subject: Option<&str>, sight: Sight) -> Self {
        let (key, subject) = (Some(key.to_owned()), subject.map(ToOwned::to_owned));
        Self { what, key, subject, sight, acts_for: false, refused: false, governs: false }
    }

    fn without_key(what: &'static str, key: Option<String>) -> Self {
        let sight = Sight::nothing();
        Self { what, key, subject: None, sight, acts_for: false, refused: true, governs: false }
    }
}

/// Keys put together from the public part of a foreign key and the secret of an own one.
fn mixed_keys(companies: &[Company]) -> Vec<Actor> {
    let (Some(victim), Some(hostile)) = (companies.first(), companies.last()) else { return Vec::new() };
    let part = |key: &str, n: usize| key.split('_').nth(n).unwrap_or_default().to_owned();
    let mixed = format!("mk_{}_{}", part(&victim.app, 1), part(&hostile.app, 2));
    let other =
        format!("mk_{}_{}", part(&hostile.app, 1), part(&victim.app, 2).chars().rev().collect::<String>());
    vec![
        Actor::without_key("foreign key id with an own secret", Some(mixed)),
        Actor::without_key("own key id with another secret", Some(other)),
        Actor::without_key("key in upper case", Some(victim.app.to_uppercase())),
        Actor::without_key("a key without its last letter", Some(victim.app.chars().rev().skip(1).collect())),
    ]
}

struct Maker {
    wire: Wire,
    dice: Dice,
    marks: Arc<Marks>,
    size: Size,
    admin: String,
}

fn text_of(value: &Value, pointer: &str) -> anyhow::Result<String> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.map(ToOwned::to_owned).with_context(|| format!("the answer has no {pointer}"))
}

impl Maker {
    fn ask(&mut self, ask: &Ask) -> anyhow::Result<Value> {
        let what = format!("{} {}", ask.method, ask.target);
        self.wire.send(ask)?.success().with_context(|| format!("while the world was planted: {what}"))
    }

    fn mark(&mut self, tenant: usize, owner: Owner) -> String {
        self.marks.plant(&mut self.dice, tenant, owner)
    }

    fn company(&mut self, number: usize, hostile: bool) -> anyhow::Result<Company> {
        let name = self.mark(number, Owner::Instance);
        let admin_key = self.admin.clone();
        let made = self.ask(&Ask::new("POST", "/v1/tenants").key(&admin_key).json(&json!({"name": name})))?;
        let admin = text_of(&made, "/key")?;
        let id = text_of(&made, "/id").or_else(|_| text_of(&made, "/tenant/id"))?;
        self.marks.learn(&id, number, Owner::Tenant);
        let (app, app_id) = self.key(number, &admin, json!({"role": "app", "act_for": true}))?;
        let mut company = Company {
            id,
            name,
            admin,
            app,
            hostile,
            groups: Vec::new(),
            group_items: Vec::new(),
            shared: Vec::new(),
            people: Vec::new(),
            key_ids: vec![app_id],
        };
        for group in 0..GROUPS {
            let name = self.mark(number, Owner::Directory);
            let ask = Ask::new("POST", "/v1/groups").key(&company.admin).json(&json!({"name": name}));
            self.ask(&ask)?;
            company.groups.push(name);
            let owner = Owner::Group(group);
            let item = self.item(number, owner, &company, None)?;
            company.group_items.push(item);
        }
        for _ in 0..3 {
            let item = self.item(number, Owner::Shared, &company, None)?;
            company.shared.push(item);
        }
        for subject in 0..self.size.subjects {
            let person = self.person(number, subject, &company)?;
            company.people.push(person);
        }
        Ok(company)
    }

    fn key(&mut self, tenant: usize, admin: &str, wanted: Value) -> anyhow::Result<(String, String)> {
        let mut wanted = wanted;
        if let Some(map) = wanted.as_object_mut() {
            map.insert("label".to_owned(), json!(self.mark(tenant, Owner::Directory)));
        }
        let made = self.ask(&Ask::new("POST", "/v1/keys").key(admin).json(&wanted))?;
        let id = text_of(&made, "/id")?;
        self.marks.learn(&id, tenant, Owner::Keys);
        Ok((text_of(&made, "/key")?, id))
    }

    fn item(
        &mut self,
        tenant: usize,
        owner: Owner,
        company: &Company,
        person: Option<&str>,
    ) -> anyhow::Result<Item> {
        let mark = self.mark(tenant, owner);
        let place = self.dice.word(&["Rostock", "Kiel", "Lübeck", "Hamburg", "Bremen"]).to_owned();
        let text = format!("The gate code of the depot in {place} is {mark}");
        let wire_owner = match owner {
            Owner::Group(group) => json!({"group": company.groups.get(group)}),
            Owner::Shared => json!("tenant"),
            Owner::Subject(_)
            | Owner::Directory
            | Owner::People
            | Owner::Keys
            | Owner::Tenant
            | Owner::Instance => json!("subject"),
        };
        let metadata = json!({"depot": place, "kept_by": mark});
        let body = json!({"kind": "user_fact", "text": text, "owner": wire_owner, "metadata": metadata});
        let mut ask = Ask::new("POST", "/v1/memories").key(&company.app).json(&body);
        if let Some(person) = person {
            ask = ask.subject(person);
        }
        let written = self.ask(&ask)?;
        let id = text_of(&written, "/id").or_else(|_| text_of(&written, "/outcome/id"))?;
        self.marks.learn(&id, tenant, owner);
        Ok(Item { id, mark, text, owner })
    }

    fn person(&mut self, tenant: usize, subject: usize, company: &Company) -> anyhow::Result<Person> {
        let name = if is_named(subject) {
            format!("person-{}", self.dice.letters(12))
        } else {
            self.mark(tenant, Owner::People)
        };
        let owner = Owner::Subject(subject);
        // Everybody but the attacker is in one group, so that groups are known to matter.
        let groups: Vec<usize> = if subject == MALLORY { Vec::new() } else { vec![subject % GROUPS] };
        for group in &groups {
            let group = company.groups.get(*group).map_or("", String::as_str);
            let ask = Ask::new("POST", &format!("/v1/groups/{group}/members")).key(&company.admin);
            self.ask(&ask.json(&json!({"add": [name]})))?;
        }
        let mut items = Vec::new();
        for _ in 0..self.size.items {
            items.push(self.item(tenant, owner, company, Some(&name))?);
        }
        let as_person =
            |method: &str, target: &str| Ask::new(method, target).key(&company.app).subject(&name);
        let opened = self.ask(&as_person("POST", "/v1/conversations").json(&json!({"keep_days": 30})))?;
        let conversation = text_of(&opened, "/id")?;
        self.marks.learn(&conversation, tenant, owner);
        let mut turns = Vec::new();
        for role in ["person", "assistant"] {
            let text = format!("We spoke about {}", self.mark(tenant, owner));
            let target = format!("/v1/conversations/{conversation}/turns");
            self.ask(&as_person("POST", &target).json(&json!({"role": role, "text": text})))?;
            turns.push(text);
        }
        let question = json!({"question": "Which gate code?", "conversation": conversation});
        let pack = self.ask(&as_person("POST", "/v1/context").json(&question))?;
        let pack = text_of(&pack, "/pack_id").or_else(|_| text_of(&pack, "/id"))?;
        self.marks.learn(&pack, tenant, owner);
        let page = self.ask(&as_person("GET", "/v1/memories?limit=1"))?;
        let cursor = text_of(&page, "/next").ok();
        Ok(Person { name, groups, items, conversation, turns, pack, cursor })
    }

    fn actors(&mut self, tenant: usize, company: &Company) -> anyhow::Result<Vec<Actor>> {
        if company.hostile {
            let whole = Sight { tenant: Some(tenant), whole: true, ..Sight::nothing() };
            let name = company.people.first().map(|person| person.name.as_str());
            let app =
                Actor { acts_for: true, ..Actor::with("hostile app", &company.app, name, whole.clone()) };
            let admin = Actor::with("hostile tenant admin", &company.admin, None, whole);
            return Ok(vec![app, Actor { governs: true, ..admin }]);
        }
        let mallory = company.people.get(MALLORY).context("nobody lives here")?.name.clone();
        let own = Sight::person(tenant, MALLORY, &[]);
        let nobody = Sight { subject: None, ..own.clone() };
        let looking = Sight { directory: true, evidence: true, ..own.clone() };
        let auditing = Sight { tenant: Some(tenant), evidence: true, ..Sight::nothing() };
        let governing = Sight { directory: true, ..auditing.clone() };
        let admin = company.admin.as_str();
        let bound = |role: &str| json!({"role": role, "subject": mallory});
        let (app, _) = self.key(tenant, admin, bound("app"))?;
        let (agent, _) = self.key(tenant, admin, bound("agent"))?;
        let (officer, _) = self.key(tenant, admin, bound("privacy_officer"))?;
        let (unbound, _) = self.key(tenant, admin, json!({"role": "app"}))?;
        let (auditor, _) = self.key(tenant, admin, json!({"role": "auditor"}))?;
        let (revoked, id) = self.key(tenant, admin, json!({"role": "app", "act_for": true}))?;
        self.ask(&Ask::new("DELETE", &format!("/v1/keys/{id}")).key(admin))?;
        let acting = Actor::with("app for one person", &company.app, Some(&mallory), own.clone());
        Ok(vec![
            Actor::with("app bound to a person", &app, None, own.clone()),
            Actor::with("agent bound to a person", &agent, None, own),
            Actor { governs: true, ..Actor::with("privacy officer", &officer, None, looking) },
            Actor { acts_for: true, ..acting },
            Actor { acts_for: true, ..Actor::with("app for nobody", &company.app, None, nobody.clone()) },
            Actor::with("app that acts for nobody", &unbound, None, nobody),
            Actor::with("auditor", &auditor, None, auditing),
            Actor { governs: true, ..Actor::with("tenant admin", admin, None, governing) },
            Actor::without_key("revoked key", Some(revoked)),
        ])
    }
}
