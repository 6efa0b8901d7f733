//! The tree against published vectors, against another implementation and against its plain definition.

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use merkwelt_ledger::Hash;
use merkwelt_ledger::tree::*;
use proptest::prelude::*;
use sha2::Sha256;

use crate::fixture::vector_text;

type Peer = MemoryBackedTree<Sha256, Vec<u8>>;

fn leaf(number: u64) -> Vec<u8> {
    number.to_be_bytes()[..usize::try_from(number % 8).unwrap()].to_vec()
}

fn hashes(size: u64) -> Vec<Hash> {
    (0..size).map(|number| Hash::of_leaf(&leaf(number))).collect()
}

/// RFC 6962, 2.1, word for word.
fn plain_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::empty_root(),
        [only] => *only,
        _ => {
            let mut split = 1;
            while split * 2 < leaves.len() {
                split *= 2;
            }
            let (left, right) = leaves.split_at(split);
            Hash::of_node(&plain_root(left), &plain_root(right))
        }
    }
}

fn concat(proof: &[Hash]) -> Vec<u8> {
    proof.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Positions worth asking for: all of a small tree, the edges and some of the middle of a larger one.
fn positions(size: u64) -> Vec<u64> {
    if size <= 40 {
        return (0..size).collect();
    }
    let power = size.next_power_of_two() / 2;
    let mut all = vec![0, 1, size / 3, size / 2, power - 1, power.min(size - 1), size - 2, size - 1];
    all.dedup();
    all
}

fn compare(size: u64, peer: &Peer) {
    let leaves = hashes(size);
    let source = leaves_of(&leaves);
    let own_root = root(&source, size).unwrap();
    assert_eq!(own_root.as_bytes().as_slice(), peer.root().as_bytes().as_slice(), "root of {size}");
    for position in positions(size) {
        let proof = inclusion_proof(&source, position, size).unwrap();
        let theirs = peer.prove_inclusion(usize::try_from(position).unwrap());
        assert_eq!(concat(&proof), theirs.as_bytes(), "inclusion of {position} in {size}");
        verify_inclusion(leaves[usize::try_from(position).unwrap()], position, size, &proof, own_root)
            .unwrap();
        let old = position + 1;
        let proof = consistency_proof(&source, old, size).unwrap();
        let theirs = peer.prove_consistency(usize::try_from(size - old).unwrap());
        assert_eq!(concat(&proof), theirs.as_bytes(), "consistency of {old} with {size}");
        let old_root = root(&source, old).unwrap();
        verify_consistency((old, old_root), (size, own_root), &proof).unwrap();
    }
}

#[test]
fn r_099_roots_and_proofs_equal_another_implementation_for_sizes_to_300() {
    let mut peer = Peer::new();
    assert_eq!(Hash::empty_root().as_bytes().as_slice(), peer.root().as_bytes().as_slice());
    for size in 1..=300 {
        peer.push(leaf(size - 1));
        compare(size, &peer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn r_099_roots_and_proofs_equal_another_implementation_for_random_sizes(size in 301_u64..4000) {
        let mut peer = Peer::new();
        (0..size).for_each(|number| peer.push(leaf(number)));
        compare(size, &peer);
    }

    #[test]
    fn the_edge_of_a_tree_grows_as_the_plain_definition_says(size in 0_u64..700, cut in 0_u64..700) {
        let cut = cut.min(size);
        let leaves = hashes(size);
        let mut frontier = Frontier::empty();
        for (count, leaf) in leaves.iter().enumerate() {
            if u64::try_from(count).unwrap() == cut {
                // As if stored and read back in between.
                frontier = Frontier::from_bytes(&frontier.to_bytes()).unwrap();
            }
            frontier.push(*leaf).unwrap();
        }
        prop_assert_eq!(frontier.size(), size);
        prop_assert_eq!(frontier.root(), plain_root(&leaves));
        let parts = Frontier::from_parts(size, frontier.peaks().to_vec());
        prop_assert_eq!(parts, Ok(frontier));
    }

    #[test]
    fn r_099_a_proof_holds_for_its_own_position_only(size in 2_u64..200, a in 0_u64..200, b in 0_u64..200) {
        let (a, b) = (a % size, b % size);
        prop_assume!(a != b);
        let leaves: Vec<Hash> = (0..size).map(|n| Hash::of_leaf(&n.to_be_bytes())).collect();
        let source = leaves_of(&leaves);
        let top = root(&source, size).unwrap();
        let proof = inclusion_proof(&source, a, size).unwrap();
        let leaf = leaves[usize::try_from(a).unwrap()];
        let other = leaves[usize::try_from(b).unwrap()];
        prop_assert!(verify_inclusion(leaf, a, size, &proof, top).is_ok());
        prop_assert!(verify_inclusion(leaf, b, size, &proof, top).is_err());
        prop_assert!(verify_inclusion(other, a, size, &proof, top).is_err());
        prop_assert!(verify_inclusion(leaf, a, size, &proof[1..], top).is_err());
        prop_assert_eq!(verify_inclusion(leaf, size, size, &proof, top), Err(Error::OutOfRange));
    }
}

#[test]
fn a_source_that_keeps_inner_nodes_gives_the_same_proofs() {
    let leaves = hashes(200);
    let plain = leaves_of(&leaves);
    let keeping = |node: Node| {
        let width = 1_u64 << node.level;
        let range =
            usize::try_from(node.index * width).ok()?..usize::try_from((node.index + 1) * width).ok()?;
        leaves.get(range).map(plain_root)
    };
    for position in positions(200) {
        assert_eq!(inclusion_proof(&keeping, position, 200), inclusion_proof(&plain, position, 200));
        assert_eq!(consistency_proof(&keeping, position, 200), consistency_proof(&plain, position, 200));
    }
}

#[test]
fn impossible_requests_are_refused() {
    let leaves = hashes(5);
    let source = leaves_of(&leaves);
    assert_eq!(inclusion_proof(&source, 5, 5), Err(Error::OutOfRange));
    assert_eq!(consistency_proof(&source, 6, 5), Err(Error::OutOfRange));
    assert_eq!(consistency_proof(&source, 0, 5), Err(Error::OutOfRange));
    assert_eq!(root(&source, 6), Err(Error::MissingLeaf(5)));
    assert_eq!(Frontier::from_parts(3, hashes(1)), Err(Error::Malformed));
    assert_eq!(Frontier::from_bytes(&[0; 7]), Err(Error::Malformed));
    assert_eq!(Frontier::from_bytes(&[0; 41]), Err(Error::Malformed));
    let huge = Frontier::from_parts(u64::MAX, vec![Hash::empty_root(); 64]).unwrap();
    assert_eq!(huge.clone().push(Hash::empty_root()), Err(Error::Full));
}

#[test]
fn l_23_a_smaller_tree_never_continues_a_larger_one() {
    let (five, four) = (plain_root(&hashes(5)), plain_root(&hashes(4)));
    assert_eq!(verify_consistency((5, five), (4, four), &[]), Err(Error::OutOfRange));
    assert_eq!(verify_consistency((5, five), (5, four), &[]), Err(Error::RootMismatch));
    assert_eq!(verify_consistency((0, five), (5, five), &[]), Err(Error::OutOfRange));
    assert_eq!(verify_consistency((0, Hash::empty_root()), (5, five), &[]), Err(Error::OutOfRange));
}

#[test]
fn r_099_published_proofs_are_judged_as_published() {
    let Some(text) = vector_text("merkle_vectors.jsonl.xz") else { return };
    let mut judged = 0;
    for line in text.lines() {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        // Some consistency vectors have words in the place of roots; equal words stay equal roots.
        let root = |name: &str| {
            let text = vector[name].as_str().unwrap_or_default();
            Hash::from_base64(text).unwrap_or_else(|_| Hash::of_leaf(text.as_bytes()))
        };
        let number = |name: &str| vector[name].as_u64().unwrap();
        let empty = Vec::new();
        let proof: Result<Vec<Hash>, _> = vector["proof"]
            .as_array()
            .unwrap_or(&empty)
            .iter()
            .map(|hash| Hash::from_base64(hash.as_str().unwrap()))
            .collect();
        let accepted = match vector["kind"].as_str().unwrap() {
            "inclusion" => proof.is_ok_and(|proof| {
                let (index, size) = (number("leafIdx"), number("treeSize"));
                let hash = |name: &str| Hash::from_base64(vector[name].as_str().unwrap_or_default());
                let (Ok(leaf), Ok(root)) = (hash("leafHash"), hash("root")) else { return false };
                verify_inclusion(leaf, index, size, &proof, root).is_ok()
            }),
            "consistency" => proof.is_ok_and(|proof| {
                let (old, new) = ((number("size1"), root("root1")), (number("size2"), root("root2")));
                verify_consistency(old, new, &proof).is_ok()
            }),
            _ => continue,
        };
        assert_eq!(accepted, !vector["wantErr"].as_bool().unwrap(), "{line}");
        judged += 1;
    }
    assert_eq!(judged, 196);
}
