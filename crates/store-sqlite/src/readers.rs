//! The connections by which a cell is read: a few are kept open, and keep their pages only as long as those are
//! worth something. A commit makes them worthless, and so does a pause.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use merkwelt_store::Error;
use rusqlite::Connection;

use crate::pool::lock;
use crate::schema;

/// Connections that are kept open between reads.
const OPEN_MAX: usize = 2;

/// The readers of one cell.
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    /// How often something was committed since the cell was opened.
    commits: AtomicU64,
}

/// A connection in use.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    /// After how many commits it was taken.
    commits: u64,
}

impl Readers {
    pub(crate) fn over(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), commits: AtomicU64::new(0) }
    }

    /// A connection for one read. One that is not put back is closed.
    pub(crate) fn take(&self) -> Result<Reader, Error> {
        let commits = self.commits.load(Ordering::Acquire);
        let kept = lock(&self.idle).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => schema::again(&schema::CELL, &self.path).map_err(|error| error.to_store())?,
        };
        Ok(Reader { connection, commits })
    }

    /// Keeps a connection that was used without a mishap.
    pub(crate) fn put_back(&self, reader: Reader) {
        let mut idle = lock(&self.idle);
        if idle.len() >= OPEN_MAX {
            return;
        }
        if self.commits.load(Ordering::Acquire) != reader.commits {
            schema::give_back(&reader.connection);
        }
        idle.push(reader.connection);
    }

    /// Something was committed: SQLite would throw the pages away at the beginning of the next read.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
        lock(&self.idle).iter().for_each(schema::give_back);
    }

    /// Nobody reads for a while: one connection is enough, without pages.
    pub(crate) fn rest(&self) {
        let mut idle = lock(&self.idle);
        idle.truncate(1);
        idle.iter().for_each(schema::give_back);
    }

    /// Closes what is kept.
    pub(crate) fn close(&self) {
        lock(&self.idle).clear();
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        lock(&self.idle).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::State;

    #[test]
    fn two_connections_are_kept_and_one_of_them_rests() {
        let path = std::env::temp_dir().join(format!("merkwelt-readers-{}.db", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let writer = schema::create(&schema::CELL, &path).unwrap();
        let readers = Readers::over(path.clone());
        let epoch = |reader: &Reader| State::read(&reader.connection).unwrap().epochs.content.number();
        let taken = [(); 3].map(|()| readers.take().unwrap());
        assert_eq!(taken.each_ref().map(epoch), [0; 3]);
        writer.execute_batch("UPDATE state SET content = 7").unwrap();
        readers.committed();
        taken.into_iter().for_each(|reader| readers.put_back(reader));
        assert_eq!(readers.kept(), 2);
        readers.rest();
        assert_eq!(readers.kept(), 1);
        let reader = readers.take().unwrap();
        assert_eq!((epoch(&reader), readers.kept()), (7, 0));
        readers.put_back(reader);
        readers.close();
        assert_eq!(readers.kept(), 0);
        drop(writer);
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    }
}
