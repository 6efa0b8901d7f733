//! SHA-256 values and the two hashes of an RFC 6962 tree: a leaf is hashed behind the byte 0x00 and a node
//! behind 0x01, so that neither can be passed off as the other.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// A text that is not the encoding of a 32-byte value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a 32-byte value in the expected encoding")]
pub struct Error;

/// A 32-byte SHA-256 value of the tree: a leaf, an inner node or a root.
///
/// It is public by nature and never the digest of content (L-17); those are [`crate::Commitment`]s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Wraps 32 raw bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Takes exactly 32 raw bytes, as read from a store.
    ///
    /// # Errors
    /// [`Error`] for any other length.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
        bytes.try_into().map(Self).map_err(|_| Error)
    }

    /// The 32 raw bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hexadecimal digits.
    ///
    /// # Errors
    /// [`Error`] for another length, an upper-case digit or any other character.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        let mut out = [0_u8; 32];
        decode_hex(text, &mut out)?;
        Ok(Self(out))
    }

    /// 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        encode_hex(&self.0)
    }

    /// Reads standard base64 with padding (RFC 4648 section 4), as the C2SP formats use it.
    ///
    /// # Errors
    /// [`Error`] for another length or an encoding that is not the only one of its value.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let bytes = STANDARD.decode(text).map_err(|_| Error)?;
        Self::from_slice(&bytes)
    }

    /// Standard base64 with padding.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// The root of a tree without leaves: SHA-256 of nothing (RFC 6962, 2.1).
    #[must_use]
    pub fn empty_root() -> Self {
        sha256(&[])
    }

    /// The hash of a leaf: SHA-256(0x00 ‖ bytes) (RFC 6962, 2.1).
    #[must_use]
    pub fn of_leaf(bytes: &[u8]) -> Self {
        sha256(&[&[0x00], bytes])
    }

    /// The hash of an inner node: SHA-256(0x01 ‖ left ‖ right) (RFC 6962, 2.1).
    #[must_use]
    pub fn of_node(left: &Self, right: &Self) -> Self {
        sha256(&[&[0x01], &left.0, &right.0])
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// SHA-256 over the parts laid end to end.
pub(crate) fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut out = [0_u8; 32];
    for (to, from) in out.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    Hash(out)
}

/// Lower-case hexadecimal digits of any bytes.
pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0x0f] {
            text.push(char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }));
        }
    }
    text
}

/// Fills `out` from exactly twice as many lower-case hexadecimal digits.
pub(crate) fn decode_hex(text: &str, out: &mut [u8]) -> Result<(), Error> {
    if text.len() != out.len() * 2 {
        return Err(Error);
    }
    let mut digits = text.bytes().map(|byte| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(Error),
    });
    for byte in out.iter_mut() {
        let high = digits.next().ok_or(Error)??;
        let low = digits.next().ok_or(Error)??;
        *byte = high << 4 | low;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_one_spelling() {
        let root = Hash::empty_root();
        assert_eq!(root.to_hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Hash::from_hex(&root.to_hex()), Ok(root));
        assert_eq!(Hash::from_base64(&root.to_base64()), Ok(root));
        assert_eq!(Hash::from_hex(&root.to_hex().to_uppercase()), Err(Error));
        assert_eq!(Hash::from_hex("é3"), Err(Error));
        // The last character before the padding carries two unused bits; only zeros are accepted.
        assert_eq!(Hash::from_base64("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV="), Err(Error));
        assert_eq!(Hash::from_base64("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"), Err(Error));
    }

    #[test]
    fn a_leaf_cannot_pass_for_a_node() {
        let (a, b) = (Hash::of_leaf(b"a"), Hash::of_leaf(b"b"));
        let forged = [a.as_bytes().as_slice(), b.as_bytes().as_slice()].concat();
        assert_ne!(Hash::of_leaf(&forged), Hash::of_node(&a, &b));
    }
}
