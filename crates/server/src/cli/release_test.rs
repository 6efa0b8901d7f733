//! The drill of R-063 against a running service, on synthetic sources: publish, replace, take a right away,
//! delete, restore; the same question is asked in a conversation that began before the replacement and in one
//! that began after it, with a warm answer cache. The report names source, index, user, question, answer and
//! citations at every step; anything stale ends the command with an error.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args as Arguments;
use merkwelt_domain::Env as _;
use merkwelt_domain::ids::base32;
use serde::Serialize;
use serde_json::{Value, json};

use super::key::read_key;
use super::{Client, Out};

mod html;

const V1: &str = "# Returns\n\nGoods may be returned within thirty days of delivery.\n";
const V2: &str = "# Returns\n\nGoods may be returned within seven days of delivery.\n";
const QUESTION: &str = "Within how many days may goods be returned?";
const MAKER: (&str, &str) = ("release-test", "1");

const OF_APP: &str = "cannot open a conversation; --key-file must hold the key of an app that may act for persons (role app, --act-for)";
const OF_ADMIN: &str = "cannot create a group; --admin-key-file must hold the key of an admin of the same tenant (role tenant_admin)";

/// Arguments of `merkwelt release-test`.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Address of the running service
    #[arg(long, default_value = "http://127.0.0.1:7777")]
    url: String,
    /// A file that holds the key of an application that acts for persons
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// A file that holds the key of a tenant admin, who changes a membership in the drill
    #[arg(long, value_name = "FILE")]
    admin_key_file: PathBuf,
    /// Where to write the report as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to write the report as HTML
    #[arg(long)]
    html: Option<PathBuf>,
}

/// What one question got at one step.
#[derive(Debug, Clone, Serialize)]
struct Asked {
    conversation: &'static str,
    user: String,
    question: &'static str,
    answer: String,
    citations: Vec<Value>,
    cached: Value,
    expected: Option<&'static str>,
    stale: bool,
}

/// One step of the drill.
#[derive(Debug, Clone, Serialize)]
struct Step {
    name: &'static str,
    source_state: String,
    index_passages: u64,
    asked: Vec<Asked>,
}

/// The report.
#[derive(Debug, Clone, Serialize)]
struct Report {
    url: String,
    source: String,
    steps: Vec<Step>,
    stale: usize,
}

struct Drill {
    app: Client,
    admin: Client,
    user: String,
    group: String,
    source: String,
    old: String,
    new: Option<String>,
    made: Made,
}

/// Runs the drill.
///
/// # Errors
/// The service cannot be reached, a step is refused, or something stale was served.
pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    // Before anything is made: a report that cannot be written would be known only after the drill.
    for path in [&args.json, &args.html].into_iter().flatten() {
        let opened = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    let mut drill = Drill::begin(args)?;
    let steps = drill.steps();
    // What was made for the drill goes again, whatever came of it.
    let cleared = drill.made.clear();
    let steps = steps?;
    cleared.context("the drill is over, but what it made could not be removed")?;
    let stale = steps.iter().flat_map(|step| &step.asked).filter(|asked| asked.stale).count();
    let report = Report { url: args.url.clone(), source: drill.source, steps, stale };
    for step in &report.steps {
        let ok = step.asked.iter().all(|asked| !asked.stale);
        let verdict = if ok { "current or nothing" } else { "STALE" };
        out.line(format_args!("{:<28} {verdict}", step.name))?;
    }
    if let Some(path) = &args.json {
        fs::write(path, serde_json::to_vec_pretty(&report)?).context("cannot write the JSON report")?;
    }
    if let Some(path) = &args.html {
        fs::write(path, html::page(&report)).context("cannot write the HTML report")?;
    }
    if stale > 0 {
        bail!("{stale} answers were stale: the service is not fit for release");
    }
    out.line("nothing stale was served at any step")
}

/// What the drill made so far, with the client that may remove it.
#[derive(Default)]
struct Made(Vec<(Client, String)>);

impl Made {
    fn note(&mut self, client: &Client, path: String) {
        self.0.push((client.clone(), path));
    }

    /// Removes everything, the last first. One that stays keeps no other.
    fn clear(&mut self) -> anyhow::Result<()> {
        let removed = self.0.drain(..).rev().map(|(client, path)| client.delete(&path)?.success());
        let failed = removed.filter_map(Result::err).collect::<Vec<_>>().into_iter().next();
        failed.map_or(Ok(()), Err)
    }
}

impl Drill {
    fn begin(args: &Args) -> anyhow::Result<Self> {
        let app = Client::new(&args.url, &read_key(args.key_file.as_deref())?);
        let admin = Client::new(&args.url, &read_key(Some(&args.admin_key_file))?);
        let mut made = Made::default();
        // A refusal on the way leaves nothing behind.
        Self::furnish(app, admin, &mut made).or_else(|refused| {
            made.clear().context("what the drill had made could not be removed")?;
            Err(refused)
        })
    }

    fn furnish(app: Client, admin: Client, made: &mut Made) -> anyhow::Result<Self> {
        let mut mark = [0; 5];
        crate::env::SystemEnv::new().fill(&mut mark);
        let name = format!("release-test-{}", base32(&mark));
        let acting = app.acting_for(&name);
        let opened = acting.post("/v1/conversations", &json!({ "keep_days": 1 }), None)?;
        let old = text(&opened.success().context(OF_APP)?, "/id")?;
        made.note(&acting, format!("/v1/conversations/{old}"));
        admin.post("/v1/groups", &json!({ "name": name }), None)?.success().context(OF_ADMIN)?;
        made.note(&admin, format!("/v1/groups/{name}"));
        let title = format!("Release test {}", base32(&mark));
        let body = json!({ "title": title, "groups": [name], "evidence": "digest_with_copy" });
        let registered =
            app.post("/v1/sources", &body, None)?.success().context("cannot register a source")?;
        let source = text(&registered, "/id")?;
        made.note(&app, format!("/v1/sources/{source}"));
        member(&admin, &name, "add", &name)?;
        let made = std::mem::take(made);
        Ok(Self { app, admin, user: name.clone(), group: name, source, old, new: None, made })
    }

    fn steps(&mut self) -> anyhow::Result<Vec<Step>> {
        let (thirty, seven) = (Some("thirty days"), Some("seven days"));
        let first = self.put(V1)?;
        let mut steps = vec![self.ask_all("v1 published", thirty)?];
        self.say("Goods may be returned within thirty days.", 1)?;
        self.keep_answer("Within thirty days.", 1)?;
        self.put(V2)?;
        let opened = self.acting().post("/v1/conversations", &json!({ "keep_days": 1 }), None)?;
        let new = text(&opened.success()?, "/id")?;
        self.made.note(&self.acting(), format!("/v1/conversations/{new}"));
        self.new = Some(new);
        steps.push(self.ask_all("replaced by v2", seven)?);
        self.keep_answer("Within seven days.", 2)?;
        self.member("remove")?;
        steps.push(self.ask_all("access withdrawn", None)?);
        self.member("add")?;
        self.keep_answer("Within seven days.", 2)?;
        let gone = self.app.delete(&format!("/v1/sources/{}", self.source))?.success()?;
        if gone.pointer("/done") != Some(&Value::Bool(true)) {
            bail!("after the deletion something of the source is still found: {gone}");
        }
        steps.push(self.ask_all("source deleted", None)?);
        let path = format!("/v1/sources/{}/restore", self.source);
        self.app.post(&path, &json!({ "revision_id": first }), None)?.success()?;
        steps.push(self.ask_all("approved version restored", thirty)?);
        Ok(steps)
    }

    fn acting(&self) -> Client {
        self.app.acting_for(&self.user)
    }

    fn member(&self, change: &str) -> anyhow::Result<()> {
        member(&self.admin, &self.group, change, &self.user)
    }

    fn put(&self, document: &str) -> anyhow::Result<String> {
        let path = format!("/v1/sources/{}/revisions?publish=true", self.source);
        text(&self.app.put(&path, "text/markdown", document.as_bytes())?.success()?, "/revision_id")
    }

    fn keep_answer(&self, answer: &str, revision: u32) -> anyhow::Result<()> {
        let sources = json!([{ "source_id": self.source, "revision": revision }]);
        let (model, prompt) = MAKER;
        let body = json!({
            "question": QUESTION, "answer": answer, "model": model, "prompt": prompt, "sources": sources,
        });
        self.acting().post("/v1/answers", &body, None)?.success().context("cannot keep an answer")?;
        Ok(())
    }

    /// What an agent said in the old conversation, and from which revision.
    fn say(&self, answer: &str, revision: u32) -> anyhow::Result<()> {
        let rests_on = json!([{ "source_id": self.source, "revision": revision }]);
        let turn = json!({ "role": "assistant", "text": answer, "rests_on": rests_on });
        let path = format!("/v1/conversations/{}/turns", self.old);
        self.acting().post(&path, &turn, None)?.success().context("cannot append a turn")?;
        Ok(())
    }

    /// Asks in the old conversation and, once there is one, in the new one.
    fn ask_all(&self, name: &'static str, expected: Option<&'static str>) -> anyhow::Result<Step> {
        let record = self.app.get(&format!("/v1/sources/{}", self.source))?.success()?;
        let mut asked = vec![self.ask("began before the replacement", &self.old, expected)?];
        if let Some(new) = &self.new {
            asked.push(self.ask("began after the replacement", new, expected)?);
        }
        Ok(Step {
            name,
            source_state: text(&record, "/state")?,
            index_passages: self.indexed(&record)?,
            asked,
        })
    }

    fn indexed(&self, record: &Value) -> anyhow::Result<u64> {
        let mut n_indexed = 0;
        for revision in record.pointer("/revisions").and_then(Value::as_array).into_iter().flatten() {
            let path = format!("/v1/sources/{}/revisions/{}", self.source, text(revision, "/id")?);
            let manifest = self.app.get(&path)?.success()?;
            let passages = manifest.pointer("/passages").and_then(Value::as_array).into_iter().flatten();
            let indexed = passages.filter(|p| p.pointer("/indexed") == Some(&Value::Bool(true)));
            n_indexed += u64::try_from(indexed.count())?;
        }
        Ok(n_indexed)
    }

    fn ask(
        &self,
        which: &'static str,
        conversation: &str,
        expected: Option<&'static str>,
    ) -> anyhow::Result<Asked> {
        let body = json!({ "question": QUESTION, "conversation": conversation, "budget": 2000 });
        let pack = self.acting().post("/v1/context", &body, None)?.success()?;
        let (model, prompt) = MAKER;
        let look = json!({ "question": QUESTION, "model": model, "prompt": prompt });
        let cached = self.acting().post("/v1/answers/lookup", &look, None)?.success()?;
        let answer = text(&pack, "/turn")?;
        let items = pack.pointer("/items").and_then(Value::as_array).cloned().unwrap_or_default();
        let citations = items.iter().filter_map(|item| item.pointer("/citation").cloned()).collect();
        let stale = is_stale(&answer, &cached, expected);
        Ok(Asked {
            conversation: which,
            user: self.user.clone(),
            question: QUESTION,
            answer,
            citations,
            cached,
            expected,
            stale,
        })
    }
}

/// Whether an answer or a cached one says anything but what is current; where nothing is, whether it says
/// anything at all. What is marked as historical says nothing about now.
fn is_stale(answer: &str, cached: &Value, expected: Option<&str>) -> bool {
    let present = |line: &&str| !line.contains("[historical: ");
    let answer: String = answer.lines().filter(present).collect::<Vec<_>>().join("\n");
    let said = format!("{answer} {}", cached.pointer("/answer").and_then(Value::as_str).unwrap_or_default());
    let says = |value: &str| said.contains(value);
    match expected {
        Some(value) => {
            !answer.contains(value)
                || ["thirty days", "seven days"].into_iter().any(|v| v != value && says(v))
        }
        None => says("thirty days") || says("seven days"),
    }
}

/// Adds a user to a group or removes them.
fn member(admin: &Client, group: &str, change: &str, user: &str) -> anyhow::Result<()> {
    let path = format!("/v1/groups/{group}/members");
    admin.post(&path, &json!({ change: [user] }), None)?.success()?;
    Ok(())
}

fn text(value: &Value, pointer: &str) -> anyhow::Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    Ok(found.with_context(|| format!("the service's answer has no {pointer}"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_063_an_old_value_a_missing_one_and_a_cached_one_count_as_stale() {
        let none = json!({ "hit": false });
        assert!(!is_stale("within seven days", &none, Some("seven days")));
        assert!(is_stale("within thirty days", &none, Some("seven days")));
        assert!(is_stale("thirty days, seven days", &none, Some("seven days")));
        assert!(is_stale("", &none, Some("seven days")));
        assert!(is_stale("within seven days", &json!({ "answer": "thirty days" }), Some("seven days")));
        assert!(is_stale("within seven days", &none, None));
        assert!(is_stale("", &json!({ "answer": "seven days" }), None));
        assert!(!is_stale("", &none, None));
        let historical = "assistant: [historical: rests on revision 1 of it] within thirty days";
        assert!(!is_stale(historical, &none, None) && is_stale(historical, &none, Some("thirty days")));
        assert!(is_stale("assistant: within thirty days", &none, None));
    }
}
