//! Marks: random words that exist in one scope only, and the search for them in every byte that comes out. An
//! id that belongs to somebody counts like a mark. A mark is found as it is, in upper case, in hexadecimal and
//! in base64.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::bench::dice::Dice;

/// Whose something is, inside its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    /// Everybody in the tenant.
    Shared,
    /// A person.
    Subject(usize),
    /// The members of a group.
    Group(usize),
    /// Names of groups and labels of keys, which only who keeps the directory may see.
    Directory,
    /// Names of people, for the same eyes; they never stand on disk.
    People,
    /// Public parts of keys, which the ledger names too.
    Keys,
    /// The tenant's own id.
    Tenant,
    /// Names of tenants.
    Instance,
}

/// What a mark marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) tenant: usize,
    pub(super) owner: Owner,
}

/// What one caller may be shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// The caller's tenant.
    pub(super) tenant: Option<usize>,
    /// The person it acts for.
    pub(super) subject: Option<usize>,
    /// That person's groups.
    pub(super) groups: Vec<usize>,
    /// Whether it sees content at all.
    pub(super) content: bool,
    /// Whether it keeps the directory.
    pub(super) directory: bool,
    /// Whether it reads the ledger.
    pub(super) evidence: bool,
    /// Whether it runs the instance.
    pub(super) instance: bool,
    /// Whether everything of its tenant is its own.
    pub(super) whole: bool,
}

impl Sight {
    /// Nothing at all: no valid key.
    pub(super) fn nothing() -> Self {
        Self::default()
    }

    /// A person of a tenant.
    pub(super) fn person(tenant: usize, subject: usize, groups: &[usize]) -> Self {
        Self {
            tenant: Some(tenant),
            subject: Some(subject),
            groups: groups.to_vec(),
            content: true,
            ..Self::default()
        }
    }

    /// Whether `mark` may be shown.
    pub(super) fn covers(&self, mark: Mark) -> bool {
        if self.instance && matches!(mark.owner, Owner::Instance | Owner::Tenant) {
            return true;
        }
        if self.tenant != Some(mark.tenant) {
            return false;
        }
        if self.whole {
            return true;
        }
        match mark.owner {
            Owner::Shared => self.content,
            Owner::Subject(subject) => self.content && self.subject == Some(subject),
            Owner::Group(group) => self.content && self.groups.contains(&group),
            // A tenant's first key is labelled with the tenant's name.
            Owner::Directory | Owner::People | Owner::Instance => self.directory,
            Owner::Keys => self.directory || self.evidence,
            Owner::Tenant => true,
        }
    }
}

/// All marks and ids of a run.
#[derive(Debug)]
pub(super) struct Marks {
    prefix: String,
    needles: Vec<(Needle, memchr::memmem::Finder<'static>)>,
    known: RwLock<BTreeMap<String, Mark>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needle {
    Plain,
    Hex,
    Base64,
}

const PREFIX_CHARS: usize = 6;
const MARK_CHARS: usize = PREFIX_CHARS + 12;
/// `mem_` and 26 letters or digits.
const ID_CHARS: usize = 30;

impl Marks {
    /// The marks of a run with this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::seeded(seed, 0x4D41_524B);
        let prefix = format!("zq{}{}", dice.letters(PREFIX_CHARS - 3), dice.below(10));
        let hex: String = prefix.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut needles = vec![(Needle::Plain, prefix.clone()), (Needle::Hex, hex)];
        // Wherever the prefix begins in what is encoded, these letters of it are always the same.
        for (before, from, to) in [("", 0, 8), ("x", 2, 9), ("xx", 3, 10)] {
            let encoded = STANDARD_NO_PAD.encode(format!("{before}{prefix}"));
            needles.push((Needle::Base64, encoded.get(from..to).unwrap_or(&encoded).to_owned()));
        }
        let finder = |text: &String| memchr::memmem::Finder::new(text.as_bytes()).into_owned();
        let needles = needles.iter().map(|(kind, text)| (*kind, finder(text))).collect();
        Self { prefix, needles, known: RwLock::default() }
    }

    /// A new mark.
    pub(super) fn plant(&self, dice: &mut Dice, tenant: usize, owner: Owner) -> String {
        let mark = format!("{}{}", self.prefix, dice.letters(MARK_CHARS - PREFIX_CHARS));
        self.learn(&mark, tenant, owner);
        mark
    }

    /// An id that belongs to somebody.
    pub(super) fn learn(&self, id: &str, tenant: usize, owner: Owner) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(id.to_owned(), Mark { tenant, owner });
    }

    /// Everything of others in `bytes` that was not in what the caller sent.
    pub(super) fn foreign(&self, bytes: &[u8], sight: &Sight, sent: &[u8]) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for candidate in self.candidates(bytes) {
            let covered = match known.get(&candidate) {
                Some(mark) => sight.covers(*mark),
                // Something that looks like a mark but is none that was planted is a part of one.
                None => !candidate.starts_with(&self.prefix),
            };
            if !covered && memchr::memmem::find(sent, candidate.as_bytes()).is_none() {
                found.push(candidate);
            }
        }
        found
    }

    /// Whose a mark or an id is.
    pub(super) fn owner(&self, mark: &str) -> Option<Mark> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(mark).copied()
    }

    /// Any mark at all, whosever it is: for places where no text of anybody may stand.
    pub(super) fn any(&self, bytes: &[u8]) -> Vec<String> {
        self.foreign(bytes, &Sight::nothing(), b"")
    }

    /// The same without ids, which may stand in logs and in the ledger.
    pub(super) fn any_text(&self, bytes: &[u8]) -> Vec<String> {
        let mut found = self.any(bytes);
        found.retain(|candidate| candidate.starts_with(&self.prefix));
        found
    }

    fn candidates(&self, bytes: &[u8]) -> Vec<String> {
        let lower;
        let mut found = Vec::new();
        for (kind, finder) in &self.needles {
            for place in finder.find_iter(bytes) {
                let mark = bytes.get(place..(place + MARK_CHARS).min(bytes.len())).unwrap_or_default();
                match kind {
                    Needle::Plain => found.push(String::from_utf8_lossy(mark).into_owned()),
                    // Which mark it was cannot matter: nothing of ours is ever sent out in this form.
                    Needle::Hex | Needle::Base64 => found.push(format!("{}-encoded", self.prefix)),
                }
            }
        }
        if bytes.windows(2).any(|pair| pair == b"ZQ") {
            lower = bytes.to_ascii_lowercase();
            let plain = memchr::memmem::Finder::new(self.prefix.as_bytes());
            let cut =
                |place| lower.get(place..place + MARK_CHARS).map(|mark| String::from_utf8_lossy(mark).into());
            found.extend(plain.find_iter(&lower).filter_map(cut));
        }
        for place in memchr::memchr_iter(b'_', bytes) {
            let id = place.checked_sub(3).and_then(|start| bytes.get(start..start + ID_CHARS));
            found.extend(id.and_then(|id| std::str::from_utf8(id).ok()).map(ToOwned::to_owned));
        }
        found.sort();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted() -> (Marks, [String; 3]) {
        let (marks, mut dice) = (Marks::new(7), Dice::seeded(7, 1));
        let owners = [(0, Owner::Subject(1)), (1, Owner::Subject(1)), (0, Owner::Group(2))];
        let texts = owners.map(|(tenant, owner)| marks.plant(&mut dice, tenant, owner));
        (marks, texts)
    }

    #[test]
    fn r_022_a_foreign_mark_is_found_in_every_form_and_an_own_one_is_not() {
        let (marks, [own, foreign, group]) = planted();
        let anna = Sight::person(0, 1, &[]);
        let seen = |text: String| marks.foreign(text.as_bytes(), &anna, b"").len();
        assert_eq!(seen(format!("{{\"text\":\"the code is {own}\"}}")), 0);
        for other in [&foreign, &group] {
            assert_eq!(seen(format!("the code is {other}.")), 1);
            assert_eq!(seen(format!("{own} {}", other.to_uppercase())), 1);
            let hex: String = format!("x{other}").bytes().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(seen(hex), 1);
            for before in ["", "a", "ab", "abc"] {
                assert_eq!(seen(STANDARD_NO_PAD.encode(format!("{before}{other} and more"))), 1, "{before}");
            }
        }
        assert_eq!(seen(foreign.get(..12).unwrap().to_owned()), 1, "a part of a mark is a leak too");
        assert_eq!(marks.foreign(group.as_bytes(), &Sight::person(0, 1, &[2]), b""), Vec::<String>::new());
    }

    #[test]
    fn an_id_of_somebody_else_counts_unless_the_caller_sent_it() {
        let (marks, _) = planted();
        let id = format!("mem_{}", "a".repeat(26));
        marks.learn(&id, 1, Owner::Subject(0));
        let body = format!("[\"{id}\"]");
        let anna = Sight::person(0, 1, &[]);
        assert_eq!(marks.foreign(body.as_bytes(), &anna, b""), std::slice::from_ref(&id));
        assert!(marks.foreign(body.as_bytes(), &anna, format!("GET /{id}").as_bytes()).is_empty());
        assert!(marks.foreign(body.as_bytes(), &Sight::person(1, 0, &[]), b"").is_empty());
        assert!(marks.any_text(body.as_bytes()).is_empty());
    }

    #[test]
    fn who_keeps_the_directory_sees_names_and_no_content() {
        let mark = |owner| Mark { tenant: 0, owner };
        let admin = Sight { tenant: Some(0), directory: true, ..Sight::default() };
        assert!(admin.covers(mark(Owner::Directory)));
        assert!(!admin.covers(Mark { tenant: 1, owner: Owner::Instance }), "the name of another tenant");
        for owner in [Owner::Shared, Owner::Subject(0), Owner::Group(0)] {
            assert!(!admin.covers(mark(owner)), "{owner:?}");
        }
        assert!(!Sight::nothing().covers(mark(Owner::Shared)));
    }
}
