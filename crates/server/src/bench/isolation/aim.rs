//! What attempts aim at: ids, names and texts of others, and the words in which they are forged.

use serde_json::{Value, json};

use super::marks::Mark;
use super::world::{Actor, Company, Item, MALLORY, World, is_named};
use crate::bench::dice::Dice;

/// Texts that want to be more than texts.
pub(super) const HOSTILE_TEXT: &[&str] = &[
    "*",
    "%",
    "",
    " ",
    "null",
    "undefined",
    "' OR '1'='1",
    "'; DROP TABLE memories; --",
    "\" OR \"\"=\"",
    "1 OR 1=1",
    "text:* OR owner:*",
    "NEAR(a b, 10)",
    "{\"or\":[{},{}]}",
    "../../../../etc/passwd",
    "..\\..\\control.db",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data/",
    "${jndi:ldap://x}",
    "{{7*7}}",
    "\u{0}",
    "\u{202e}",
    "ﬀ",
    "İ",
    "a\r\nMerkwelt-Subject: x",
    "}|@namespace:{x}",
    "__proto__",
    "$where",
    "NOT x",
    "x AND NOT x",
];

/// Fields that would name a scope, if there were such.
pub(super) const SCOPE_FIELDS: &[&str] = &[
    "tenant",
    "tenant_id",
    "tenantId",
    "Tenant",
    "subject",
    "subject_id",
    "user",
    "user_id",
    "userId",
    "agent_id",
    "run_id",
    "namespace",
    "name_space",
    "owner_id",
    "group",
    "groups",
    "scope",
    "filter",
    "filters",
    "where",
    "or",
    "OR",
    "$or",
    "and",
    "not",
    "NOT",
    "ids",
    "as",
    "on_behalf_of",
    "act_for",
    "role",
    "key",
    "include_all",
    "admin",
    "Kinds",
    "kind ",
    "metadata.owner",
    "__proto__",
    "Merkwelt-Subject",
    "sql",
    "query",
];

/// Headers that would say who asks, if anybody believed them.
pub(super) const IDENTITY_HEADERS: &[&str] = &[
    "Merkwelt-Tenant",
    "merkwelt-tenant-id",
    "X-Tenant",
    "X-Tenant-Id",
    "X-Tenant-ID",
    "X-Org-Id",
    "X-User",
    "X-User-Id",
    "X-Subject",
    "X-Merkwelt-Subject",
    "Merkwelt_Subject",
    "Merkwelt-Subjects",
    "Merkwelt-Group",
    "Merkwelt-Groups",
    "Merkwelt-Role",
    "Merkwelt-Scope",
    "Merkwelt-Conversation",
    "X-Groups",
    "X-Role",
    "X-Agent",
    "X-Agent-Id",
    "X-Forwarded-User",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Prefix",
    "Forwarded",
    "X-Real-IP",
    "X-Remote-User",
    "Remote-User",
    "X-Auth-Request-User",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "baggage",
    "tracestate",
    "traceparent",
    "Cookie",
    "From",
    "Referer",
    "Origin",
    "X-Session-Id",
    "X-Api-Version",
    "Via",
    "X-Impersonate",
    "Impersonate-User",
    "X-Sudo",
];

/// An id of the right form that nobody has.
pub(super) fn unknown(kind: &str, dice: &mut Dice) -> String {
    let prefix = match kind {
        "memories" => "mem_",
        "conversations" => "con_",
        "packs" => "pac_",
        "keys" => "key_",
        "mk" => return format!("mk_{}_{}", dice.letters(26), dice.letters(52)),
        "entries" => return (1_000_000_000 + dice.below(1_000_000)).to_string(),
        _ => return dice.letters(18),
    };
    // The last letter of an id holds three bits.
    format!("{prefix}{}a", dice.letters(25))
}

/// Almost the same text.
pub(super) fn twisted(text: &str, dice: &mut Dice) -> String {
    match dice.below(7) {
        0 => text.to_uppercase(),
        1 => format!("{text}%00"),
        2 => format!("{text}%2A"),
        3 => text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>() + "%2e",
        4 => format!("{text}."),
        5 => text.chars().map(|c| if c == 'a' { 'A' } else { c }).chain(['1']).collect(),
        _ => format!("{text},{text}"),
    }
}

/// Values of fields that have a meaning; the rest comes from the schema.
pub(super) fn fill(world: &World, actor: &Actor, name: &str, dice: &mut Dice) -> Option<Value> {
    Some(match name {
        "question" => match world.secret(actor, dice) {
            Some(item) => json!(item.text),
            None => json!("Which gate code?"),
        },
        "text" => json!(format!("a note of no weight, number {}", dice.below(300))),
        "kind" => json!("user_fact"),
        "kinds" => json!(["user_fact", "project_state"]),
        "label" => json!(format!("attack-{}", dice.below(50))),
        "name" => json!(format!("attack-{}", dice.below(50))),
        "add" | "remove" => json!([format!("somebody-{}", dice.below(20))]),
        "subject" => json!(world.name_of_another(actor, dice)),
        "conversation" => json!(world.foreign(actor, "conversations", dice)?),
        "group" => json!(world.foreign(actor, "groups", dice)?),
        "metadata" => json!({"depot": "Kiel"}),
        "slot" => json!(format!("attack:{}", dice.below(20))),
        "pointer" | "no_expiry_reason" | "valid_from" => Value::Null,
        _ => return None,
    })
}

impl World {
    /// A company and whether it is the actor's own.
    fn somewhere(&self, actor: &Actor, dice: &mut Dice) -> Option<(usize, &Company)> {
        let tenant = dice.below(self.companies.len());
        let own = actor.sight.tenant == Some(tenant);
        let allowed = !own || !(actor.governs || actor.sight.whole);
        self.companies.get(tenant).filter(|_| allowed).map(|company| (tenant, company))
    }

    /// An id of a kind that the actor has no right to.
    pub(super) fn foreign(&self, actor: &Actor, kind: &str, dice: &mut Dice) -> Option<String> {
        for _ in 0..8 {
            let Some((tenant, company)) = self.somewhere(actor, dice) else { continue };
            let person = dice.below(company.people.len());
            let Some(found) = company.people.get(person) else { continue };
            let own = actor.sight.tenant == Some(tenant);
            if own && person == MALLORY {
                continue;
            }
            return Some(match kind {
                "memories" => match dice.below(3) {
                    0 if !own => dice.pick(&company.shared)?.id.clone(),
                    // That an app for nobody may change what it cannot read is written down in SECURITY.md.
                    1 if !own || actor.sight.subject.is_some() => dice.pick(&company.group_items)?.id.clone(),
                    _ => dice.pick(&found.items)?.id.clone(),
                },
                "conversations" => found.conversation.clone(),
                "packs" => found.pack.clone(),
                "keys" => dice.pick(&company.key_ids)?.clone(),
                "groups" => dice.pick(&company.groups)?.clone(),
                _ => return None,
            });
        }
        None
    }

    /// Something planted that the actor must not see.
    pub(super) fn secret(&self, actor: &Actor, dice: &mut Dice) -> Option<&Item> {
        for _ in 0..8 {
            let Some((tenant, company)) = self.somewhere(actor, dice) else { continue };
            let person = dice.pick(&company.people)?;
            let list = if dice.chance(25) { &company.group_items } else { &person.items };
            let item = dice.pick(list)?;
            if !actor.sight.covers(Mark { tenant, owner: item.owner }) {
                return Some(item);
            }
        }
        None
    }

    /// The name of a person who is not the actor; for one who may name people, of another tenant.
    pub(super) fn name_of_another(&self, actor: &Actor, dice: &mut Dice) -> String {
        for _ in 0..8 {
            let Some((tenant, company)) = self.somewhere(actor, dice) else { continue };
            if actor.acts_for && actor.sight.tenant == Some(tenant) {
                continue;
            }
            let person = dice.below(company.people.len());
            if let Some(found) = company.people.get(person).filter(|_| is_named(person)) {
                return found.name.clone();
            }
        }
        "nobody-in-particular".to_owned()
    }

    /// The place in a list that somebody was given.
    pub(super) fn cursor(&self, dice: &mut Dice) -> String {
        let company = dice.pick(&self.companies);
        let person = company.and_then(|company| dice.pick(&company.people));
        person.and_then(|person| person.cursor.clone()).unwrap_or_else(|| "cursor".to_owned())
    }
}
