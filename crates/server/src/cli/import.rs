//! `merkwelt import`: memories from a JSONL file into a running service. The whole file is checked before
//! the first line is sent, each batch goes in whole or not at all, and an interrupted import goes on where
//! it stopped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use merkwelt_app::Settings;
use serde_json::{Map, Value, json};

use super::key::read_key;
use super::{Client, Out, import_sources};
use crate::http::{check_memory, strict};
use crate::wiring;

/// Arguments of `merkwelt import`.
///
/// Each line of a file with memories is a JSON object with the fields of `POST /v1/memories` and, beside them,
/// `subject`: the person the memory is about, as your application refers to them.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    memories: Option<Memories>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Bring sources to the state of a folder of documents
    Sources(import_sources::Args),
}

#[derive(Debug, clap::Args)]
struct Memories {
    /// The file: one JSON object per line, UTF-8
    file: PathBuf,
    /// Address of the service
    #[arg(long, default_value = "http://127.0.0.1:7777")]
    url: String,
    /// A file that holds an app key that may act for subjects
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The subject of lines that name none
    #[arg(long)]
    subject: Option<String>,
    /// How many memories go in at once: 1 to 500
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=500))]
    batch: u16,
    /// Only check the file
    #[arg(long)]
    check: bool,
}

/// The most faulty lines that are listed.
const FAULTS_MAX: usize = 50;
/// A longer line is no memory.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// One line of the file.
struct Line {
    number: u64,
    end: u64,
    text: String,
}

/// Memories that go in together: of one subject, in the order of the file.
struct Batch {
    subject: Option<String>,
    first_line: u64,
    end: u64,
    next_line: u64,
    memories: Vec<Value>,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    match (&args.what, &args.memories) {
        (Some(What::Sources(args)), _) => import_sources::run(args, out),
        (None, Some(args)) => memories(args, out),
        (None, None) => bail!("name a file with memories, or `sources` and a folder"),
    }
}

fn memories(args: &Memories, out: &mut Out) -> anyhow::Result<()> {
    if args.file.is_dir() {
        bail!(
            "{0} is a folder, and memories come from one file; documents of a folder become sources with \
             `merkwelt import sources {0}`",
            args.file.display()
        );
    }
    let digest = check(args, out)?;
    if args.check {
        return out.line("every line is well formed; nothing was imported");
    }
    let client = Client::new(&args.url, &read_key(args.key_file.as_deref())?);
    let state = Progress::of(&args.file, &digest);
    let start = state.next_line()?;
    if start > 1 {
        out.line(format_args!("going on at line {start}"))?;
    }
    let bar = progress_bar(std::fs::metadata(&args.file)?.len());
    let (mut sent, mut batch) = (Tally::default(), None);
    for line in lines(&args.file)? {
        let line = line?;
        if line.number < start {
            continue;
        }
        let (subject, memory) = split(&line.text)?;
        let subject = subject.or_else(|| args.subject.clone());
        let full = |b: &Batch| b.subject != subject || b.memories.len() >= usize::from(args.batch);
        if batch.as_ref().is_some_and(full)
            && let Some(ready) = batch.take()
        {
            sent.add(&send(&client, &digest, ready, &state, &bar)?);
        }
        let open = batch.get_or_insert_with(|| Batch {
            subject,
            first_line: line.number,
            end: line.end,
            next_line: line.number,
            memories: Vec::new(),
        });
        open.memories.push(memory);
        (open.end, open.next_line) = (line.end, line.number + 1);
    }
    if let Some(ready) = batch {
        sent.add(&send(&client, &digest, ready, &state, &bar)?);
    }
    bar.finish_and_clear();
    state.done()?;
    out.line(format_args!(
        "{} lines imported: {} new, {} took the place of an older value, {} were there already",
        sent.created + sent.superseded + sent.merged,
        sent.created,
        sent.superseded,
        sent.merged
    ))
}

/// What became of the lines.
#[derive(Default)]
struct Tally {
    created: usize,
    superseded: usize,
    merged: usize,
}

impl Tally {
    fn add(&mut self, answer: &Value) {
        // A batch that went in before is answered with what became of it then.
        let replayed = answer.get("replayed") == Some(&Value::Bool(true));
        for outcome in answer.get("outcomes").and_then(Value::as_array).into_iter().flatten() {
            match outcome.get("outcome").and_then(Value::as_str) {
                Some("created") if !replayed => self.created += 1,
                Some("superseded") if !replayed => self.superseded += 1,
                _ => self.merged += 1,
            }
        }
    }
}

/// Checks every line as the service will, and returns the digest of the file.
fn check(args: &Memories, out: &mut Out) -> anyhow::Result<String> {
    let (settings, now) = (Settings::default(), wiring::system_env().now());
    let mut n_faults = 0usize;
    let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
    let mut n_lines = 0u64;
    for line in lines(&args.file)? {
        let line = line?;
        n_lines += 1;
        hash.update(line.text.as_bytes());
        hash.update(b"\n");
        if let Err(fault) = check_line(&line.text, args.subject.as_deref(), &settings, now) {
            n_faults += 1;
            if n_faults <= FAULTS_MAX {
                out.line(format_args!("{}:{}: {fault}", args.file.display(), line.number))?;
            }
        }
    }
    if n_faults > 0 {
        bail!("{n_faults} of {n_lines} lines are not well formed; nothing was imported");
    }
    if n_lines == 0 {
        bail!("{} holds no lines", args.file.display());
    }
    Ok(hash.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

fn check_line(
    text: &str,
    default: Option<&str>,
    settings: &Settings,
    now: merkwelt_domain::Timestamp,
) -> anyhow::Result<()> {
    let (subject, memory) = split(text)?;
    if let Some(subject) = subject.as_deref().or(default) {
        subject.parse::<merkwelt_domain::SubjectRef>()?;
    } else if memory.get("owner").is_none_or(|owner| owner == "subject") {
        bail!("names no subject; add one or use --subject");
    }
    check_memory(memory, settings, now).map_err(|fault| {
        // Beside the fields of a memory a line may name its subject.
        anyhow::Error::msg(fault.replacen("the fields are kind,", "the fields are subject, kind,", 1))
    })
}

/// The subject and the rest of a line.
fn split(text: &str) -> anyhow::Result<(Option<String>, Value)> {
    // The parser's own text would repeat what stands in the line.
    let mut object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| anyhow::anyhow!("column {}: not a JSON object", error.column()))?;
    // As the service reads it (I-15): of two subjects in one line, which one is meant?
    if strict::parse::<Map<String, Value>>(text.as_bytes()).is_err() {
        bail!("it names a field twice, or nests too deeply");
    }
    match object.remove("subject") {
        None => Ok((None, Value::Object(object))),
        Some(Value::String(subject)) => Ok((Some(subject), Value::Object(object))),
        Some(_) => bail!("subject: must be a text"),
    }
}

fn send(
    client: &Client,
    digest: &str,
    batch: Batch,
    state: &Progress,
    bar: &ProgressBar,
) -> anyhow::Result<Value> {
    let client =
        batch.subject.as_deref().map_or_else(|| client.clone(), |subject| client.acting_for(subject));
    // The same lines under the same key: a repeated batch is answered, not written again.
    let key = format!("import-{digest}-{}-{}", batch.first_line, batch.next_line);
    let body = json!({"memories": batch.memories});
    let lines = format!("lines {} to {}", batch.first_line, batch.next_line - 1);
    let again =
        || format!("{lines} were not imported; all before them were. Run the same command again to go on");
    let answer = client.post("/v1/memories/batch", &body, Some(&key)).with_context(again)?;
    let written = match answer.status {
        404 => answer.success().with_context(|| {
            format!("{lines} were not imported; all before them were. One of them names a group or a conversation that is not there for its subject, or the key may not do this: correct that, then run the command again")
        }),
        400..=499 => answer.success().with_context(|| {
            format!("{lines} were not imported; all before them were. Correct the file, then run the command again")
        }),
        _ => answer.success().with_context(again),
    }?;
    state.reached(batch.next_line)?;
    bar.set_position(batch.end);
    Ok(written)
}

/// One line after its check: its number, and its subject with the memory or what is wrong with it.
pub type Checked = (u64, anyhow::Result<(Option<String>, Value)>);

/// Checks the lines of a file as the command does before it sends the first. An error ends the file. Public for the
/// fuzzer.
pub fn checked(
    input: impl BufRead,
    default: Option<&str>,
    now: merkwelt_domain::Timestamp,
) -> impl Iterator<Item = anyhow::Result<Checked>> {
    let settings = Settings::default();
    read_lines(input).map(move |line| {
        let line = line?;
        let checked = check_line(&line.text, default, &settings, now).and_then(|()| split(&line.text));
        Ok((line.number, checked))
    })
}

fn lines(path: &Path) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Line>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(read_lines(BufReader::new(file)))
}

fn read_lines(mut reader: impl BufRead) -> impl Iterator<Item = anyhow::Result<Line>> {
    let (mut number, mut end) = (0u64, 0u64);
    std::iter::from_fn(move || {
        loop {
            let mut bytes = Vec::new();
            number += 1;
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes);
            match read {
                Ok(0) => return None,
                Ok(n) => end += n as u64,
                Err(error) => return Some(Err(error.into())),
            }
            if bytes.len() as u64 == LINE_BYTES_MAX && !bytes.ends_with(b"\n") {
                return Some(Err(anyhow::anyhow!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
            }
            let Ok(text) = String::from_utf8(bytes) else {
                return Some(Err(anyhow::anyhow!("line {number} is not UTF-8")));
            };
            // Some editors begin a file with a mark of its encoding.
            let text = if number == 1 { text.strip_prefix('\u{feff}').unwrap_or(&text) } else { &text };
            let text = text.trim();
            if !text.is_empty() {
                return Some(Ok(Line { number, end, text: text.to_owned() }));
            }
        }
    })
}

/// Where an import of one file stands, in a small file beside it.
struct Progress {
    path: PathBuf,
    digest: String,
}

impl Progress {
    fn of(file: &Path, digest: &str) -> Self {
        let mut path = file.as_os_str().to_owned();
        path.push(".merkwelt-import");
        Self { path: path.into(), digest: digest.to_owned() }
    }

    /// The first line that is not in yet; a file with other content begins anew.
    fn next_line(&self) -> anyhow::Result<u64> {
        let Ok(text) = std::fs::read_to_string(&self.path) else { return Ok(1) };
        match text.trim().split_once(' ') {
            Some((digest, line)) if digest == self.digest => {
                line.parse().with_context(|| format!("{} is damaged; remove it", self.path.display()))
            }
            Some(_) | None => Ok(1),
        }
    }

    fn reached(&self, next_line: u64) -> anyhow::Result<()> {
        let mut file = File::create(&self.path)
            .with_context(|| format!("cannot note the progress in {}", self.path.display()))?;
        writeln!(file, "{} {next_line}", self.digest)?;
        Ok(file.sync_all()?)
    }

    fn done(&self) -> anyhow::Result<()> {
        if self.path.exists() {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

fn progress_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {eta}");
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_the_encoding_is_no_part_of_the_first_line_and_nowhere_else() {
        let now = merkwelt_domain::Timestamp::from_millis(0);
        let line = "{\"subject\":\"u1\",\"kind\":\"user_fact\",\"text\":\"tea\"}\n";
        let marked = |text: String| {
            let fine: Vec<bool> =
                checked(text.as_bytes(), None, now).map(|line| line.unwrap().1.is_ok()).collect();
            fine
        };
        assert_eq!(marked(format!("\u{feff}{line}{line}")), [true, true]);
        assert_eq!(marked(format!("{line}\u{feff}{line}")), [true, false]);
    }

    #[test]
    fn a_line_that_names_a_field_twice_is_refused_without_what_it_says() {
        let line = |text: &str| {
            let now = merkwelt_domain::Timestamp::from_millis(0);
            checked(text.as_bytes(), None, now).next().unwrap().unwrap().1.map_err(|fault| fault.to_string())
        };
        assert!(line(r#"{"subject":"u1","kind":"user_fact","text":"tea"}"#).is_ok());
        for doubled in [
            r#"{"subject":"u1","subject":"u2","kind":"user_fact","text":"tea"}"#,
            r#"{"subject":"u1","kind":"user_fact","text":"tea","metadata":{"a":1,"a":2}}"#,
        ] {
            assert_eq!(line(doubled), Err("it names a field twice, or nests too deeply".to_owned()));
        }
        let unknown = line(r#"{"subject":"u1","kind":"user_fact","text":"tea","colour":"red"}"#).unwrap_err();
        assert!(unknown.contains("the fields are subject, kind, text,"), "{unknown}");
    }
}
