//! Looks at a write-ahead log before SQLite does. SQLite takes the first frame that does not check for the
//! end of the log and forgets what is behind it; that is right after a crash, and a silent loss of
//! acknowledged writes if a byte was changed. This tells the two apart, and which pages the log still holds.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::RangeInclusive;
use std::path::Path;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377F_0682;

/// A running checksum: two words, as the file format says.
type Sum = (u32, u32);

/// Whether acknowledged transactions stand behind a place that does not check.
///
/// # Errors
/// The file cannot be read. That there is none is no error.
pub(crate) fn is_damaged(path: &Path) -> io::Result<bool> {
    open(path)?.map_or(Ok(false), |mut log| look(&mut log))
}

/// Whether the log holds each of these pages in a transaction that was committed. What is missing in the main file then
/// was on its way there when the power or the process was lost.
///
/// # Errors
/// The file cannot be read. That there is none is no error.
pub(crate) fn holds(path: &Path, pages: RangeInclusive<u32>) -> io::Result<bool> {
    let wanted = u64::from(*pages.end()).saturating_sub(u64::from(*pages.start())) + 1;
    let held = open(path)?.map_or_else(|| Ok(BTreeSet::new()), |mut log| committed(&mut log))?;
    Ok(u64::try_from(held.range(pages).count()) == Ok(wanted))
}

fn open(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(|file| Some(BufReader::with_capacity(1 << 16, file))),
    }
}

/// The checksum of a header that is whole, with the order of bytes that it says.
fn checked(header: &[u8; HEADER_BYTES]) -> Option<(bool, Sum)> {
    let big = word(header, 0) == (MAGIC | 1);
    let sum = sum(big, (0, 0), header.get(..24).unwrap_or_default());
    let whole = (big || word(header, 0) == MAGIC) && sum == (word(header, 24), word(header, 28));
    whole.then_some((big, sum))
}

fn look(log: &mut impl Read) -> io::Result<bool> {
    let mut header = [0; HEADER_BYTES];
    if !fill(log, &mut header)? {
        return Ok(false);
    }
    let Some((big, sum)) = checked(&header) else {
        // The head is durable before the first frame is. All zeros are a log that was never written.
        return Ok(header.iter().any(|byte| *byte != 0) && fill(log, &mut [0; FRAME_HEADER_BYTES])?);
    };
    frames(log, &header, big, sum)
}

/// The pages of all transactions that SQLite will find in the log.
fn committed(log: &mut impl Read) -> io::Result<BTreeSet<u32>> {
    let (mut header, mut held, mut open) = ([0; HEADER_BYTES], BTreeSet::new(), BTreeSet::new());
    if !fill(log, &mut header)? {
        return Ok(held);
    }
    let Some((big, mut before)) = checked(&header) else { return Ok(held) };
    let page = usize::try_from(word(&header, 8)).unwrap_or_default();
    let mut frame = vec![0; FRAME_HEADER_BYTES + page];
    while fill(log, &mut frame)? {
        let (head, body) = frame.split_at(FRAME_HEADER_BYTES);
        before = sum(big, sum(big, before, head.get(..8).unwrap_or_default()), body);
        if head.get(8..16) != header.get(16..24) || before != (word(head, 16), word(head, 20)) {
            break;
        }
        open.insert(word(head, 0));
        if word(head, 4) != 0 {
            held.append(&mut open);
        }
    }
    Ok(held)
}

fn frames(log: &mut impl Read, header: &[u8], big: bool, start: Sum) -> io::Result<bool> {
    let page = usize::try_from(word(header, 8)).unwrap_or_default();
    let mut frame = vec![0; FRAME_HEADER_BYTES + page];
    let (mut broken, mut commits_behind) = (None, 0_u32);
    // Each sum continues the one before it, so what was written behind the damage can still be checked: from
    // the sum that stands there, and from the one that should, because either may be what was changed.
    let mut before = [start, start];
    while fill(log, &mut frame)? {
        let (head, body) = frame.split_at(FRAME_HEADER_BYTES);
        let kept = (word(head, 16), word(head, 20));
        let made @ [first, _] =
            before.map(|before| sum(big, sum(big, before, head.get(..8).unwrap_or_default()), body));
        let (own, continues) = (head.get(8..16) == header.get(16..24), made.contains(&kept));
        let ends_transaction = (own || continues) && word(head, 4) != 0;
        let whole = own && continues;
        before = [kept, first];
        if !whole {
            // INVARIANT: a commit is durable before the next one begins. So behind a frame that a crash kept
            // from the disk stands at most one, never acknowledged; and none if the frame ends it itself.
            broken.get_or_insert(u32::from(!ends_transaction));
        } else if broken.is_some() && ends_transaction {
            commits_behind += 1;
        }
    }
    Ok(broken.is_some_and(|torn| commits_behind > torn))
}

/// Fills the buffer; false at the end of the file, also in the middle of the buffer.
fn fill(log: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn sum(big: bool, from: Sum, bytes: &[u8]) -> Sum {
    let read = if big { u32::from_be_bytes } else { u32::from_le_bytes };
    let (words, _) = bytes.as_chunks::<4>();
    let (pairs, _) = words.as_chunks::<2>();
    pairs.iter().fold(from, |(a, b), [one, two]| {
        let a = a.wrapping_add(read(*one)).wrapping_add(b);
        (a, b.wrapping_add(read(*two)).wrapping_add(a))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rusqlite::Connection;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let own = std::thread::current().id();
            let folder = std::env::temp_dir().join(format!("merkwelt-wal-{}-{own:?}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const ROWS: i64 = 12;

    /// A database and its log after [`ROWS`] transactions of one row each, some of several pages.
    fn written() -> (Vec<u8>, Vec<u8>) {
        let folder = Folder::new();
        let path = folder.0.join("a.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(
            "PRAGMA page_size = 512; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
             CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB); PRAGMA wal_checkpoint(TRUNCATE);",
        )
        .unwrap();
        for n in 0..ROWS {
            db.execute("INSERT INTO t VALUES (?1, randomblob(?2))", (n, (n % 3) * 700)).unwrap();
        }
        let log = std::fs::read(folder.0.join("a.db-wal")).unwrap();
        (std::fs::read(path).unwrap(), log)
    }

    /// What SQLite finds with this log.
    fn rows(main: &[u8], log: &[u8]) -> i64 {
        let folder = Folder::new();
        std::fs::write(folder.0.join("a.db"), main).unwrap();
        std::fs::write(folder.0.join("a.db-wal"), log).unwrap();
        let db = Connection::open(folder.0.join("a.db")).unwrap();
        db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_changed_byte_never_costs_more_than_the_last_transaction_unnoticed() {
        let (main, log) = written();
        assert_eq!((look(&mut &log[..]).unwrap(), rows(&main, &log)), (false, ROWS));
        let mut n_noticed = 0;
        for at in (0..HEADER_BYTES).chain((HEADER_BYTES..log.len()).step_by(173)) {
            let mut changed = log.clone();
            changed[at] ^= 0x10;
            if look(&mut &changed[..]).unwrap() {
                n_noticed += 1;
                continue;
            }
            let found = rows(&main, &changed);
            assert!(
                found >= ROWS - 1,
                "byte {at}: {} of {ROWS} transactions were lost unnoticed",
                ROWS - found
            );
        }
        assert!(n_noticed > 50, "only {n_noticed} changes were noticed");
    }

    #[test]
    fn the_log_holds_the_pages_of_transactions_that_sqlite_finds_and_no_others() {
        let (main, log) = written();
        let held = committed(&mut &log[..]).unwrap();
        let last_page = word(&log, log.len() - (FRAME_HEADER_BYTES + 512) + 4);
        assert!(held.contains(&1) && held.contains(&last_page), "{held:?}");
        // All the pages that the main file lacks are in it.
        let first_lacking = u32::try_from(main.len() / 512).unwrap() + 1;
        assert!(last_page > first_lacking + 5);
        assert!((first_lacking..=last_page).all(|page| held.contains(&page)), "{held:?}");
        // What is behind a frame that does not check is not there, and a transaction without its end is none.
        let mut torn = log.clone();
        torn[HEADER_BYTES + FRAME_HEADER_BYTES] ^= 1;
        assert_eq!(committed(&mut &torn[..]).unwrap(), BTreeSet::new());
        let without_end = &log[..log.len() - 1];
        assert!(committed(&mut &without_end[..]).unwrap().len() < held.len());
        assert_eq!(committed(&mut &[0_u8; 5000][..]).unwrap(), BTreeSet::new());
        assert!(!holds(Path::new("/nowhere/a.db-wal"), 1..=1).unwrap());
    }

    #[test]
    fn a_log_that_a_crash_cut_off_or_tore_is_not_called_damaged() {
        let (_, log) = written();
        let page = FRAME_HEADER_BYTES + 512;
        for cut in (0..log.len()).step_by(101) {
            assert!(!look(&mut &log[..cut]).unwrap(), "cut at {cut}");
        }
        // The last transaction has several frames; the disk may have kept any of them and not the others.
        for lost in 1..4 {
            let mut torn = log.clone();
            let (from, to) = (log.len() - (lost + 1) * page, log.len() - lost * page);
            torn[from..to].fill(0);
            assert!(!look(&mut &torn[..]).unwrap(), "frame {lost} from the end");
        }
        assert!(!look(&mut &[0_u8; 5000][..]).unwrap(), "a log that never reached the disk");
        assert!(!is_damaged(Path::new("/nowhere/a.db-wal")).unwrap());
    }
}
