//! The RFC 6962 Merkle tree: growing it from its right edge alone, proving inclusion and consistency, and
//! checking both (RFC 9162, 2.1.3 and 2.1.4). Nothing here knows what a leaf means.

use crate::hash::Hash;

/// Why a tree operation or a proof was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stored right edge does not belong to a tree of its stated size.
    #[error("the stored tree edge does not fit its size")]
    Malformed,
    /// The tree has reached the largest size there is.
    #[error("the tree is full")]
    Full,
    /// The index or the older size lies outside the tree.
    #[error("the position lies outside the tree")]
    OutOfRange,
    /// The source of nodes has no leaf at an index below the size.
    #[error("leaf {0} is missing")]
    MissingLeaf(u64),
    /// The proof has more or fewer hashes than its position allows.
    #[error("the proof has the wrong length")]
    ProofLength,
    /// The proof leads to another root.
    #[error("the proof leads to another root")]
    RootMismatch,
}

/// The right edge of a tree: everything needed to append to it and to compute its root.
///
/// It holds at most 64 hashes whatever the size, so a store keeps it in one row.
// INVARIANT: `peaks` are the roots of the perfect subtrees of `size`, largest (leftmost) first; there are
// as many as `size` has one-bits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The tree without leaves.
    #[must_use]
    pub const fn empty() -> Self {
        Self { size: 0, peaks: Vec::new() }
    }

    /// Rebuilds an edge from its size and its stored hashes, largest subtree first.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the number of hashes is not that of the size. Wrong hashes of the right
    /// number are found by comparing [`Frontier::root`] with a signed checkpoint.
    pub fn from_parts(size: u64, peaks: Vec<Hash>) -> Result<Self, Error> {
        if u64::try_from(peaks.len()) == Ok(u64::from(size.count_ones())) {
            Ok(Self { size, peaks })
        } else {
            Err(Error::Malformed)
        }
    }

    /// Reads what [`Frontier::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Error::Malformed`] when the bytes are not a size and its number of hashes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (size, rest) = bytes.split_first_chunk::<8>().ok_or(Error::Malformed)?;
        let (peaks, tail) = rest.as_chunks::<32>();
        if !tail.is_empty() {
            return Err(Error::Malformed);
        }
        Self::from_parts(u64::from_be_bytes(*size), peaks.iter().copied().map(Hash::from_bytes).collect())
    }

    /// The size as 8 big-endian bytes, then the hashes, largest subtree first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.size.to_be_bytes().to_vec();
        for peak in &self.peaks {
            bytes.extend_from_slice(peak.as_bytes());
        }
        bytes
    }

    /// Number of leaves.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The stored hashes, largest subtree first.
    #[must_use]
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds one leaf at the right.
    ///
    /// # Errors
    /// [`Error::Full`] at 2⁶⁴ − 1 leaves.
    pub fn push(&mut self, leaf: Hash) -> Result<(), Error> {
        let size = self.size.checked_add(1).ok_or(Error::Full)?;
        let mut node = leaf;
        // Every trailing one-bit of the old size is a perfect subtree as large as `node`.
        for _ in 0..self.size.trailing_ones() {
            let left = self.peaks.pop().ok_or(Error::Malformed)?;
            node = Hash::of_node(&left, &node);
        }
        self.peaks.push(node);
        self.size = size;
        Ok(())
    }

    /// The Merkle tree hash of all leaves so far.
    #[must_use]
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => Hash::empty_root(),
            Some(last) => peaks.fold(*last, |right, left| Hash::of_node(left, &right)),
        }
    }
}

/// The root of the perfect subtree over leaves `index · 2^level ..(index + 1) · 2^level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Height above the leaves; 0 is a leaf.
    pub level: u32,
    /// Position among the nodes of that height, from the left.
    pub index: u64,
}

/// Where proofs are made from: the hash of a node, or `None` when it is not kept.
///
/// Every leaf below the size must be known. A store that also keeps inner nodes answers for them and makes
/// proofs logarithmic; one that keeps leaves only pays one hash per leaf.
pub type Source<'a> = dyn Fn(Node) -> Option<Hash> + 'a;

/// Answers for a slice of leaf hashes.
pub fn leaves_of(leaves: &[Hash]) -> impl Fn(Node) -> Option<Hash> + '_ {
    move |node| match node.level {
        0 => leaves.get(usize::try_from(node.index).ok()?).copied(),
        _ => None,
    }
}

/// The root over the first `size` leaves of the source.
///
/// # Errors
/// [`Error::MissingLeaf`].
pub fn root(source: &Source<'_>, size: u64) -> Result<Hash, Error> {
    if size == 0 { Ok(Hash::empty_root()) } else { range_root(source, 0, size) }
}

/// The inclusion proof of leaf `index` in the tree of `size` leaves, sibling of the leaf first (RFC 6962, 2.1.1).
///
/// # Errors
/// [`Error::OutOfRange`] unless `index < size`, [`Error::MissingLeaf`].
pub fn inclusion_proof(source: &Source<'_>, index: u64, size: u64) -> Result<Vec<Hash>, Error> {
    if index >= size {
        return Err(Error::OutOfRange);
    }
    let (mut start, mut end) = (0, size);
    let mut proof = Vec::new();
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            proof.push(range_root(source, middle, end)?);
            end = middle;
        } else {
            proof.push(range_root(source, start, middle)?);
            start = middle;
        }
    }
    proof.reverse();
    Ok(proof)
}

/// The proof that the tree of `old` leaves is a prefix of the tree of `new` leaves (RFC 6962, 2.1.2).
///
/// It is empty for equal sizes.
///
/// # Errors
/// [`Error::OutOfRange`] unless `0 < old ≤ new`, [`Error::MissingLeaf`].
pub fn consistency_proof(source: &Source<'_>, old: u64, new: u64) -> Result<Vec<Hash>, Error> {
    if old == 0 || old > new {
        return Err(Error::OutOfRange);
    }
    if old == new {
        return Ok(Vec::new());
    }
    let (mut start, mut end) = (0, new);
    let mut proof = Vec::new();
    while end != old {
        let middle = start + split(end - start);
        if old <= middle {
            proof.push(range_root(source, middle, end)?);
            end = middle;
        } else {
            proof.push(range_root(source, start, middle)?);
            start = middle;
        }
    }
    // A subtree that starts at the first leaf is the whole old tree, whose root the verifier has already.
    if start != 0 {
        proof.push(range_root(source, start, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Checks that `leaf` stands at `index` of the tree with this size and root.
///
/// # Errors
/// [`Error::OutOfRange`], [`Error::ProofLength`] or [`Error::RootMismatch`].
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, proof: &[Hash], root: Hash) -> Result<(), Error> {
    if index >= size {
        return Err(Error::OutOfRange);
    }
    let (mut position, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in proof {
        if last == 0 {
            return Err(Error::ProofLength);
        }
        if position & 1 == 1 || position == last {
            hash = Hash::of_node(sibling, &hash);
            // A right edge without sibling climbs until it is a right child.
            let climb = if position & 1 == 1 { 0 } else { position.trailing_zeros() };
            position = position.checked_shr(climb).unwrap_or(0);
            last = last.checked_shr(climb).unwrap_or(0);
        } else {
            hash = Hash::of_node(&hash, sibling);
        }
        position >>= 1;
        last >>= 1;
    }
    if last != 0 {
        return Err(Error::ProofLength);
    }
    if hash == root { Ok(()) } else { Err(Error::RootMismatch) }
}

/// Checks that the tree (`old`, `old_root`) is a prefix of the tree (`new`, `new_root`) (L-23).
///
/// # Errors
/// [`Error::OutOfRange`] for a shrinking tree and for an empty one, of which there is nothing to prove;
/// [`Error::ProofLength`] or [`Error::RootMismatch`].
pub fn verify_consistency(
    (old, old_root): (u64, Hash),
    (new, new_root): (u64, Hash),
    proof: &[Hash],
) -> Result<(), Error> {
    if old == 0 || old > new {
        return Err(Error::OutOfRange);
    }
    if old == new {
        return match (proof, old_root == new_root) {
            ([], true) => Ok(()),
            ([], false) => Err(Error::RootMismatch),
            _ => Err(Error::ProofLength),
        };
    }
    // Climb to the largest perfect subtree that ends the old tree.
    let climb = (old - 1).trailing_ones();
    let (mut position, mut last) = ((old - 1) >> climb, (new - 1) >> climb);
    let mut hashes = proof.iter().copied();
    let seed = if old.is_power_of_two() { old_root } else { hashes.next().ok_or(Error::ProofLength)? };
    let (mut old_hash, mut new_hash) = (seed, seed);
    for sibling in hashes {
        if last == 0 {
            return Err(Error::ProofLength);
        }
        if position & 1 == 1 || position == last {
            old_hash = Hash::of_node(&sibling, &old_hash);
            new_hash = Hash::of_node(&sibling, &new_hash);
            let climb = if position & 1 == 1 { 0 } else { position.trailing_zeros() };
            position = position.checked_shr(climb).unwrap_or(0);
            last = last.checked_shr(climb).unwrap_or(0);
        } else {
            new_hash = Hash::of_node(&new_hash, &sibling);
        }
        position >>= 1;
        last >>= 1;
    }
    if last != 0 {
        return Err(Error::ProofLength);
    }
    if old_hash == old_root && new_hash == new_root { Ok(()) } else { Err(Error::RootMismatch) }
}

/// The largest power of two below `n`, for `n ≥ 2`.
const fn split(n: u64) -> u64 {
    1 << (n - 1).ilog2()
}

/// The tree hash over leaves `start .. end`; `start` is a multiple of the range's largest perfect subtree.
fn range_root(source: &Source<'_>, start: u64, end: u64) -> Result<Hash, Error> {
    let width = end - start;
    if !width.is_power_of_two() {
        let middle = start + split(width);
        let left = range_root(source, start, middle)?;
        return Ok(Hash::of_node(&left, &range_root(source, middle, end)?));
    }
    let level = width.ilog2();
    match source(Node { level, index: start >> level }) {
        Some(hash) => Ok(hash),
        None if level == 0 => Err(Error::MissingLeaf(start)),
        None => {
            let middle = start + width / 2;
            let left = range_root(source, start, middle)?;
            Ok(Hash::of_node(&left, &range_root(source, middle, end)?))
        }
    }
}
