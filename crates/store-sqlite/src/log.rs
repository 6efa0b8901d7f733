//! The rows of a tenant's ledger: appended in the writer's transaction, read for export, checkpoints and
//! proofs. Inner nodes of the tree are kept from level 6 on.

use merkwelt_domain::Timestamp;
use merkwelt_ledger::checkpoint::{Checkpoint, SignedCheckpoint};
use merkwelt_ledger::entry::Draft;
use merkwelt_ledger::hash::Hash;
use merkwelt_ledger::log::{Head, Leaf, append};
use merkwelt_ledger::note::Signer;
use merkwelt_ledger::proof::Proof;
use merkwelt_ledger::token::UtcMillis;
use merkwelt_ledger::tree::{Frontier, Node};
use merkwelt_store::Error;
use merkwelt_store::change::EntryRef;
use merkwelt_store::evidence::utc;
use rusqlite::{Connection, OptionalExtension as _};

use crate::error::Sql as _;
use crate::writer::Work;

/// The lowest level whose nodes are kept.
const NODE_LEVEL: u32 = 6;

impl Work<'_> {
    /// Appends entries to the ledger inside the open transaction.
    pub(crate) fn append(&mut self, drafts: &[Draft], at: Timestamp) -> Result<Option<EntryRef>, Error> {
        let appended = append(&self.head, drafts, utc(at)?).map_err(|_| Error::Damaged)?;
        for leaf in &appended.leaves {
            insert(self.db, leaf)?;
        }
        self.head = appended.head;
        Ok(appended.leaves.first().map(|leaf| EntryRef { index: leaf.index, leaf: leaf.hash.to_hex() }))
    }
}

fn insert(db: &Connection, leaf: &Leaf) -> Result<(), Error> {
    db.prepare_cached("INSERT INTO ledger (position, at, hash, entry) VALUES (?1, ?2, ?3, ?4)")
        .and_then(|mut statement| {
            statement.execute((
                leaf.index,
                leaf.at.unix_ms(),
                leaf.hash.as_bytes().as_slice(),
                leaf.bytes.as_slice(),
            ))
        })
        .sql()?;
    keep_nodes(db, leaf.index + 1)
}

/// Keeps the inner nodes that the tree of `size` leaves completes.
fn keep_nodes(db: &Connection, size: u64) -> Result<(), Error> {
    let complete = size.trailing_zeros();
    if complete < NODE_LEVEL {
        return Ok(());
    }
    let mut first = Vec::with_capacity(1 << NODE_LEVEL);
    for position in size - (1 << NODE_LEVEL)..size {
        first.push(leaf_hash(db, position)?.ok_or(Error::Damaged)?);
    }
    let mut hash = fold(first)?;
    for level in NODE_LEVEL..=complete {
        let position = (size >> level) - 1;
        if level > NODE_LEVEL {
            let left =
                node_hash(db, Node { level: level - 1, index: position * 2 })?.ok_or(Error::Damaged)?;
            hash = Hash::of_node(&left, &hash);
        }
        db.prepare_cached("INSERT INTO ledger_nodes (level, position, hash) VALUES (?1, ?2, ?3)")
            .and_then(|mut statement| statement.execute((level, position, hash.as_bytes().as_slice())))
            .sql()?;
    }
    Ok(())
}

fn fold(mut hashes: Vec<Hash>) -> Result<Hash, Error> {
    while hashes.len() > 1 {
        let (pairs, _) = hashes.as_chunks::<2>();
        hashes = pairs.iter().map(|[left, right]| Hash::of_node(left, right)).collect();
    }
    hashes.first().copied().ok_or(Error::Damaged)
}

fn hash_row(db: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<Option<Hash>, Error> {
    let bytes: Option<Vec<u8>> = db
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(parameters, |row| row.get(0)).optional())
        .sql()?;
    bytes.map(|bytes| Hash::from_slice(&bytes).map_err(|_| Error::Damaged)).transpose()
}

fn leaf_hash(db: &Connection, position: u64) -> Result<Option<Hash>, Error> {
    hash_row(db, "SELECT hash FROM ledger WHERE position = ?1", [position])
}

fn node_hash(db: &Connection, node: Node) -> Result<Option<Hash>, Error> {
    if node.level == 0 {
        return leaf_hash(db, node.index);
    }
    if node.level < NODE_LEVEL {
        return Ok(None);
    }
    hash_row(db, "SELECT hash FROM ledger_nodes WHERE level = ?1 AND position = ?2", (node.level, node.index))
}

/// The stored right edge, or the empty log.
pub(crate) fn read_head(db: &Connection) -> Result<Head, Error> {
    let row: Option<(Vec<u8>, i64)> = db
        .prepare_cached("SELECT frontier, last_at FROM ledger_head WHERE one = 1")
        .and_then(|mut statement| statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional())
        .sql()?;
    let Some((frontier, last_at)) = row else { return Ok(Head::empty()) };
    let frontier = Frontier::from_bytes(&frontier).map_err(|_| Error::Damaged)?;
    let last_at = UtcMillis::from_unix_ms(last_at).map_err(|_| Error::Damaged)?;
    Head::from_parts(frontier, Some(last_at)).map_err(|_| Error::Damaged)
}

pub(crate) fn write_head(db: &Connection, head: &Head) -> Result<(), Error> {
    let last_at = head.last_at().ok_or(Error::Damaged)?;
    db.prepare_cached(
        "INSERT INTO ledger_head (one, frontier, last_at) VALUES (1, ?1, ?2)
         ON CONFLICT (one) DO UPDATE SET frontier = excluded.frontier, last_at = excluded.last_at",
    )
    .and_then(|mut statement| statement.execute((head.frontier().to_bytes(), last_at.unix_ms())))
    .sql()?;
    Ok(())
}

/// The exact bytes of up to `max` entries from `from` on.
pub(crate) fn entries(db: &Connection, from: u64, max: u32) -> Result<Vec<Vec<u8>>, Error> {
    // Positions are 63 bits wide in SQLite; nothing can stand behind that.
    let Ok(from) = i64::try_from(from) else { return Ok(Vec::new()) };
    let mut statement = db
        .prepare_cached("SELECT entry FROM ledger WHERE position >= ?1 ORDER BY position LIMIT ?2")
        .sql()?;
    let rows = statement.query_map((from, max), |row| row.get(0)).sql()?;
    rows.map(|row| row.sql()).collect()
}

/// Signs what the snapshot holds. It is durable, because a snapshot sees only what was committed.
pub(crate) fn checkpoint(db: &Connection, signer: &Signer) -> Result<SignedCheckpoint, Error> {
    let head = read_head(db)?;
    let checkpoint = Checkpoint::new(signer.verifier_key().name(), head.size(), head.root())
        .map_err(|_| Error::Damaged)?;
    SignedCheckpoint::sign(checkpoint, signer).map_err(|_| Error::Damaged)
}

/// Proves one entry against a checkpoint over the same snapshot.
pub(crate) fn proof(db: &Connection, signer: &Signer, index: u64) -> Result<String, Error> {
    let checkpoint = checkpoint(db, signer)?;
    if index >= checkpoint.checkpoint().size() {
        return Err(Error::NotFound);
    }
    // A failing read shows as a missing leaf.
    let source = |node: Node| node_hash(db, node).ok().flatten();
    Proof::new(&source, index, checkpoint).map(|proof| proof.to_string()).map_err(|_| Error::Damaged)
}
