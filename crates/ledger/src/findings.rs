//! What a whole log still leaves to explain: entries of unknown types, reads with missing references, text
//! where only ids belong. Findings never undo integrity; they are counted and named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::canonical::Value;
use crate::checkpoint::Checkpoint;
use crate::entry::EntryType;
use crate::note::VerifierKey;
use crate::token::is_token;
use crate::verify::{coded, number};

/// Most exceptions named one by one; all are counted.
pub const EXCEPTIONS_MAX: usize = 1000;

coded! {
    /// What needs an explanation.
    ExceptionReason {
        /// The type is not one of this version.
        UnknownType = "unknown_type",
        /// The log does not begin with its genesis, or has another one later.
        GenesisPlace = "genesis_place",
        /// The genesis names another key than the one that signed the log.
        GenesisKey = "genesis_key",
        /// An entry of another tenant than the first one's.
        ForeignTenant = "foreign_tenant",
        /// A string that is neither an id nor a commitment: content may have slipped in.
        FreeText = "free_text",
        /// The clock stood behind the entry before.
        ClockBehind = "clock_behind",
        /// A read lacks its id, its parts or its references.
        ReadMalformed = "read_malformed",
        /// References of a read are missing.
        ReadIncomplete = "read_incomplete",
        /// Two reads bear the same id.
        ReadRepeated = "read_repeated",
        /// References that belong to no read before them.
        RecordsStray = "records_stray",
    }
}

/// One finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exception {
    /// The entry.
    pub index: u64,
    /// What was found.
    pub reason: ExceptionReason,
    /// By how many milliseconds the clock stood behind, as the entry says, for [`ExceptionReason::ClockBehind`].
    pub behind_ms: Option<u64>,
}

impl Exception {
    pub(crate) fn to_value(self) -> Value {
        let mut members = BTreeMap::from([
            ("index".to_owned(), number(self.index)),
            ("reason".to_owned(), Value::Text(self.reason.code().to_owned())),
        ]);
        members.extend(self.behind_ms.map(|behind| ("behind_ms".to_owned(), number(behind))));
        Value::Object(members)
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at entry {}", self.reason, self.index)?;
        self.behind_ms.map_or(Ok(()), |behind| write!(f, ", by {behind} ms"))
    }
}

/// A read whose references are still to come.
struct Pending {
    index: u64,
    read_id: String,
    next_part: i64,
    parts: i64,
    missing: i64,
}

/// Gathers findings over one pass.
pub(crate) struct Findings {
    key: String,
    tenant: Option<String>,
    by_type: BTreeMap<String, u64>,
    read_ids: BTreeSet<String>,
    pending: Option<Pending>,
    count: u64,
    listed: Vec<Exception>,
}

impl Findings {
    pub(crate) fn new(key: &VerifierKey) -> Self {
        Self {
            key: key.to_string(),
            tenant: None,
            by_type: BTreeMap::new(),
            read_ids: BTreeSet::new(),
            pending: None,
            count: 0,
            listed: Vec::new(),
        }
    }

    /// Looks at one entry whose envelope has been checked.
    pub(crate) fn observe(&mut self, index: u64, entry: &Value) {
        let name = entry.get("type").and_then(Value::as_text).unwrap_or_default();
        match self.by_type.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.by_type.insert(name.to_owned(), 1);
            }
        }
        let kind = EntryType::parse(name);
        self.note(kind.is_none(), index, ExceptionReason::UnknownType);
        if let Some(behind) = entry.get("clock_behind_ms") {
            let behind_ms = behind.as_int().and_then(|behind| u64::try_from(behind).ok());
            self.add(Exception { index, reason: ExceptionReason::ClockBehind, behind_ms });
        }
        self.note(!is_terse(entry), index, ExceptionReason::FreeText);
        self.tenant(index, entry);
        let genesis = kind == Some(EntryType::Genesis);
        self.note(genesis != (index == 0), index, ExceptionReason::GenesisPlace);
        if genesis {
            let key = entry.get("key").and_then(Value::as_text);
            self.note(key != Some(self.key.as_str()), index, ExceptionReason::GenesisKey);
        }
        if kind == Some(EntryType::ReadRecords) {
            self.continuation(index, entry);
        } else {
            self.settle();
        }
        if kind == Some(EntryType::Read) {
            self.read(index, entry);
        }
    }

    /// Ends the pass.
    pub(crate) fn finish(&mut self) {
        self.settle();
    }

    pub(crate) fn into_parts(self) -> (BTreeMap<String, u64>, u64, Vec<Exception>) {
        (self.by_type, self.count, self.listed)
    }

    fn note(&mut self, found: bool, index: u64, reason: ExceptionReason) {
        if found {
            self.add(Exception { index, reason, behind_ms: None });
        }
    }

    fn add(&mut self, exception: Exception) {
        self.count += 1;
        if self.listed.len() < EXCEPTIONS_MAX {
            self.listed.push(exception);
        }
    }

    fn tenant(&mut self, index: u64, entry: &Value) {
        let tenant = entry.get("tenant").and_then(Value::as_text);
        if self.tenant.is_none() {
            self.tenant = tenant.map(str::to_owned);
        }
        let foreign = self.tenant.as_deref() != tenant;
        self.note(foreign, index, ExceptionReason::ForeignTenant);
    }

    fn read(&mut self, index: u64, entry: &Value) {
        let id = entry.get("read_id").and_then(Value::as_text);
        let number = |name: &str| entry.get(name).and_then(Value::as_int);
        let records = entry.get("records").and_then(Value::as_list);
        let (Some(id), Some(total), Some(1), Some(parts), Some(records)) =
            (id, number("records_total"), number("part"), number("parts"), records)
        else {
            return self.note(true, index, ExceptionReason::ReadMalformed);
        };
        let repeated = !self.read_ids.insert(id.to_owned());
        self.note(repeated, index, ExceptionReason::ReadRepeated);
        let missing = total - length(records);
        self.pending = Some(Pending { index, read_id: id.to_owned(), next_part: 2, parts, missing });
        if parts == 1 {
            self.settle();
        }
    }

    fn continuation(&mut self, index: u64, entry: &Value) {
        let id = entry.get("read_id").and_then(Value::as_text);
        let number = |name: &str| entry.get(name).and_then(Value::as_int);
        let records = entry.get("records").and_then(Value::as_list);
        match (&mut self.pending, records) {
            (Some(read), Some(records))
                if id == Some(read.read_id.as_str())
                    && number("part") == Some(read.next_part)
                    && number("parts") == Some(read.parts) =>
            {
                read.missing -= length(records);
                read.next_part += 1;
                if read.next_part > read.parts {
                    self.settle();
                }
            }
            _ => self.note(true, index, ExceptionReason::RecordsStray),
        }
    }

    /// Closes the read that is open, if any.
    fn settle(&mut self) {
        if let Some(read) = self.pending.take() {
            let complete = read.missing == 0 && read.next_part == read.parts + 1;
            self.note(!complete, read.index, ExceptionReason::ReadIncomplete);
        }
    }
}

fn length(records: &[Value]) -> i64 {
    i64::try_from(records.len()).unwrap_or(i64::MAX)
}

/// Whether every string is an id, a key or a checkpoint.
fn is_terse(value: &Value) -> bool {
    match value {
        Value::Text(text) => {
            is_token(text) || VerifierKey::parse(text).is_ok() || Checkpoint::parse(text).is_ok()
        }
        Value::Bool(_) | Value::Int(_) => true,
        Value::List(items) => items.iter().all(is_terse),
        Value::Object(members) => members.iter().all(|(name, member)| is_token(name) && is_terse(member)),
    }
}
