//! Commitments to content and tags of persons: keyed, so that a country or a birth date cannot be guessed from
//! the ledger (L-17), and erasable, because the keys live elsewhere and are destroyed with the subject.

use std::fmt;
use std::hint::black_box;

use ring::hmac;

use crate::hash::{self, Error};
use crate::token::Token;

const DOMAIN: &[u8] = b"merkwelt/v1";

/// The secret that hides one content: 32 fresh random bytes, used once (L-18).
///
/// It has no `Clone`, no `Display` and no serialised form, its `Debug` shows nothing, and committing consumes
/// it. The memory is overwritten on drop as far as safe code can.
///
/// ```
/// use merkwelt_ledger::{OpeningKey, Token};
/// let label = Token::parse("result")?;
/// let (commitment, opening) = OpeningKey::from_bytes([1; 32]).commit(&label, b"FR");
/// assert!(opening.opens(&commitment, b"FR"));
/// # Ok::<(), merkwelt_ledger::token::Error>(())
/// ```
///
/// A key that has been used is gone:
///
/// ```compile_fail,E0382
/// use merkwelt_ledger::{OpeningKey, Token};
/// let label = Token::parse("result")?;
/// let key = OpeningKey::from_bytes([1; 32]);
/// let first = key.commit(&label, b"FR");
/// let second = key.commit(&label, b"DE");
/// # Ok::<(), merkwelt_ledger::token::Error>(())
/// ```
///
/// Nor can it be copied beforehand:
///
/// ```compile_fail,E0599
/// use merkwelt_ledger::OpeningKey;
/// let copy = OpeningKey::from_bytes([1; 32]).clone();
/// ```
pub struct OpeningKey([u8; 32]);

impl OpeningKey {
    /// Takes 32 bytes from the caller's entropy, or from the erasable store when an opening is read back.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, to be encrypted under the subject's key and stored.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Commits to the content: HMAC-SHA-256(key, "merkwelt/v1" ‖ 0x00 ‖ label ‖ 0x00 ‖ content).
    ///
    /// The label says what the content is ("request", "result", "record"), so that one cannot be opened as
    /// the other. Content is raw bytes as received (L-26).
    #[must_use]
    pub fn commit(self, label: &Token, content: &[u8]) -> (Commitment, Opening) {
        let opening = Opening { key: self, label: label.clone() };
        (opening.recompute(content), opening)
    }
}

impl Drop for OpeningKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for OpeningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpeningKey(hidden)")
    }
}

/// The key and the label that open one commitment, given its content. Erasing it makes the commitment
/// meaningless.
#[derive(Debug)]
pub struct Opening {
    key: OpeningKey,
    label: Token,
}

impl Opening {
    /// Rebuilds an opening from the erasable store.
    #[must_use]
    pub const fn new(key: OpeningKey, label: Token) -> Self {
        Self { key, label }
    }

    /// The key, to be stored encrypted.
    #[must_use]
    pub const fn key(&self) -> &OpeningKey {
        &self.key
    }

    /// What the content is.
    #[must_use]
    pub const fn label(&self) -> &Token {
        &self.label
    }

    /// Whether this content is what was committed to; compared in constant time.
    #[must_use]
    pub fn opens(&self, commitment: &Commitment, content: &[u8]) -> bool {
        let mut message = Vec::with_capacity(DOMAIN.len() + 2 + self.label.as_str().len() + content.len());
        for part in [DOMAIN, &[0], self.label.as_str().as_bytes(), &[0], content] {
            message.extend_from_slice(part);
        }
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key.0);
        let opens = hmac::verify(&key, &message, &commitment.0).is_ok();
        wipe(&mut message);
        opens
    }

    fn recompute(&self, content: &[u8]) -> Commitment {
        Commitment(mac(&self.key.0, &[DOMAIN, &[0], self.label.as_str().as_bytes(), &[0], content]))
    }
}

/// The key of one subject, from which its tags are made; destroyed with the subject.
pub struct SubjectKey([u8; 32]);

impl SubjectKey {
    /// Takes 32 secret bytes that are used for nothing but tags.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The tag of this subject in one event: HMAC-SHA-256(key, "tag" ‖ id).
    ///
    /// With the key, every entry about a person is found and proven; without it, no two link (L-19).
    #[must_use]
    pub fn tag(&self, event_id: &Token) -> SubjectTag {
        SubjectTag(mac(&self.0, &[b"tag", event_id.as_str().as_bytes()]))
    }

    /// The tag of one of the subject's records in one event: HMAC-SHA-256(key, "record" ‖ event id ‖ 0x00 ‖
    /// record id). A plain record id would link every entry in which the record was read.
    #[must_use]
    pub fn record_tag(&self, event_id: &Token, record_id: &Token) -> RecordTag {
        let parts: [&[u8]; 4] =
            [b"record", event_id.as_str().as_bytes(), &[0], record_id.as_str().as_bytes()];
        RecordTag(mac(&self.0, &parts))
    }
}

impl Drop for SubjectKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for SubjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectKey(hidden)")
    }
}

/// Declares a public 32-byte value that is written as hexadecimal digits.
macro_rules! public_value {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Reads 64 lower-case hexadecimal digits.
            ///
            /// # Errors
            /// [`Error`] for anything else.
            pub fn from_hex(text: &str) -> Result<Self, Error> {
                let mut out = [0_u8; 32];
                hash::decode_hex(text, &mut out)?;
                Ok(Self(out))
            }

            /// The raw bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Takes raw bytes, as read from a store.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hash::encode_hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

public_value! {
    /// Binds to a content without revealing it.
    Commitment
}
public_value! {
    /// Marks a subject in one event only.
    SubjectTag
}
public_value! {
    /// Marks a subject's record in one event only.
    RecordTag
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    let mut out = [0_u8; 32];
    for (to, from) in out.iter_mut().zip(context.sign().as_ref()) {
        *to = *from;
    }
    out
}

/// Overwrites memory in a way the optimiser has to keep: it cannot know what `black_box` reads.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    black_box(bytes);
}
