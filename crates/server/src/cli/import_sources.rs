//! `merkwelt import sources`: brings the sources of a running service to the state of a folder. Every file goes
//! in whole or not at all, a refused one stops no other, and what did not change is not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use merkwelt_domain::Purpose;
use merkwelt_domain::memory::{Expiry, NoExpiryReason};
use merkwelt_domain::source::{EvidencePolicy, SourceState, Terms};

use super::key::read_key;
use super::remote_shelf::RemoteShelf;
use super::{Client, Out};
use crate::folder::{
    Before, Bounds, Dry, Failure, Known, Label, Listing, Missing, Outcome, Pass, Refusal, Restore, Rights,
    Root, Seen, Shelf, shown,
};

/// Arguments of `merkwelt import sources`.
///
/// Reads PDF, DOCX, HTML, Markdown and plain text. Who may read a file is said by `<name>.acl` beside it, else
/// by the nearest `.acl` in its folder or above, else by --group or --everybody:
/// `groups = ["sales"]` or `everybody = true`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder
    folder: PathBuf,
    /// Address of the service
    #[arg(long, default_value = "http://127.0.0.1:7777")]
    url: String,
    /// A file that holds a key that may manage sources, of role app or tenant_admin
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The name under which the folder's sources are registered [default: the name of the folder]
    #[arg(long)]
    name: Option<String>,
    /// A group that may read files without an .acl; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Everybody in the tenant may read files without an .acl
    #[arg(long, conflicts_with = "groups")]
    everybody: bool,
    /// What new sources are processed for; recorded
    #[arg(long)]
    purpose: Option<Purpose>,
    /// What is kept for evidence after a deletion: digest_with_version or digest_with_copy
    #[arg(long, default_value = "digest_with_version")]
    evidence: EvidencePolicy,
    /// Delete sources of this folder whose file is gone
    #[arg(long)]
    delete_missing: bool,
    /// Withdraw sources of this folder whose file is gone; they can be restored
    #[arg(long, conflicts_with = "delete_missing")]
    withdraw_missing: bool,
    /// With --delete-missing or --withdraw-missing: the folder is meant to hold no documents any more
    #[arg(long)]
    empty_folder: bool,
    /// Show sources again that were withdrawn, although their file did not change
    #[arg(long)]
    restore: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The largest file, in MiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    file_megabytes: u16,
    /// The most entries of the folder and all below it
    #[arg(long, default_value_t = 100_000)]
    files: usize,
}

pub(super) fn run(args: &Args, out: &mut Out) -> anyhow::Result<()> {
    let label = label(args)?;
    let groups = Some(args.groups.as_slice()).filter(|groups| !groups.is_empty());
    let rights = Rights::of(groups, args.everybody).map_err(|reason| anyhow::anyhow!("--group: {reason}"))?;
    let terms = Terms {
        expiry: Expiry::Never(NoExpiryReason::CompanyKnowledge),
        evidence: args.evidence,
        purpose: args.purpose.clone(),
    };
    let bounds = Bounds { entries_max: args.files, bytes_max: usize::from(args.file_megabytes) << 20 };
    let root = Root::open(&args.folder)?;
    let listing = root.list(&bounds)?;
    let remote = RemoteShelf(Client::new(&args.url, &read_key(args.key_file.as_deref())?));
    let dry = Dry(&remote);
    let shelf: &dyn Shelf = if args.dry_run { &dry } else { &remote };
    let stop = |failure| match failure {
        Failure::Stop(error) => error,
        Failure::Refused(why) => anyhow::Error::new(why),
    };
    let known = shelf.known(&label).map_err(stop)?;
    let known: BTreeMap<&str, &Known> = known.iter().map(|known| (known.key.as_str(), known)).collect();
    refuse_empty(args, &listing, &known)?;
    // A key that may not see groups is told so only once; in earnest the service itself refuses unknown ones.
    let groups = if args.dry_run { shelf.groups().map_err(stop)? } else { None };
    let pass = Pass { shelf, label: &label, terms: &terms, rights: rights.as_ref(), bounds, groups };
    let mut tally = Tally::default();
    take_in(args, &pass, &root, &listing, &known, &mut tally, out)?;
    remove(args, &pass, &listing, &known, &mut tally, out)?;
    tally.end(args.dry_run, out)
}

/// A volume that is not mounted leaves an empty folder behind. Nothing is removed because of it, unless it is said.
fn refuse_empty(args: &Args, listing: &Listing, known: &BTreeMap<&str, &Known>) -> anyhow::Result<()> {
    let removes = (args.delete_missing || args.withdraw_missing) && !args.empty_folder;
    let is_empty = listing.files.is_empty() && listing.refused.is_empty();
    let n_known = known.values().filter(|known| known.state != SourceState::Deleted).count();
    if removes && is_empty && n_known > 0 {
        bail!(
            "the folder holds no documents, but {n_known} sources came from it; nothing was removed. If a volume is missing, mount it. If it is meant, say --empty-folder"
        );
    }
    Ok(())
}

fn label(args: &Args) -> anyhow::Result<Label> {
    let folder = std::path::absolute(&args.folder)?;
    let last = folder.file_name().and_then(|name| name.to_str()).map(str::to_lowercase);
    match (&args.name, last) {
        (Some(name), _) => Label::parse(name),
        (None, Some(last)) => Label::parse(&last)
            .context("the folder's name cannot be used; give its sources another with --name"),
        (None, None) => bail!("give the folder's sources a name with --name"),
    }
}

fn take_in(
    args: &Args,
    pass: &Pass<'_>,
    root: &Root,
    listing: &Listing,
    known: &BTreeMap<&str, &Known>,
    tally: &mut Tally,
    out: &mut Out,
) -> anyhow::Result<()> {
    let restore = if args.restore { Restore::Always } else { Restore::IfChanged };
    for (path, found) in &listing.files {
        let source = known.get(found.key.as_str()).copied();
        let seen = pass.file(root, path, found, source, Before { audience: None, restore });
        let seen = seen.with_context(|| stopped(path))?;
        tally.line(&shown(path), &seen, out)?;
    }
    for refused in &listing.refused {
        let source = refused.key.as_ref().and_then(|key| known.get(key.as_str()).copied());
        tally.line(&refused.shown, &pass.unfit(refused.why.clone(), source)?, out)?;
    }
    for path in &listing.other {
        out.line(format_args!("passed over  {path}  not a kind of document that is read"))?;
    }
    Ok(())
}

fn stopped(path: &str) -> String {
    format!("stopped at {}; what stands above is done. Run the same command again to go on", shown(path))
}

/// Sources whose file is gone. What could not be looked at is not gone.
fn remove(
    args: &Args,
    pass: &Pass<'_>,
    listing: &Listing,
    known: &BTreeMap<&str, &Known>,
    tally: &mut Tally,
    out: &mut Out,
) -> anyhow::Result<()> {
    let missing = match (args.delete_missing, args.withdraw_missing) {
        (true, _) => Missing::Delete,
        (false, true) => Missing::Withdraw,
        (false, false) => Missing::Keep,
    };
    let there: BTreeSet<&str> = listing
        .files
        .values()
        .map(|found| found.key.as_str())
        .chain(listing.refused.iter().filter_map(|refused| refused.key.as_deref()))
        .collect();
    for known in known.values().filter(|known| known.state != SourceState::Deleted) {
        if there.contains(known.key.as_str()) || !listing.sees(&known.key) {
            continue;
        }
        let seen = pass.missing(known, missing)?;
        if missing == Missing::Keep {
            out.line(format_args!("file is gone  {}  kept; --delete-missing deletes it", shown(&known.key)))?;
        } else {
            tally.line(&shown(&known.key), &seen, out)?;
        }
    }
    Ok(())
}

/// How many files came to what.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn line(&mut self, path: &str, seen: &Seen, out: &mut Out) -> anyhow::Result<()> {
        let word = seen.outcome.word();
        *self.0.entry(word).or_default() += 1;
        let more = match &seen.outcome {
            Outcome::Published(put) | Outcome::Replaced(put) => {
                let source = seen.source.as_deref().unwrap_or_default();
                let (passages, embedded, reused) = (put.passages, put.embedded, put.reused);
                format!("  {source}  {passages} passages, {embedded} embedded, {reused} reused")
            }
            Outcome::Refused { why, withdrawn } => {
                let former = match (withdrawn, why) {
                    (false, _) => "",
                    (true, Refusal::NoRights | Refusal::BadRights(_) | Refusal::UnknownGroup(_)) => {
                        "; its former revision is withdrawn. Say who may read it and add --restore to show it again"
                    }
                    (true, _) => "; its former revision is withdrawn",
                };
                format!("  {}: {}{former}", why.code(), shown(&why.to_string()))
            }
            Outcome::Unchanged
            | Outcome::Restored
            | Outcome::RightsChanged
            | Outcome::Withdrawn
            | Outcome::Deleted => String::new(),
        };
        out.line(format_args!("{word}  {path}{more}"))
    }

    fn end(&self, dry_run: bool, out: &mut Out) -> anyhow::Result<()> {
        let n_refused = self.0.get("refused").copied().unwrap_or_default();
        let words: Vec<String> = self.0.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let sum =
            if words.is_empty() { "the folder holds no documents".to_owned() } else { words.join(", ") };
        let dry = if dry_run { " (nothing was done: --dry-run)" } else { "" };
        out.line(format_args!("{sum}{dry}"))?;
        if n_refused > 0 {
            bail!("{n_refused} refused: the reason stands beside each");
        }
        Ok(())
    }
}
