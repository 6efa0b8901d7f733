//! Finding, verifying and importing, with small files in place of the model.

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use miniz_oxide::deflate::compress_to_vec;
use ring::digest::{SHA256, digest};

use super::*;

/// A directory of its own for one test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("merkwelt-inference-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn content() -> Vec<u8> {
    (0..600_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
}

fn pinned(content: &[u8]) -> Pinned {
    let hex: String = digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Pinned { file_name: "model.bin", len: content.len() as u64, sha256: Box::leak(hex.into_boxed_str()) }
}

/// A zip archive of files, deflated or stored.
fn archive(files: &[(&str, &[u8])], deflate: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let packed = if deflate { compress_to_vec(content, 3) } else { content.to_vec() };
        let offset = u32::try_from(out.len()).unwrap();
        let mut common = vec![20, 0, 0, 0, if deflate { 8 } else { 0 }, 0, 0, 0, 0, 0, 9, 9, 9, 9];
        common.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
        common.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(packed);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let offset = u32::try_from(out.len()).unwrap();
    out.extend(&directory);
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend([2, 0]);
    out.extend(b"hi"); // A comment.
    out
}

#[test]
fn directories_are_searched_from_the_configured_to_the_shared() {
    let path = Path::new;
    let all =
        search_path(Some(path("m")), Some(path("/d")), Some(path("/h")), Some(path("/opt/x/bin/merkwelt")));
    let expected = ["m", "/d/merkwelt/models", "/opt/x/share/merkwelt/models"];
    assert_eq!(all, expected.map(PathBuf::from));
    let home_only = search_path(None, None, Some(path("/h")), None);
    assert_eq!(home_only, [PathBuf::from("/h/.local/share/merkwelt/models")]);
    assert_eq!(search_path(None, Some(path("relative")), Some(path("/h")), None), home_only);
    assert_eq!(search_path(None, Some(path("")), None, None), Vec::<PathBuf>::new());
}

#[test]
fn the_first_directory_with_a_file_wins() {
    let (empty, full) = (Scratch::new("find-empty"), Scratch::new("find-full"));
    let path = full.file(FILE_NAME, b"not verified yet");
    assert_eq!(find(&[empty.0.clone(), full.0.clone()]), Some(path));
    assert_eq!(find(std::slice::from_ref(&empty.0)), None);
}

#[test]
fn only_the_pinned_file_is_verified() {
    let scratch = Scratch::new("verify");
    let content = content();
    let pinned = pinned(&content);
    let path = scratch.file("right", &content);
    let model = verify(&path, &pinned).unwrap();
    assert_eq!(model.digest_hex(), pinned.sha256);
    let mut changed = content.clone();
    changed[1_000_000] ^= 1;
    let path = scratch.file("changed", &changed);
    assert!(matches!(verify(&path, &pinned).unwrap_err(), Error::Digest { .. }));
    let path = scratch.file("short", &content[1..]);
    let expected = pinned.len;
    assert_eq!(verify(&path, &pinned).unwrap_err(), Error::Length { expected, actual: expected - 1 });
    assert_eq!(verify(&scratch.0.join("absent"), &pinned).unwrap_err(), Error::NotFound);
    assert!(verify(&scratch.0, &pinned).is_err());
}

#[test]
fn any_other_file_is_no_model() {
    let scratch = Scratch::new("other");
    let path = scratch.file(FILE_NAME, b"E5S1");
    assert_eq!(verify_file(&path).unwrap_err(), Error::Length { expected: FILE_BYTES, actual: 4 });
    assert!(import(&path, &scratch.0).is_err());
}

#[test]
fn the_file_is_imported_from_a_copy_or_an_archive() {
    let content = content();
    let pinned = pinned(&content);
    let files: [(&str, &[u8]); 3] =
        [("a/readme", b"x"), ("a/model.bin", &content), ("a/model.bin.txt", b"y")];
    let sources = [content.clone(), archive(&files, true), archive(&files, false)];
    for (n, source) in sources.iter().enumerate() {
        let scratch = Scratch::new(&format!("import-{n}"));
        let from = scratch.file("source", source);
        let to = scratch.0.join("made/on/the/way");
        let path = copy(&from, &to, &pinned).unwrap();
        assert_eq!(path, to.join("model.bin"));
        assert!(verify(&path, &pinned).is_ok());
        // Once more over the existing one.
        copy(&from, &to, &pinned).unwrap();
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    }
}

#[test]
fn a_wrong_source_leaves_nothing_behind_and_keeps_what_was_there() {
    let scratch = Scratch::new("wrong");
    let content = content();
    let pinned = pinned(&content);
    let right = scratch.file("right", &content);
    copy(&right, &scratch.0, &pinned).unwrap();
    let mut changed = content.clone();
    changed[0] ^= 1;
    let longer: Vec<u8> = content.iter().copied().chain([0]).collect();
    let two: [(&str, &[u8]); 2] = [("a/model.bin", &content), ("b/model.bin", &content)];
    for source in [
        changed.clone(),
        longer,
        content[1..].to_vec(),
        Vec::new(),
        archive(&[("model.bin", &changed)], true),
        archive(&[("other.bin", &content)], true),
        archive(&[("model.bin", b"short")], true),
        archive(&two, false),
    ] {
        let from = scratch.file("source", &source);
        assert!(copy(&from, &scratch.0, &pinned).is_err());
        assert_eq!(scratch.names(), ["model.bin", "right", "source"]);
        assert!(verify(&scratch.0.join("model.bin"), &pinned).is_ok());
    }
    assert_eq!(copy(&scratch.0.join("absent"), &scratch.0, &pinned).unwrap_err(), Error::NotFound);
}

#[test]
fn a_damaged_archive_is_refused_or_harmless() {
    let content: Vec<u8> = (0..3_000_u32).flat_map(u32::to_le_bytes).collect();
    let whole = archive(&[("x", b"y"), ("model.bin", &content)], true);
    let extract =
        |bytes: Vec<u8>| archive::extract(&mut Cursor::new(bytes), "model.bin", content.len() as u64);
    assert_eq!(extract(whole.clone()).unwrap(), content);
    for len in 0..whole.len() {
        assert!(extract(whole[..len].to_vec()).is_err() || len + 2 >= whole.len(), "cut at {len}");
    }
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0xff, whole[at] ^ 8] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            // Whatever comes out is not longer than asked for; its digest is compared later.
            assert!(extract(bytes).map_or(0, |found| found.len()) <= content.len());
        }
    }
}

#[test]
fn a_claimed_size_takes_no_memory() {
    let mut bytes = archive(&[("model.bin", b"content")], false);
    let at = bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
    bytes[at + 20..at + 24].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = archive::extract(&mut Cursor::new(bytes), "model.bin", 7).unwrap_err();
    assert_eq!(error, Error::Archive("it is cut off"));
}
