//! Files that say who may read a folder.

use merkwelt_server::folder::audience;
use merkwelt_store::source::NewAudience;

/// Nobody gets a right that does not stand in the file in plain words, and how the file begins or ends changes
/// nothing.
pub(crate) fn acl(bytes: &[u8]) {
    let read = audience(bytes);
    match &read {
        None => {}
        Some(NewAudience::Tenant) => {
            let text = std::str::from_utf8(bytes).expect("what opens a file to everybody is text");
            assert!(text.contains("true"), "open to everybody without a word");
        }
        Some(NewAudience::Groups(names)) => {
            assert!((1..=64).contains(&names.len()), "{} groups", names.len());
            for name in names {
                assert_eq!(name.as_str().parse().as_ref(), Ok(name), "a name that is none");
            }
        }
    }
    if !bytes.starts_with(b"\xef\xbb\xbf") {
        assert_eq!(audience(&[b"\xef\xbb\xbf", bytes].concat()), read, "a mark at the beginning counts");
    }
    if read.is_some() {
        assert_eq!(audience(&[bytes, b"\n# end\n"].concat()), read, "a comment at the end counts");
        assert_eq!(audience(&[bytes, b"\n= 1\n"].concat()), None, "what is not understood opens the file");
    }
}
