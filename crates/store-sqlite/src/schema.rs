//! Opening a database file: settings, file kind, and numbered migrations. A file of another program, of a
//! newer version or with another history of migrations is refused before anything is read from it.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::error::{OpenError, Sql as _};
use crate::wal;

/// One numbered change of a schema.
struct Migration {
    number: u32,
    sql: &'static str,
}

/// One kind of database file.
pub(crate) struct Kind {
    /// What messages call it.
    pub(crate) name: &'static str,
    /// `PRAGMA application_id`: `MW` and one letter.
    application_id: i32,
    /// How many pages a connection keeps at most while it works.
    pages: u32,
    migrations: &'static [Migration],
}

/// `control.db`.
pub(crate) const CONTROL: Kind = Kind {
    name: "control.db",
    application_id: 0x4D57_0043,
    pages: 32,
    migrations: &[Migration { number: 1, sql: include_str!("../migrations/control-0001.sql") }],
};

/// `cell.db`.
pub(crate) const CELL: Kind = Kind {
    name: "cell.db",
    application_id: 0x4D57_0044,
    pages: 32,
    migrations: &[
        Migration { number: 1, sql: include_str!("../migrations/cell-0001.sql") },
        Migration { number: 2, sql: include_str!("../migrations/cell-0002.sql") },
        Migration { number: 3, sql: include_str!("../migrations/cell-0003.sql") },
        Migration { number: 4, sql: include_str!("../migrations/cell-0004.sql") },
        Migration { number: 5, sql: include_str!("../migrations/cell-0005.sql") },
        Migration { number: 6, sql: include_str!("../migrations/cell-0006.sql") },
    ],
};

/// `keys.db`.
pub(crate) const KEYS: Kind = Kind {
    name: "keys.db",
    application_id: 0x4D57_004B,
    // A key is looked up once and kept unwrapped; with more than two, SQLite sets memory aside for twenty.
    pages: 2,
    migrations: &[Migration { number: 1, sql: include_str!("../migrations/keys-0001.sql") }],
};

const FILE_MODE: u32 = 0o600;
const PAGE_BYTES: u32 = 8192;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Creates an empty database file for its owner's eyes only and brings it to the newest schema.
pub(crate) fn create(kind: &Kind, path: &Path) -> Result<Connection, OpenError> {
    // The write-ahead log and its index get the mode of the main file.
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    let mut connection = connect(kind, path)?;
    connection
        .pragma_update(None, "page_size", PAGE_BYTES)
        .and_then(|()| connection.pragma_update(None, "application_id", kind.application_id))
        .opening(kind.name)?;
    settle(kind, &connection)?;
    migrate(kind, &mut connection)?;
    checkpoint(&connection).opening(kind.name)?;
    Ok(connection)
}

/// Opens an existing database file and brings it to the newest schema.
pub(crate) fn open(kind: &Kind, path: &Path) -> Result<Connection, OpenError> {
    probe(kind, path)?;
    let mut connection = connect(kind, path)?;
    settle(kind, &connection)?;
    migrate(kind, &mut connection)?;
    // So that a log never spans two crashes, which `wal` could not tell apart. Without room it goes on.
    let _ = checkpoint(&connection);
    Ok(connection)
}

/// One more connection to a file that [`open`] or [`create`] has checked.
pub(crate) fn again(kind: &Kind, path: &Path) -> Result<Connection, OpenError> {
    let connection = connect(kind, path)?;
    settle(kind, &connection)?;
    Ok(connection)
}

fn connect(kind: &Kind, path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).opening(kind.name)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Plans do not depend on the values that are bound: a statement is prepared once and not for each value anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).opening(kind.name)?;
    Ok(connection)
}

fn settle(kind: &Kind, connection: &Connection) -> Result<(), OpenError> {
    // `secure_delete` alone is not erasure, but with it a VACUUM leaves nothing behind.
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA secure_delete = ON;
             PRAGMA foreign_keys = ON;
             PRAGMA temp_store = MEMORY;
             PRAGMA trusted_schema = OFF;
             PRAGMA cell_size_check = ON;
             PRAGMA wal_autocheckpoint = 128;
             PRAGMA journal_size_limit = 1048576;
             PRAGMA busy_timeout = 5000;",
        )
        .and_then(|()| connection.pragma_update(None, "cache_size", kind.pages))
        .opening(kind.name)?;
    // What was set aside before the number of pages was known.
    give_back(connection);
    Ok(())
}

/// Gives back the pages a connection keeps between transactions. The next one reads anew what it needs.
pub(crate) fn give_back(connection: &Connection) {
    // It reports nothing but a connection that is closed.
    let _ = connection.release_memory();
}

/// Refuses a file that is missing, cut off, of another program or of a newer version, and one whose log was
/// changed, and one that this process may not use. Nothing may have it open.
pub(crate) fn probe(kind: &Kind, path: &Path) -> Result<(), OpenError> {
    let [log, index] = ["-wal", "-shm"].map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    });
    let mut file = usable(kind, path)?.ok_or(OpenError::Damaged(kind.name))?;
    usable(kind, &log)?;
    usable(kind, &index)?;
    let length = file.metadata()?.len();
    let mut header = [0u8; 100];
    file.read_exact(&mut header).map_err(|_| OpenError::Damaged(kind.name))?;
    let word =
        |at: usize| header.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
    if !header.starts_with(MAGIC) || word(68) != kind.application_id.cast_unsigned() {
        return Err(OpenError::Foreign(kind.name));
    }
    if word(60) > newest(kind) {
        return Err(OpenError::Newer(kind.name));
    }
    // Pages that the header counts and the file lacks were on their way from the log: the header goes there first.
    if lacking(length, word(28)).is_some_and(|pages| !wal::holds(&log, pages).unwrap_or(false)) {
        return Err(OpenError::Damaged(kind.name));
    }
    if wal::is_damaged(&log)? { Err(OpenError::DamagedLog(kind.name)) } else { Ok(()) }
}

/// The pages of a database of so many that a file of this length does not have whole.
fn lacking(length: u64, pages: u32) -> Option<RangeInclusive<u32>> {
    let first = u32::try_from(length / u64::from(PAGE_BYTES)).ok()?.checked_add(1)?;
    (first <= pages).then_some(first..=pages)
}

/// A file opened as SQLite must be able to open it, or `None` if there is none. SQLite itself opens a file that
/// may not be written for reading, without a word, and refuses every write later.
fn usable(kind: &Kind, path: &Path) -> Result<Option<File>, OpenError> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(OpenError::NoRight(kind.name)),
        Err(error) => Err(error.into()),
    }
}

fn newest(kind: &Kind) -> u32 {
    kind.migrations.iter().map(|migration| migration.number).max().unwrap_or(0)
}

/// Applies what is missing, each migration in a transaction of its own, and compares what was applied.
fn migrate(kind: &Kind, connection: &mut Connection) -> Result<(), OpenError> {
    let version: u32 =
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).opening(kind.name)?;
    if version > newest(kind) {
        return Err(OpenError::Newer(kind.name));
    }
    for migration in kind.migrations {
        let checksum = digest(&SHA256, migration.sql.as_bytes());
        if migration.number <= version {
            let applied: Option<Vec<u8>> = connection
                .query_row("SELECT checksum FROM migrations WHERE number = ?1", [migration.number], |row| {
                    row.get(0)
                })
                .optional()
                .opening(kind.name)?;
            if applied.as_deref() != Some(checksum.as_ref()) {
                return Err(OpenError::Damaged(kind.name));
            }
            continue;
        }
        apply(connection, migration, checksum.as_ref()).opening(kind.name)?;
    }
    Ok(())
}

fn apply(connection: &mut Connection, migration: &Migration, checksum: &[u8]) -> rusqlite::Result<()> {
    let tx = connection.transaction()?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, checksum BLOB NOT NULL) STRICT;",
    )?;
    tx.execute_batch(migration.sql)?;
    tx.execute("INSERT INTO migrations (number, checksum) VALUES (?1, ?2)", (migration.number, checksum))?;
    tx.pragma_update(None, "user_version", migration.number)?;
    tx.commit()
}

/// Whether the tables are described as the migrations made them; a changed bit may stand there too.
pub(crate) fn is_own(kind: &Kind, connection: &Connection) -> Result<bool, merkwelt_store::Error> {
    Ok(described(connection).sql()? == described(&in_memory(kind).sql()?).sql()?)
}

/// An empty database of the newest schema that is no file.
pub(crate) fn in_memory(kind: &Kind) -> rusqlite::Result<Connection> {
    let mut fresh = Connection::open_in_memory()?;
    for migration in kind.migrations {
        apply(&mut fresh, migration, &[])?;
    }
    Ok(fresh)
}

fn described(connection: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    let sql = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Runs a statement without parameters and rows that is used all the time, such as the end of a transaction.
pub(crate) fn run(connection: &Connection, sql: &'static str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

/// Brings the write-ahead log into the main file and empties it. Whether a reader stood in the way is
/// returned: SQLite reports that as a success (`busy` = 1) that did nothing.
pub(crate) fn checkpoint(connection: &Connection) -> rusqlite::Result<bool> {
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    Ok(busy == 0)
}

/// Rewrites the file without its dead bytes and empties the write-ahead log.
pub(crate) fn compact(connection: &Connection) -> Result<(), merkwelt_store::Error> {
    connection.execute_batch("VACUUM").sql()?;
    for _ in 0..COMPACT_ATTEMPTS {
        if checkpoint(connection).sql()? {
            return Ok(());
        }
    }
    Err(merkwelt_store::Error::Unavailable)
}

/// How often an open reader is waited for; each attempt waits for the busy timeout.
const COMPACT_ATTEMPTS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: i64 = 200;

    /// A database whose log has grown by many pages since the main file was written, as a crash leaves it.
    fn left(folder: &Path) -> PathBuf {
        let (path, copy) = (folder.join("a.db"), folder.join("b.db"));
        let writer = create(&KEYS, &path).unwrap();
        writer.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
        for number in 0..ROWS {
            let sql = "INSERT INTO keys (owner, wrapped) VALUES (?1, randomblob(700))";
            writer.execute(sql, [format!("sub_{number:026}")]).unwrap();
        }
        for ending in ["", "-wal"] {
            std::fs::copy(format!("{}{ending}", path.display()), format!("{}{ending}", copy.display()))
                .unwrap();
        }
        copy
    }

    fn rows(path: &Path) -> i64 {
        let connection = open(&KEYS, path).unwrap();
        connection.query_row("SELECT count(*) FROM keys", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn r_100_a_checkpoint_that_was_cut_off_after_any_page_is_no_damage_while_the_log_is_there() {
        let folder = std::env::temp_dir().join(format!("merkwelt-schema-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let path = left(&folder);
        let log = std::fs::read(format!("{}-wal", path.display())).unwrap();
        let before = std::fs::read(&path).unwrap();
        // The newest form of each page, as a checkpoint writes it: by number, the header first.
        let mut pages = std::collections::BTreeMap::new();
        for frame in log.get(32..).unwrap().chunks_exact(24 + PAGE_BYTES as usize) {
            let number = u32::from_be_bytes(frame.get(..4).unwrap().try_into().unwrap());
            pages.insert(number, frame.get(24..).unwrap().to_vec());
        }
        assert!(pages.len() > 10 && pages.contains_key(&1));
        for written in 0..=pages.len() {
            let mut main = before.clone();
            for (number, page) in pages.iter().take(written) {
                let at = (*number as usize - 1) * PAGE_BYTES as usize;
                main.resize(main.len().max(at + page.len()), 0);
                main.get_mut(at..at + page.len()).unwrap().copy_from_slice(page);
            }
            std::fs::write(&path, &main).unwrap();
            std::fs::write(format!("{}-wal", path.display()), &log).unwrap();
            assert_eq!(rows(&path), ROWS, "after {written} of {} pages", pages.len());
            // Without the log the same file lacks what it counts, and says so.
            let _ = std::fs::remove_file(format!("{}-wal", path.display()));
            std::fs::write(&path, &main).unwrap();
            if (1..pages.len()).contains(&written) {
                assert!(matches!(probe(&KEYS, &path), Err(OpenError::Damaged(_))), "{written}");
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
