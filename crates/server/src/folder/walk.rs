//! Looking through a folder: names, kinds and times, without opening a single file. Links are not followed,
//! what is no plain file is named and left alone, and where it could not be looked is told apart from where
//! there is nothing.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::Context as _;
use merkwelt_domain::source::Title;
use merkwelt_intake::Media;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};

use super::file::open_folder;
use super::name::{self, Class, PATH_BYTES_MAX, shown};
use super::{Refusal, file};

/// Folders in each other.
const DEPTH_MAX: usize = 32;

/// How much a folder may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Entries of the folder and all below it.
    pub(crate) entries_max: usize,
    /// Bytes of one file.
    pub(crate) bytes_max: usize,
}

/// What changes when a file is written or replaced. The time of the last change of an entry cannot be set by
/// who writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    device: u64,
    inode: u64,
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stat {
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        let nanos = |n| i64::try_from(n).unwrap_or_default();
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            written: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }

    /// The later of the times of writing and changing, in milliseconds.
    pub(crate) fn touched_at(&self) -> i64 {
        let millis =
            |(seconds, nanos): (i64, i64)| seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000);
        millis(self.written).max(millis(self.changed))
    }
}

/// What says who may read a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Governed {
    /// Nothing in the folder does.
    Unsaid,
    /// A file.
    By {
        /// Its path.
        path: String,
        /// What it was when it was seen.
        stat: Stat,
    },
    /// Something that is no file.
    Unfit(&'static str),
}

/// A file that may be a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its path with composed characters, as the register keeps it.
    pub(crate) key: String,
    /// What people call it.
    pub(crate) title: Title,
    /// What it says it is.
    pub(crate) media: Media,
    /// What it was when it was seen.
    pub(crate) stat: Stat,
    /// Who may read it.
    pub(crate) governed: Governed,
}

/// An entry that is not taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Its path, as it may be shown.
    pub(crate) shown: String,
    /// Its path as the register would keep it, if it could.
    pub(crate) key: Option<String>,
    /// Why.
    pub(crate) why: Refusal,
}

/// What lies in a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Files that may be documents, by path.
    pub(crate) files: BTreeMap<String, Found>,
    /// What is not taken in.
    pub(crate) refused: Vec<Refused>,
    /// Folders that could not be looked through, by path with a slash at the end; empty for the whole.
    pub(crate) blind: Vec<String>,
    /// Files of kinds that are not read.
    pub(crate) other: Vec<String>,
    n_entries: usize,
    n_beyond: usize,
}

impl Listing {
    /// Whether there is nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.n_entries == 0 && self.refused.is_empty()
    }

    /// Whether it is known what lies at `key`.
    pub(crate) fn sees(&self, key: &str) -> bool {
        !self.blind.iter().any(|blind| key.starts_with(blind.as_str()))
    }
}

/// A folder, held open.
#[derive(Debug)]
pub(crate) struct Root {
    pub(super) folder: OwnedFd,
    /// Which folder it is, whatever its name.
    pub(crate) identity: (u64, u64),
}

impl Root {
    /// Opens a folder by the operator's own words; a link in these is followed.
    ///
    /// # Errors
    /// It is no folder or cannot be read.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot look into the folder {}", path.display());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).with_context(cannot)?;
        let stat = fstat(&folder).with_context(cannot)?;
        Ok(Self { folder, identity: (stat.st_dev, stat.st_ino) })
    }

    /// Looks through it.
    ///
    /// # Errors
    /// The folder itself cannot be read.
    pub(crate) fn list(&self, bounds: &Bounds) -> anyhow::Result<Listing> {
        let mut listing = Listing::default();
        let looked = look(&self.folder, &Place::default(), bounds, &mut listing);
        looked.map_err(|refusal| anyhow::anyhow!("cannot look into the folder: {refusal}"))?;
        if listing.n_beyond > 0 {
            // What was not looked at is not missing.
            listing.blind.push(String::new());
            let shown = format!("({} more)", listing.n_beyond);
            listing.refused.push(Refused { shown, key: None, why: Refusal::TooMany(bounds.entries_max) });
        }
        Ok(listing)
    }
}

/// Where in the folder we are: the path with a slash at its end, as it is on disk and as the register keeps it.
#[derive(Default)]
struct Place {
    path: String,
    key: String,
    depth: usize,
    governed: Option<Governed>,
}

impl Place {
    fn refuse(&self, name: &str, why: Refusal) -> Refused {
        let key = Some(format!("{}{}", self.key, name::composed(name)));
        Refused { shown: shown(&format!("{}{name}", self.path)), key, why }
    }
}

struct Entry {
    name: String,
    raw: CString,
    kind: FileType,
    stat: Stat,
}

fn look(folder: &OwnedFd, place: &Place, bounds: &Bounds, listing: &mut Listing) -> Result<(), Refusal> {
    let entries = entries(folder, place, bounds, listing)?;
    let mut here = place.governed.clone().unwrap_or(Governed::Unsaid);
    let (mut beside, mut plain) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        match name::classify(&entry.name) {
            Class::Passed => {}
            Class::Rights(None) => here = merged(&here, place, &entry),
            Class::Rights(Some(of)) => {
                // Two side files of one name that differ in case close the file.
                let new = match beside.get(&of) {
                    Some(_) => Governed::Unfit("two .acl files are meant for it"),
                    None => governed(place, &entry),
                };
                beside.insert(of, new);
            }
            Class::Plain => plain.push(entry),
        }
    }
    let mut n_of_name = BTreeMap::<String, usize>::new();
    for entry in &plain {
        *n_of_name.entry(name::folded(&entry.name)).or_default() += 1;
    }
    for entry in plain {
        let folded = name::folded(&entry.name);
        let ambiguous = n_of_name.get(&folded).is_some_and(|n| *n > 1);
        let governed = beside.get(&folded).unwrap_or(&here);
        match visit(folder, place, &entry, ambiguous, governed, bounds, listing) {
            Ok(()) => {}
            Err(why) => {
                if entry.kind == FileType::Directory && why != Refusal::Link {
                    listing.blind.push(format!("{}{}/", place.key, name::composed(&entry.name)));
                }
                listing.refused.push(place.refuse(&entry.name, why));
            }
        }
    }
    Ok(())
}

/// The folder's own `.acl`; a second one that differs in case closes the folder.
fn merged(here: &Governed, place: &Place, entry: &Entry) -> Governed {
    let own = matches!(here, Governed::By { path, .. } if path.strip_prefix(place.path.as_str()).is_some_and(|rest| !rest.contains('/')));
    if own { Governed::Unfit("two .acl files are in its folder") } else { governed(place, entry) }
}

fn governed(place: &Place, entry: &Entry) -> Governed {
    if entry.kind == FileType::RegularFile {
        Governed::By { path: format!("{}{}", place.path, entry.name), stat: entry.stat }
    } else {
        Governed::Unfit("its .acl is not a plain file")
    }
}

fn visit(
    folder: &OwnedFd,
    place: &Place,
    entry: &Entry,
    ambiguous: bool,
    governed: &Governed,
    bounds: &Bounds,
    listing: &mut Listing,
) -> Result<(), Refusal> {
    if ambiguous {
        return Err(Refusal::Ambiguous);
    }
    let (path, key) =
        (format!("{}{}", place.path, entry.name), format!("{}{}", place.key, name::composed(&entry.name)));
    if path.len() > PATH_BYTES_MAX {
        return Err(Refusal::NameTooLong(PATH_BYTES_MAX));
    }
    match entry.kind {
        FileType::Directory => {
            let depth = place.depth + 1;
            if depth > DEPTH_MAX {
                return Err(Refusal::TooDeep(DEPTH_MAX));
            }
            let title: Result<Title, _> = entry.name.parse();
            title.map_err(|_| Refusal::NameUnfit)?;
            let inside = open_folder(folder, &entry.raw).map_err(file::unreadable)?;
            let place = Place { path: path + "/", key: key + "/", depth, governed: Some(governed.clone()) };
            look(&inside, &place, bounds, listing)
        }
        FileType::RegularFile => {
            let Some(media) = name::media(&entry.name) else {
                listing.other.push(shown(&path));
                return Ok(());
            };
            let title = name::title(&entry.name)?;
            if entry.stat.size > u64::try_from(bounds.bytes_max).unwrap_or(u64::MAX) {
                return Err(Refusal::TooLarge(file::mebibytes(bounds.bytes_max)));
            }
            let found = Found { key, title, media, stat: entry.stat, governed: governed.clone() };
            listing.files.insert(path, found);
            Ok(())
        }
        FileType::Symlink => Err(Refusal::Link),
        FileType::Fifo => Err(Refusal::Special("pipe")),
        FileType::Socket => Err(Refusal::Special("socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(Refusal::Special("device")),
        FileType::Unknown => Err(Refusal::Special("thing of unknown kind")),
    }
}

/// The entries of one folder by name. Whatever happens, what says who may read is among them.
fn entries(
    folder: &OwnedFd,
    place: &Place,
    bounds: &Bounds,
    listing: &mut Listing,
) -> Result<Vec<Entry>, Refusal> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder).map_err(file::unreadable)? {
        let entry = entry.map_err(file::unreadable)?;
        let raw = entry.file_name();
        if matches!(raw.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(name) = raw.to_str() else {
            let shown = shown(&format!("{}{}", place.path, raw.to_string_lossy()));
            listing.refused.push(Refused { shown, key: None, why: Refusal::NotUtf8 });
            continue;
        };
        let rights = matches!(name::classify(name), Class::Rights(_));
        if listing.n_entries >= bounds.entries_max && !rights {
            listing.n_beyond += 1;
            continue;
        }
        listing.n_entries += 1;
        let (kind, stat) = match look_at(folder, raw) {
            Ok(Some(seen)) => seen,
            // INVARIANT: I-6, what says who may read and cannot be seen closes the file, it does not open it.
            Ok(None) | Err(_) if rights => (FileType::Unknown, Stat::default()),
            // It went away meanwhile.
            Ok(None) => continue,
            Err(why) => {
                listing.refused.push(place.refuse(name, why));
                continue;
            }
        };
        entries.push(Entry { name: name.to_owned(), raw: raw.to_owned(), kind, stat });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn look_at(folder: &OwnedFd, name: &CStr) -> Result<Option<(FileType, Stat)>, Refusal> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((FileType::from_raw_mode(stat.st_mode), Stat::of(&stat)))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(file::unreadable(error)),
    }
}
