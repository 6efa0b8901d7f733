//! Imports the support chats of the evaluation data as 44 client companies with their users into a running
//! service, and asks each company's own question: what did this customer complain about?
//!
//! ```sh
//! MERKWELT_KEY=<admin key> cargo run --release --example enterprise -- http://127.0.0.1:7777 ../shared/data/enterprise
//! ```
//!
//! Each chat becomes a kept conversation of the employee who handled it, and one fact that the whole company
//! may see: what the customer said. Nothing of the data is part of this repository.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use merkwelt_server::cli::Client;
use serde_json::{Value, json};

const QUESTION: &str = "What did this customer complain about?";
const K: usize = 10;

fn main() -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder] = arguments.as_slice() else {
        bail!("usage: enterprise URL FOLDER, with the admin key in MERKWELT_KEY");
    };
    #[expect(clippy::disallowed_methods, reason = "the documented way to hand a key to a command")]
    let key = std::env::var("MERKWELT_KEY").context("MERKWELT_KEY is not set")?;
    let chats = read_chats(&format!("{folder}/support_chats.jsonl.xz"))?;
    let admin = Client::new(url, &key);
    let mut companies = BTreeMap::new();
    for chat in &chats {
        let name = tenant_name(text(chat, "customer_id"));
        let company = match companies.remove(&name) {
            Some(company) => company,
            None => Company::create(&admin, url, &name)?,
        };
        let company = company.take(chat)?;
        companies.insert(name, company);
    }
    writeln!(out, "imported {} chats of {} companies", chats.len(), companies.len())?;
    let (mut n_hits, mut n_short, mut n_foreign) = (0, 0, 0);
    for company in companies.values() {
        let found = company.ask()?;
        n_hits += found.hits;
        n_foreign += found.foreign;
        n_short += usize::from(found.hits < company.n_chats.min(K));
    }
    writeln!(
        out,
        "asked {} companies: {n_hits} hits, {n_foreign} foreign, {n_short} short lists",
        companies.len()
    )?;
    ensure!(n_foreign == 0 && n_short == 0, "the promise of isolation does not hold");
    Ok(())
}

struct Company {
    name: String,
    app: Client,
    users: BTreeMap<String, usize>,
    n_chats: usize,
}

struct Found {
    hits: usize,
    foreign: usize,
}

impl Company {
    fn create(admin: &Client, url: &str, name: &str) -> anyhow::Result<Self> {
        let made = admin.post("/v1/tenants", &json!({"name": name}), None)?.success()?;
        let tenant_admin = Client::new(url, text(&made, "key"));
        let wanted = json!({"label": "support-desk", "role": "app", "act_for": true});
        let made = tenant_admin.post("/v1/keys", &wanted, None)?.success()?;
        let app = Client::new(url, text(&made, "key"));
        Ok(Self { name: name.to_owned(), app, users: BTreeMap::new(), n_chats: 0 })
    }

    /// Takes in one chat: its turns for the employee, what the customer said for the company.
    fn take(mut self, chat: &Value) -> anyhow::Result<Self> {
        let user = text(chat, "emp_id").to_owned();
        let employee = self.app.acting_for(&user);
        let opened = employee.post("/v1/conversations", &json!({"keep_days": 365}), None)?.success()?;
        let conversation = text(&opened, "id").to_owned();
        let turns = turns(text(chat, "text"));
        for (role, words) in &turns {
            let path = format!("/v1/conversations/{conversation}/turns");
            employee.post(&path, &json!({"role": role, "text": words}), None)?.success()?;
        }
        let said: Vec<_> =
            turns.iter().filter(|(role, _)| *role == "person").map(|(_, words)| words.as_str()).collect();
        let fact = json!({
            "kind": "user_fact",
            "text": clipped(&format!("{}, {}: {}", text(chat, "interaction_date"), text(chat, "product_name"), said.join(" "))),
            "owner": "tenant",
            "origin": "import",
            "metadata": {"customer": text(chat, "customer_id"), "chat": text(chat, "chat_id")},
            "no_expiry_reason": "contract_term",
        });
        self.app.post("/v1/memories", &fact, None)?.success()?;
        *self.users.entry(user).or_default() += 1;
        self.n_chats += 1;
        Ok(self)
    }

    /// Asks as each of the company's users; every hit must be the company's own.
    fn ask(&self) -> anyhow::Result<Found> {
        let mut found = Found { hits: 0, foreign: 0 };
        for user in self.users.keys() {
            let body = json!({"question": QUESTION, "k": K});
            let answer = self.app.acting_for(user).post("/v1/recall", &body, None)?.success()?;
            let hits = answer.get("hits").and_then(Value::as_array).cloned().unwrap_or_default();
            let own = |hit: &Value| {
                hit.pointer("/metadata/customer").and_then(Value::as_str).map(tenant_name).as_ref()
                    == Some(&self.name)
            };
            found.foreign += hits.iter().filter(|hit| !own(hit)).count();
            found.hits = if found.hits == 0 { hits.len() } else { found.hits.min(hits.len()) };
        }
        Ok(found)
    }
}

fn read_chats(path: &str) -> anyhow::Result<Vec<Value>> {
    let mut xz = Command::new("xz")
        .args(["-dc", path])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run `xz`; install xz-utils")?;
    let lines = BufReader::new(xz.stdout.take().context("no output of xz")?).lines();
    let chats = lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(xz.wait()?.success() && !chats.is_empty(), "cannot read {path}");
    Ok(chats)
}

/// A chat as turns of person and assistant.
fn turns(chat: &str) -> Vec<(&'static str, String)> {
    let mut turns: Vec<(&'static str, String)> = Vec::new();
    for line in chat.lines().map(|line| line.replace(['*', '`'], "")) {
        let line = line.trim().trim_matches('-').trim();
        match (spoken(line), turns.last_mut()) {
            (Some(turn), _) => turns.push(turn),
            (None, Some((_, words))) if !line.is_empty() => {
                words.push(' ');
                words.push_str(line);
            }
            (None, _) => {}
        }
    }
    turns.retain(|(_, words)| !words.trim().is_empty());
    if turns.is_empty() { vec![("person", chat.trim().to_owned())] } else { turns }
}

/// `CUSTOMER: words`, `CUSTOMER (Rahul): words` and the same for the support desk.
fn spoken(line: &str) -> Option<(&'static str, String)> {
    let (mark, words) = line.split_once(':')?;
    let role = match mark.split('(').next()?.trim() {
        "CUSTOMER" => "person",
        "SUPPORT REP" => "assistant",
        _ => return None,
    };
    Some((role, words.trim().to_owned()))
}

fn tenant_name(customer: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    format!("c-{}", customer.chars().map(plain).collect::<String>())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A statement holds at most 16 KiB.
fn clipped(text: &str) -> String {
    text.char_indices().take_while(|(at, _)| *at < 12_000).map(|(_, c)| c).collect()
}
