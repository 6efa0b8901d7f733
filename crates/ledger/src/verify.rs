//! The auditor's check of an exported log: every line, every entry, the whole tree, the signature and, if one
//! was kept, an older checkpoint. No network, no service. It never says just "valid": a [`Report`] tells up to
//! where integrity holds, what was found, and on what the trust rests.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use crate::canonical::{self, Value};
use crate::checkpoint::{Checkpoint, SignedCheckpoint};
use crate::entry;
use crate::export::{self, Item};
use crate::findings::{Exception, Findings};
use crate::hash::Hash;
use crate::note::VerifierKey;
use crate::token::{UtcMillis, is_token};
use crate::tree::Frontier;

/// Declares the stable codes of an enumeration.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable code, the same in every implementation of the verifier (L-27).
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.code())
            }
        }
    };
}
pub(crate) use coded;

coded! {
    /// Why a log is refused.
    Reason {
        /// The file cannot be read.
        Unreadable = "unreadable",
        /// The first line is not a header.
        HeaderMalformed = "header_malformed",
        /// Format or version are unknown.
        VersionUnknown = "version_unknown",
        /// A line is not in its only spelling.
        LineMalformed = "line_malformed",
        /// The file ends before its checkpoint.
        Truncated = "truncated",
        /// Something follows the checkpoint.
        Trailing = "trailing",
        /// An index is missing, repeated or out of order.
        IndexOrder = "index_order",
        /// An entry is not strict JSON.
        EntryJson = "entry_json",
        /// An entry is not spelled canonically.
        EntryNotCanonical = "entry_not_canonical",
        /// An entry lacks a member of the envelope.
        EntryEnvelope = "entry_envelope",
        /// An entry is of an unknown envelope version.
        EntryVersion = "entry_version",
        /// An entry is older than the one before.
        TimeReversed = "time_reversed",
        /// The file names another key than the trusted one.
        KeyNotTrusted = "key_not_trusted",
        /// The checkpoint is not origin, size and root.
        CheckpointMalformed = "checkpoint_malformed",
        /// The checkpoint or the key is of another log than the header says.
        CheckpointOrigin = "checkpoint_origin",
        /// The checkpoint is not signed by the key.
        CheckpointSignature = "checkpoint_signature",
        /// The checkpoint counts more or fewer entries.
        SizeMismatch = "size_mismatch",
        /// The entries lead to another root.
        RootMismatch = "root_mismatch",
        /// The older checkpoint is of another log.
        PreviousOrigin = "previous_origin",
        /// The older checkpoint is not signed by the key.
        PreviousSignature = "previous_signature",
        /// The log is shorter than the older checkpoint: its end was cut off.
        BehindPrevious = "behind_previous",
        /// The log says something else than the older checkpoint (L-23).
        ForkedFromPrevious = "forked_from_previous",
    }
}

/// Why and where a log was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at line {line}")]
pub struct Failure {
    /// What was found.
    pub reason: Reason,
    /// Line of the file, from 1.
    pub line: u64,
}

coded! {
    /// On what the trust in a log rests.
    Trust {
        /// On a key the auditor had from elsewhere.
        PinnedKey = "pinned_key",
        /// On the key in the file alone: it shows that the file is whole, not who wrote it.
        FileOnly = "file_only",
    }
}

/// What was verified, and how far it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Identity of the log.
    pub origin: String,
    /// Integrity holds for the entries below this size.
    pub size: u64,
    /// Root of the tree at that size.
    pub root: Hash,
    /// The key that signed it.
    pub key: VerifierKey,
    /// Whether that key was given or merely found.
    pub trust: Trust,
    /// Size of the older checkpoint that the log continues, if one was given.
    pub continues: Option<u64>,
    /// Entries by type name.
    pub by_type: BTreeMap<String, u64>,
    /// Number of findings that do not break integrity but need an explanation.
    pub n_exceptions: u64,
    /// The first of them.
    pub exceptions: Vec<Exception>,
    /// Time of the first and the last entry.
    pub span: Option<(UtcMillis, UtcMillis)>,
}

/// Verifies an exported log.
///
/// `trusted` is the key pinned by the auditor, `previous` a checkpoint kept from an earlier export. Memory is
/// bounded by the number of reads (their ids are compared), not by the size of the entries.
///
/// # Errors
/// The first [`Failure`] in the order of the file. What the file says is compared with `previous` last, so that
/// a file that was altered after the export is not taken for a log that was rewritten.
pub fn verify_export(
    input: impl BufRead,
    trusted: Option<&VerifierKey>,
    previous: Option<&SignedCheckpoint>,
) -> Result<Report, Failure> {
    let mut lines =
        export::Reader::new(input).map_err(|error| Failure { reason: reason_of(&error), line: 1 })?;
    let header = lines.header().clone();
    let fail = |reason, line| Err(Failure { reason, line });
    if trusted.is_some_and(|key| *key != header.key) {
        return fail(Reason::KeyNotTrusted, 1);
    }
    if header.origin != header.key.name() {
        return fail(Reason::CheckpointOrigin, 1);
    }
    let previous = match previous.map(|previous| check_previous(previous, &header)).transpose() {
        Ok(previous) => previous,
        Err(reason) => return fail(reason, 1),
    };
    let mut walk = Walk::new(previous, &header.key);
    let signed = loop {
        let item = lines.read().map_err(|error| Failure { reason: reason_of(&error), line: lines.line() })?;
        walk.compare_previous(lines.line());
        let step = match item {
            Item::Entry { index, leaf } => walk.entry(index, &leaf),
            Item::Checkpoint(signed) => break signed,
        };
        step.map_err(|reason| Failure { reason, line: lines.line() })?;
    };
    walk.end(&signed, &header).map_err(|reason| Failure { reason, line: lines.line() })?;
    walk.continues_previous(lines.line())?;
    let trust = if trusted.is_some() { Trust::PinnedKey } else { Trust::FileOnly };
    Ok(walk.report(header, trust))
}

fn check_previous<'p>(
    previous: &'p SignedCheckpoint,
    header: &export::Header,
) -> Result<&'p Checkpoint, Reason> {
    if previous.checkpoint().origin() != header.origin {
        return Err(Reason::PreviousOrigin);
    }
    previous.verify([&header.key]).map_err(|_| Reason::PreviousSignature)
}

/// The state of one pass over the entries.
struct Walk<'p> {
    frontier: Frontier,
    previous: Option<&'p Checkpoint>,
    /// The line at which the entries led to another root than the older checkpoint.
    forked_at: Option<u64>,
    span: Option<(UtcMillis, UtcMillis)>,
    findings: Findings,
}

impl<'p> Walk<'p> {
    fn new(previous: Option<&'p Checkpoint>, key: &VerifierKey) -> Self {
        Self {
            frontier: Frontier::empty(),
            previous,
            forked_at: None,
            span: None,
            findings: Findings::new(key),
        }
    }

    fn entry(&mut self, index: u64, leaf: &[u8]) -> Result<(), Reason> {
        if index != self.frontier.size() {
            return Err(Reason::IndexOrder);
        }
        let value = canonical::parse_canonical(leaf)
            .map_err(|_| Reason::EntryJson)?
            .ok_or(Reason::EntryNotCanonical)?;
        let at = check_envelope(&value)?;
        self.span = match self.span {
            Some((_, last)) if at < last => return Err(Reason::TimeReversed),
            Some((first, _)) => Some((first, at)),
            None => Some((at, at)),
        };
        self.findings.observe(index, &value);
        self.frontier.push(Hash::of_leaf(leaf)).map_err(|_| Reason::SizeMismatch)
    }

    /// Notes a difference and goes on: whether the file or the log was changed is only known at its end.
    fn compare_previous(&mut self, line: u64) {
        let forks = |previous: &&Checkpoint| {
            previous.size() == self.frontier.size() && previous.root() != self.frontier.root()
        };
        if self.previous.as_ref().is_some_and(forks) {
            self.forked_at = Some(line);
        }
    }

    /// For a file that is whole in itself: the operator signed it, and it must say what was kept from before.
    fn continues_previous(&self, end: u64) -> Result<(), Failure> {
        if let Some(line) = self.forked_at {
            return Err(Failure { reason: Reason::ForkedFromPrevious, line });
        }
        if self.previous.is_some_and(|previous| previous.size() > self.frontier.size()) {
            return Err(Failure { reason: Reason::BehindPrevious, line: end });
        }
        Ok(())
    }

    fn end(&mut self, signed: &SignedCheckpoint, header: &export::Header) -> Result<(), Reason> {
        if signed.checkpoint().origin() != header.origin {
            return Err(Reason::CheckpointOrigin);
        }
        let checkpoint = signed.verify([&header.key]).map_err(|_| Reason::CheckpointSignature)?;
        if checkpoint.size() != self.frontier.size() {
            return Err(Reason::SizeMismatch);
        }
        if checkpoint.root() != self.frontier.root() {
            return Err(Reason::RootMismatch);
        }
        self.findings.finish();
        Ok(())
    }

    fn report(self, header: export::Header, trust: Trust) -> Report {
        let (by_type, n_exceptions, exceptions) = self.findings.into_parts();
        Report {
            origin: header.origin,
            size: self.frontier.size(),
            root: self.frontier.root(),
            key: header.key,
            trust,
            continues: self.previous.map(Checkpoint::size),
            by_type,
            n_exceptions,
            exceptions,
            span: self.span,
        }
    }
}

/// The members every entry has; the time is handed back.
fn check_envelope(value: &Value) -> Result<UtcMillis, Reason> {
    let version = value.get("v").and_then(Value::as_int).ok_or(Reason::EntryEnvelope)?;
    if version != i64::from(entry::VERSION) {
        return Err(Reason::EntryVersion);
    }
    let text = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_text).filter(|text| is_token(text)).map(str::to_owned)
    };
    let actor = value.get("actor").ok_or(Reason::EntryEnvelope)?;
    for present in [text(value, "type"), text(value, "tenant"), text(actor, "kind"), text(actor, "id")] {
        present.ok_or(Reason::EntryEnvelope)?;
    }
    let at = value.get("at").and_then(Value::as_text).ok_or(Reason::EntryEnvelope)?;
    UtcMillis::parse(at).map_err(|_| Reason::EntryEnvelope)
}

const fn reason_of(error: &export::Error) -> Reason {
    match error {
        export::Error::Io(_) => Reason::Unreadable,
        export::Error::Header => Reason::HeaderMalformed,
        export::Error::Version => Reason::VersionUnknown,
        export::Error::Line | export::Error::TooLong => Reason::LineMalformed,
        export::Error::Checkpoint(_) => Reason::CheckpointMalformed,
        export::Error::Truncated => Reason::Truncated,
        export::Error::Trailing => Reason::Trailing,
        export::Error::Order { .. } => Reason::IndexOrder,
    }
}

impl Report {
    /// The report as canonical JSON for machines.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let text = |text: &str| Value::Text(text.to_owned());
        let mut members = BTreeMap::from([
            ("origin".to_owned(), text(&self.origin)),
            ("integrity_up_to_size".to_owned(), number(self.size)),
            ("root".to_owned(), text(&self.root.to_hex())),
            ("key".to_owned(), text(&self.key.to_string())),
            ("trust".to_owned(), text(self.trust.code())),
            ("n_exceptions".to_owned(), number(self.n_exceptions)),
            (
                "exceptions".to_owned(),
                Value::List(self.exceptions.iter().copied().map(Exception::to_value).collect()),
            ),
        ]);
        let by_type = self.by_type.iter().map(|(name, count)| (name.clone(), number(*count))).collect();
        members.insert("entries_by_type".to_owned(), Value::Object(by_type));
        if let Some(size) = self.continues {
            members.insert("continues_size".to_owned(), number(size));
        }
        if let Some((first, last)) = self.span {
            members.insert("first_at".to_owned(), text(&first.to_string()));
            members.insert("last_at".to_owned(), text(&last.to_string()));
        }
        Value::Object(members)
    }
}

/// A count; beyond 2⁵³ − 1, which no file reaches, its digits as text.
pub(crate) fn number(count: u64) -> Value {
    canonical::Integer::from_count(count).map_or_else(|| Value::Text(count.to_string()), Value::Int)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "log         {}", self.origin)?;
        writeln!(f, "integrity   holds for the first {} entries, root {}", self.size, self.root.to_base64())?;
        if let Some((first, last)) = self.span {
            writeln!(f, "time        {first} to {last}, by the service's clock")?;
        }
        match self.trust {
            Trust::PinnedKey => writeln!(f, "trust       signed by the given key {}", self.key)?,
            Trust::FileOnly => writeln!(
                f,
                "trust       NOT ESTABLISHED: the key {} comes from the file itself; compare it with one you \
                 received another way",
                self.key
            )?,
        }
        match self.continues {
            Some(size) => writeln!(f, "continuity  continues the given checkpoint of size {size}")?,
            None => writeln!(
                f,
                "continuity  not checked: no older checkpoint was given, so a cut end would not show"
            )?,
        }
        for (name, count) in &self.by_type {
            writeln!(f, "entries     {count} {name}")?;
        }
        writeln!(f, "exceptions  {}", self.n_exceptions)?;
        for exception in &self.exceptions {
            writeln!(f, "            {exception}")?;
        }
        writeln!(f, "not proven  that content is true, and that nothing was read past the service")
    }
}
