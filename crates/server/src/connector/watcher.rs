//! One connector at work: it looks at names and times, waits until what changed has settled, and brings the
//! sources of what settled to their state. What it remembers between looks saves work only; after a restart it
//! reads every file once and compares it with the register.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use merkwelt_domain::source::SourceState;
use merkwelt_domain::{Env, Timestamp};
use merkwelt_store::source::NewAudience;

use super::report::{CURRENT, Journal, Line, REFUSED, WORKING};
use super::setting::Setting;
use crate::folder::{
    Before, Failure, Found, Governed, Known, Listing, Outcome, Pass, Refusal, Refused, Restore, Root, Seen,
    Shelf, Stat,
};

/// Milliseconds after which something is tried again that failed for a reason outside of the file.
const RETRY_MS: i64 = 30_000;

/// A connector and what it remembers.
pub(super) struct Watcher {
    pub(super) setting: Setting,
    /// By path.
    files: BTreeMap<String, Memory>,
    /// Entries that are not taken in, by what is shown of their paths.
    refused: BTreeMap<String, Sight>,
    /// Since when the file of a source is gone, by key.
    gone: BTreeMap<String, i64>,
    /// Sources by key.
    sources: BTreeMap<String, String>,
    /// When every file was last read.
    read_at: Option<i64>,
}

/// One look.
pub(super) struct Look {
    /// How many files have not settled yet.
    pub(super) n_waiting: usize,
    /// How long it took to look through the folder, without the work that was found.
    pub(super) looked_ms: i64,
}

/// What is remembered of a file.
struct Memory {
    print: (Stat, Governed),
    since: i64,
    done: bool,
    retry_at: Option<i64>,
    audience: Option<(NewAudience, Vec<String>)>,
}

/// What is remembered of an entry that is not taken in.
struct Sight {
    code: &'static str,
    since: i64,
    done: bool,
}

/// What a look has to do.
#[derive(Default)]
struct Todo<'l> {
    files: Vec<(&'l String, &'l Found)>,
    refused: Vec<&'l Refused>,
    gone: Vec<String>,
    n_waiting: usize,
}

impl Todo<'_> {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.refused.is_empty() && self.gone.is_empty()
    }
}

impl Watcher {
    pub(super) fn new(setting: Setting) -> Self {
        let (files, refused, gone, sources) = Default::default();
        Self { setting, files, refused, gone, sources, read_at: None }
    }

    /// Looks once. `shelf` is asked for only if there is something to do.
    ///
    /// # Errors
    /// The folder, the key or the register cannot be used; the text says what to do.
    pub(super) fn look<S: Shelf>(
        &mut self,
        journal: &Journal,
        env: &dyn Env,
        shelf: impl FnOnce() -> anyhow::Result<S>,
        stopped: &dyn Fn() -> bool,
    ) -> anyhow::Result<Look> {
        let began = env.now();
        let root = Root::open(&self.setting.folder)?;
        let listing = root.list(&self.setting.bounds)?;
        refuse_empty_stranger(&root, &listing, journal)?;
        let now = env.now();
        let whole = self.read_at.is_none_or(|at| !(0..self.setting.rescan_ms).contains(&(now.millis() - at)));
        let todo = self.todo(&listing, now.millis(), whole);
        if whole || !todo.is_empty() {
            let shelf = shelf()?;
            self.work(journal, now, (&root, &listing), &todo, &shelf, stopped)?;
        }
        let whole = whole && !stopped();
        if whole {
            self.read_at = Some(now.millis());
        }
        if journal.looked(WORKING, Some(root.identity), whole, now) {
            tracing::info!(connector = self.setting.label.as_str(), "the connector works");
        }
        let looked_ms = now.millis().saturating_sub(began.millis());
        Ok(Look { n_waiting: todo.n_waiting, looked_ms })
    }

    fn todo<'l>(&mut self, listing: &'l Listing, now: i64, whole: bool) -> Todo<'l> {
        let mut todo = Todo::default();
        let settle_ms = self.setting.settle_ms;
        self.files.retain(|path, _| listing.files.contains_key(path));
        for (path, found) in &listing.files {
            let print = (found.stat, found.governed.clone());
            let new =
                || Memory { print: print.clone(), since: now, done: false, retry_at: None, audience: None };
            let memory = self.files.entry(path.clone()).or_insert_with(new);
            if memory.print != print {
                let audience = memory.audience.take();
                *memory = Memory { audience, ..new() };
            }
            let is_due = whole || (!memory.done && memory.retry_at.is_none_or(|at| now >= at));
            if is_due && memory.has_settled(now, settle_ms) {
                todo.files.push((path, found));
            } else if is_due {
                todo.n_waiting += 1;
            }
        }
        let shown: BTreeSet<&str> = listing.refused.iter().map(|refused| refused.shown.as_str()).collect();
        self.refused.retain(|path, _| shown.contains(path.as_str()));
        for refused in &listing.refused {
            let code = refused.why.code();
            let sight =
                self.refused.entry(refused.shown.clone()).or_insert(Sight { code, since: now, done: false });
            if sight.code != code {
                *sight = Sight { code, since: now, done: false };
            }
            if (whole || !sight.done) && now - sight.since >= settle_ms {
                todo.refused.push(refused);
            }
        }
        todo.gone = self.missing(listing, now);
        todo
    }

    /// Sources whose file has been gone for long enough. A file that is being replaced may be away for a moment.
    fn missing(&mut self, listing: &Listing, now: i64) -> Vec<String> {
        let there = keys(listing);
        self.gone.retain(|key, _| !there.contains(key.as_str()));
        let mut gone = Vec::new();
        for key in self.sources.keys() {
            if !there.contains(key.as_str()) && listing.sees(key) {
                let since = *self.gone.entry(key.clone()).or_insert(now);
                if now - since >= self.setting.settle_ms {
                    gone.push(key.clone());
                }
            }
        }
        gone
    }

    fn work(
        &mut self,
        journal: &Journal,
        now: Timestamp,
        (root, listing): (&Root, &Listing),
        todo: &Todo<'_>,
        shelf: &dyn Shelf,
        stopped: &dyn Fn() -> bool,
    ) -> anyhow::Result<()> {
        let setting = self.setting.clone();
        let known = shelf.known(&setting.label).map_err(stop)?;
        let known: BTreeMap<String, Known> =
            known.into_iter().map(|known| (known.key.clone(), known)).collect();
        self.sources = known
            .iter()
            .filter(|(_, known)| known.state != SourceState::Deleted)
            .map(|(key, known)| (key.clone(), known.id.clone()))
            .collect();
        let pass = Pass {
            shelf,
            label: &setting.label,
            terms: &setting.terms,
            rights: setting.rights.as_ref(),
            bounds: setting.bounds,
            groups: shelf.groups().map_err(stop)?,
        };
        // What is to be shown no more comes first.
        for key in &todo.gone {
            if let Some(known) = known.get(key).filter(|_| !stopped()) {
                let seen = pass.missing(known, setting.missing)?;
                self.is_gone(journal, key, known, &seen, now);
            }
        }
        for refused in &todo.refused {
            let key = refused.key.as_deref().unwrap_or(&refused.shown);
            let seen = pass.unfit(refused.why.clone(), known.get(key))?;
            if let Some(sight) = self.refused.get_mut(&refused.shown) {
                sight.done = true;
            }
            self.note(journal, key, &seen, now);
        }
        for (path, found) in &todo.files {
            if stopped() {
                break;
            }
            let seen = self.take_in(journal, &pass, root, (path.as_str(), *found), known.get(&found.key))?;
            self.remember(&pass, path, &seen, now.millis())?;
            self.note(journal, &found.key, &seen, now);
        }
        forget_lost_lines(journal, listing, &self.sources);
        Ok(())
    }

    fn take_in(
        &self,
        journal: &Journal,
        pass: &Pass<'_>,
        root: &Root,
        (path, found): (&str, &Found),
        known: Option<&Known>,
    ) -> anyhow::Result<Seen> {
        if known.is_none()
            && let Some(source) = journal.read(|report| report.files.get(&found.key)?.source.clone())
        {
            // It was published, and its source was not deleted from here.
            let standing = pass.shelf.standing(&source).map_err(stop)?;
            if standing.is_some_and(|(state, _)| state == SourceState::Deleted) {
                let mut seen = pass.unfit(Refusal::TakenBack(DELETED_ELSEWHERE), None)?;
                seen.source = Some(source);
                return Ok(seen);
            }
        }
        let own = known.is_some_and(|known| journal.read(|report| report.withdrawn.contains(&known.id)));
        let restore = if own { Restore::Always } else { Restore::Never };
        let memory = self.files.get(path);
        // Once in a while the register is asked although nothing seems to have changed.
        let memory = memory.filter(|memory| !memory.done).and_then(|memory| memory.audience.as_ref());
        let audience = memory.map(|(names, ids)| (names, ids.as_slice()));
        pass.file(root, path, found, known, Before { audience, restore })
    }

    /// What is to be known of a file at the next look.
    fn remember(&mut self, pass: &Pass<'_>, path: &str, seen: &Seen, now: i64) -> anyhow::Result<()> {
        let Some(memory) = self.files.get_mut(path) else { return Ok(()) };
        memory.retry_at = None;
        memory.done = true;
        match (&seen.outcome, &seen.audience, &seen.source) {
            (Outcome::Refused { why, .. }, _, _) => {
                memory.audience = None;
                match why {
                    Refusal::Changing => (memory.done, memory.since) = (false, now),
                    Refusal::Unreadable(_)
                    | Refusal::Service(_)
                    | Refusal::UnknownGroup(_)
                    | Refusal::TooMany(_) => {
                        (memory.done, memory.retry_at) = (false, Some(now.saturating_add(RETRY_MS)));
                    }
                    Refusal::NotUtf8
                    | Refusal::NameUnfit
                    | Refusal::NameTooLong(_)
                    | Refusal::Ambiguous
                    | Refusal::TooDeep(_)
                    | Refusal::Link
                    | Refusal::Special(_)
                    | Refusal::TooLarge(_)
                    | Refusal::NoRights
                    | Refusal::BadRights(_)
                    | Refusal::Document(_)
                    | Refusal::TakenBack(_) => {}
                }
            }
            (_, Some(names @ NewAudience::Groups(_)), Some(source)) => {
                let ids = pass.shelf.standing(source).map_err(stop)?.and_then(|(_, ids)| ids);
                memory.audience = ids.map(|ids| (names.clone(), ids));
            }
            (_, _, _) => memory.audience = None,
        }
        Ok(())
    }

    /// Writes down what became of a file, and tells the log without its name.
    fn note(&mut self, journal: &Journal, key: &str, seen: &Seen, now: Timestamp) {
        let name = self.setting.label.as_str();
        let source = seen.source.clone();
        let since = now.to_string();
        let line = match &seen.outcome {
            Outcome::Refused { why: Refusal::Changing, .. } => return,
            Outcome::Refused { why, .. } => Line {
                source,
                state: REFUSED.to_owned(),
                code: Some(why.code().to_owned()),
                reason: Some(why.to_string()),
                since,
            },
            Outcome::Unchanged
            | Outcome::Published(_)
            | Outcome::Replaced(_)
            | Outcome::Restored
            | Outcome::RightsChanged
            | Outcome::Withdrawn
            | Outcome::Deleted => Line { source, state: CURRENT.to_owned(), code: None, reason: None, since },
        };
        if let (CURRENT, Some(source)) = (line.state.as_str(), &line.source) {
            self.sources.insert(key.to_owned(), source.clone());
        }
        let (source, code) = (line.source.clone().unwrap_or_default(), line.code.clone());
        let is_new = journal.set(key, line);
        match (&seen.outcome, code) {
            (Outcome::Refused { withdrawn, .. }, Some(code)) if is_new => tracing::warn!(
                connector = name,
                source,
                reason = code,
                withdrawn,
                "a file is not published; `merkwelt connector status` names it"
            ),
            (Outcome::Refused { .. } | Outcome::Unchanged, _) => {}
            (outcome, _) => tracing::info!(connector = name, source, "{}", outcome.word()),
        }
    }

    fn is_gone(&mut self, journal: &Journal, key: &str, known: &Known, seen: &Seen, now: Timestamp) {
        if matches!(seen.outcome, Outcome::Refused { .. }) {
            return self.note(journal, key, seen, now);
        }
        journal.forget(key, (seen.outcome == Outcome::Deleted).then_some(known.id.as_str()));
        self.sources.remove(key);
        self.gone.remove(key);
        if seen.outcome != Outcome::Unchanged {
            let (name, word) = (self.setting.label.as_str(), seen.outcome.word());
            tracing::info!(connector = name, source = known.id, "its file is gone: {word}");
        }
    }
}

const DELETED_ELSEWHERE: &str =
    "its source was deleted by somebody else; remove the file, or give it another name to publish it anew";

impl Memory {
    /// Whether the file has stayed the same for long enough: by its own times, or by what was seen of it where
    /// these lie in the future.
    fn has_settled(&self, now: i64, settle_ms: i64) -> bool {
        let (stat, governed) = &self.print;
        let rights = match governed {
            Governed::By { stat, .. } => stat.touched_at(),
            Governed::Unsaid | Governed::Unfit(_) => i64::MIN,
        };
        let touched_at = stat.touched_at().max(rights);
        touched_at.saturating_add(settle_ms) <= now || now - self.since >= settle_ms
    }
}

/// A mounted folder that went away leaves an empty one of another identity. Nothing is removed because of it.
fn refuse_empty_stranger(root: &Root, listing: &Listing, journal: &Journal) -> anyhow::Result<()> {
    let (before, had_files) = journal.read(|report| (report.folder, !report.files.is_empty()));
    let is_other = before.is_some_and(|before| before != root.identity);
    if listing.is_empty() && had_files && is_other {
        bail!(
            "the folder is empty and is not the one it was; if a volume is missing, mount it. If it is meant, put a file into it"
        );
    }
    Ok(())
}

fn keys(listing: &Listing) -> BTreeSet<&str> {
    let files = listing.files.values().map(|found| found.key.as_str());
    files.chain(listing.refused.iter().filter_map(|refused| refused.key.as_deref())).collect()
}

/// Lines of files that are gone and never had a source.
fn forget_lost_lines(journal: &Journal, listing: &Listing, sources: &BTreeMap<String, String>) {
    let there: BTreeSet<&str> = keys(listing)
        .into_iter()
        .chain(listing.refused.iter().map(|refused| refused.shown.as_str()))
        .collect();
    let lost: Vec<String> = journal.read(|report| {
        let lost =
            |key: &&String| !there.contains(key.as_str()) && !sources.contains_key(*key) && listing.sees(key);
        report.files.keys().filter(lost).cloned().collect()
    });
    for key in lost {
        journal.forget(&key, None);
    }
}

/// What ends the whole look.
fn stop(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Stop(error) => error,
        Failure::Refused(why) => anyhow::Error::new(why),
    }
}
