//! C2SP signed notes: a text, a blank line, and signature lines. Only Ed25519 (type 0x01) is made and checked;
//! signatures of unknown keys are carried and ignored, which is what lets keys rotate and witnesses join.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::hash::{self, sha256};

/// Most signatures read from one note (signed-note demands at least 16).
pub const SIGNATURES_MAX: usize = 64;

/// Largest note read, in bytes.
pub const BYTES_MAX: usize = 256 * 1024;

const ED25519_TYPE: u8 = 0x01;
const SIGNATURE_PREFIX: &str = "\u{2014} ";

/// Why a note or a key was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key name is empty or contains a space, a plus or a control character.
    #[error("the key name is not usable")]
    KeyName,
    /// The verifier key is not `name+id+base64`, or its id is not that of its key.
    #[error("the verifier key is malformed")]
    VerifierKey,
    /// A key of another signature type than Ed25519.
    #[error("the signature type is not supported")]
    KeyType,
    /// The seed does not make a key.
    #[error("the signing seed is not usable")]
    Seed,
    /// The text is not a note.
    #[error("the note is malformed")]
    Malformed,
    /// More than [`BYTES_MAX`] bytes or [`SIGNATURES_MAX`] signatures.
    #[error("the note is too large")]
    TooLarge,
    /// No signature belongs to a given key.
    #[error("no signature by a known key")]
    Unsigned,
    /// A signature that names a given key does not verify.
    #[error("a signature by a known key does not verify")]
    BadSignature,
}

/// A public key with the name of its owner: `name+id+base64(0x01 ‖ key)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerifierKey {
    name: String,
    public: [u8; 32],
}

impl VerifierKey {
    /// A key of 32 bytes in RFC 8032 encoding.
    ///
    /// # Errors
    /// [`Error::KeyName`].
    pub fn new(name: &str, public: [u8; 32]) -> Result<Self, Error> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), public })
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`Error::VerifierKey`], [`Error::KeyName`] or [`Error::KeyType`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        // Base64 may contain a plus, the name may not.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Error::VerifierKey);
        };
        let bytes = STANDARD.decode(key).map_err(|_| Error::VerifierKey)?;
        let (kind, public) = bytes.split_first().ok_or(Error::VerifierKey)?;
        if *kind != ED25519_TYPE {
            return Err(Error::KeyType);
        }
        let public = public.try_into().map_err(|_| Error::VerifierKey)?;
        let key = Self::new(name, public)?;
        if hash::encode_hex(&key.id()) == id { Ok(key) } else { Err(Error::VerifierKey) }
    }

    /// The name of the signer; for a log, its origin.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The 32 bytes of the public key.
    #[must_use]
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// SHA-256(name ‖ 0x0A ‖ 0x01 ‖ key), first four bytes.
    #[must_use]
    pub fn id(&self) -> [u8; 4] {
        let full = sha256(&[self.name.as_bytes(), b"\n", &[ED25519_TYPE], &self.public]);
        let [a, b, c, d, ..] = *full.as_bytes();
        [a, b, c, d]
    }

    /// Whether the signature over the message is by this key (RFC 8032).
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.public).verify(message, signature).is_ok()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![ED25519_TYPE];
        key.extend_from_slice(&self.public);
        write!(f, "{}+{}+{}", self.name, hash::encode_hex(&self.id()), STANDARD.encode(key))
    }
}

/// The private half of a log key. Its seed cannot be read back.
pub struct Signer {
    key: VerifierKey,
    pair: Ed25519KeyPair,
}

impl Signer {
    /// Makes the key of a name from 32 secret random bytes.
    ///
    /// # Errors
    /// [`Error::KeyName`] or [`Error::Seed`].
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, Error> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| Error::Seed)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| Error::Seed)?;
        Ok(Self { key: VerifierKey::new(name, public)?, pair })
    }

    /// The public half, to be pinned by verifiers.
    #[must_use]
    pub const fn verifier_key(&self) -> &VerifierKey {
        &self.key
    }

    /// Signs a text that ends in a newline and has no control characters but newlines.
    ///
    /// # Errors
    /// [`Error::Malformed`] for any other text.
    pub fn sign(&self, text: &str) -> Result<SignedNote, Error> {
        check_text(text)?;
        let mut note = SignedNote { text: text.to_owned(), signatures: Vec::new() };
        self.cosign(&mut note);
        Ok(note)
    }

    /// Adds this key's signature below those a note has already, as in a key rotation (L-24).
    pub fn cosign(&self, note: &mut SignedNote) {
        note.signatures.push(NoteSignature {
            name: self.key.name.clone(),
            key_id: self.key.id(),
            signature: self.pair.sign(note.text.as_bytes()).as_ref().to_vec(),
        });
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.key)
    }
}

/// One signature line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// Name of the signing key.
    pub name: String,
    /// First four bytes of the key's digest.
    pub key_id: [u8; 4],
    /// The signature in the form its type prescribes.
    pub signature: Vec<u8>,
}

/// A text with its signatures, none of them checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Reads a note. Writing it again gives the same bytes.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Malformed`] or [`Error::KeyName`].
    pub fn parse(note: &str) -> Result<Self, Error> {
        if note.len() > BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let split = note.rfind("\n\n").ok_or(Error::Malformed)?;
        let (text, tail) = note.split_at_checked(split + 1).ok_or(Error::Malformed)?;
        check_text(text)?;
        let lines =
            tail.strip_prefix('\n').and_then(|tail| tail.strip_suffix('\n')).ok_or(Error::Malformed)?;
        let signatures = lines.split('\n').map(parse_signature).collect::<Result<Vec<_>, _>>()?;
        if signatures.len() > SIGNATURES_MAX {
            return Err(Error::TooLarge);
        }
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// The signed text with its final newline. Trust it only after [`SignedNote::verify`].
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signature lines in their order.
    #[must_use]
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// The given keys that signed this note; at least one.
    ///
    /// # Errors
    /// [`Error::BadSignature`] if any line names a given key without being its signature,
    /// [`Error::Unsigned`] if none names a given key.
    pub fn verify<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k VerifierKey>,
    ) -> Result<Vec<&'k VerifierKey>, Error> {
        let mut signed = Vec::new();
        for key in keys {
            let id = key.id();
            let mut lines =
                self.signatures.iter().filter(|line| line.name == key.name && line.key_id == id).peekable();
            if lines.peek().is_none() {
                continue;
            }
            if !lines.all(|line| key.verifies(self.text.as_bytes(), &line.signature)) {
                return Err(Error::BadSignature);
            }
            signed.push(key);
        }
        if signed.is_empty() { Err(Error::Unsigned) } else { Ok(signed) }
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for line in &self.signatures {
            let mut bytes = line.key_id.to_vec();
            bytes.extend_from_slice(&line.signature);
            writeln!(f, "{SIGNATURE_PREFIX}{} {}", line.name, STANDARD.encode(bytes))?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let usable = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
    if !name.is_empty() && name.chars().all(usable) { Ok(()) } else { Err(Error::KeyName) }
}

fn check_text(text: &str) -> Result<(), Error> {
    let plain = text.bytes().all(|byte| byte >= 0x20 || byte == b'\n');
    if plain && text.len() > 1 && text.ends_with('\n') { Ok(()) } else { Err(Error::Malformed) }
}

fn parse_signature(line: &str) -> Result<NoteSignature, Error> {
    let rest = line.strip_prefix(SIGNATURE_PREFIX).ok_or(Error::Malformed)?;
    let (name, encoded) = rest.split_once(' ').ok_or(Error::Malformed)?;
    check_name(name)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| Error::Malformed)?;
    match bytes.split_first_chunk::<4>() {
        Some((key_id, signature)) if !signature.is_empty() => {
            Ok(NoteSignature { name: name.to_owned(), key_id: *key_id, signature: signature.to_vec() })
        }
        _ => Err(Error::Malformed),
    }
}
