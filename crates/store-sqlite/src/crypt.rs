//! Keys and ciphertext. The instance key wraps tenant keys, a tenant key wraps the keys of its owners
//! (subjects, groups, the tenant itself), and an owner's key encrypts what the owner owns (AES-256-GCM, 96
//! random bits of nonce, the place of the value as associated data). Destroying an owner's key makes every
//! copy of the owner's content unreadable, in every file and backup.

use std::fmt;
use std::io::Write as _;

use merkwelt_domain::Env;
use merkwelt_ledger::commitment::SubjectKey;
use merkwelt_store::Error;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use zeroize::Zeroizing;

/// The instance key: 32 secret bytes from a file, the environment or a key-management command. It never
/// touches the data directory.
pub struct MasterKey(Secret);

impl MasterKey {
    /// Takes 32 bytes of cryptographic quality.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Secret::from_bytes(bytes))
    }

    /// The key that wraps tenant keys and ledger seeds.
    pub(crate) fn wrapping(&self) -> Result<Sealer, Error> {
        Sealer::new(&self.0.derive(b"merkwelt wrap v1"))
    }

    /// A value by which a wrong key is recognised without trying it on data.
    pub(crate) fn check_value(&self) -> Secret {
        self.0.derive(b"merkwelt check v1")
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(hidden)")
    }
}

/// 32 secret bytes, overwritten on drop.
pub(crate) struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn random(env: &dyn Env) -> Self {
        let mut bytes = Zeroizing::new([0u8; 32]);
        env.fill(bytes.as_mut());
        Self(bytes)
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Result<Self, Error> {
        let mut out = Zeroizing::new([0u8; 32]);
        if bytes.len() != out.len() {
            return Err(Error::Damaged);
        }
        out.copy_from_slice(bytes);
        Ok(Self(out))
    }

    /// A key for one use, so that no two uses share one.
    pub(crate) fn derive(&self, label: &[u8]) -> Self {
        Self(Zeroizing::new(hmac_parts(&hmac::Key::new(hmac::HMAC_SHA256, self.expose()), &[label])))
    }

    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn mac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.expose())
    }
}

fn hmac_parts(key: &hmac::Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    let mut out = [0u8; 32];
    for (to, from) in out.iter_mut().zip(context.sign().as_ref()) {
        *to = *from;
    }
    out
}

/// Where a ciphertext stands. It is authenticated, so a value cannot be moved to another row, column,
/// revision or tenant unnoticed (I-5).
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) table: &'static str,
    pub(crate) row: &'a str,
    pub(crate) revision: u32,
    pub(crate) column: &'static str,
}

impl Place<'_> {
    fn to_bytes(self) -> Vec<u8> {
        // No part contains a bar: ids are letters and digits, names come from the program text.
        let mut bytes = Vec::with_capacity(112);
        for part in [self.tenant, self.table, self.row] {
            bytes.extend_from_slice(part.as_bytes());
            bytes.push(b'|');
        }
        // Writing to memory does not fail.
        let _ = write!(bytes, "{}|", self.revision);
        bytes.extend_from_slice(self.column.as_bytes());
        bytes
    }
}

/// An AES-256-GCM key in use.
pub(crate) struct Sealer(LessSafeKey);

impl Sealer {
    pub(crate) fn new(key: &Secret) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_256_GCM, key.expose()).map_err(|_| Error::Damaged)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Nonce, ciphertext and tag.
    pub(crate) fn seal(&self, env: &dyn Env, place: Place<'_>, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut nonce = [0u8; NONCE_LEN];
        env.fill(&mut nonce);
        let mut out = Vec::with_capacity(NONCE_LEN + plain.len() + AES_256_GCM.tag_len());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(plain);
        let Some(body) = out.get_mut(NONCE_LEN..) else { return Err(Error::Damaged) };
        let aad = Aad::from(place.to_bytes());
        let tag = self
            .0
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, body)
            .map_err(|_| Error::Damaged)?;
        out.extend_from_slice(tag.as_ref());
        Ok(out)
    }

    /// The plaintext, overwritten on drop.
    pub(crate) fn open(&self, place: Place<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut plain = Zeroizing::new(Vec::new());
        self.open_into(place, sealed, &mut plain)?;
        Ok(plain)
    }

    /// As [`Sealer::open`], into a buffer that is used again for the next value and overwritten at its end.
    pub(crate) fn open_into(
        &self,
        place: Place<'_>,
        sealed: &[u8],
        plain: &mut Zeroizing<Vec<u8>>,
    ) -> Result<(), Error> {
        let (nonce, body) = sealed.split_first_chunk::<NONCE_LEN>().ok_or(Error::Damaged)?;
        if plain.capacity() < body.len() {
            // Growing in place could leave a copy behind that nobody overwrites.
            *plain = Zeroizing::new(Vec::with_capacity(body.len().next_power_of_two()));
        }
        plain.clear();
        plain.extend_from_slice(body);
        let length = self
            .0
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(place.to_bytes()),
                plain.as_mut_slice(),
            )
            .map_err(|_| Error::Damaged)?
            .len();
        plain.truncate(length);
        Ok(())
    }
}

/// What one owner's key is used for: encryption, tags in the ledger, and the blind index of slots and
/// texts.
pub(crate) struct OwnerKeys {
    pub(crate) sealer: Sealer,
    pub(crate) tags: SubjectKey,
    blind: hmac::Key,
}

impl OwnerKeys {
    pub(crate) fn new(key: &Secret) -> Result<Self, Error> {
        Ok(Self {
            sealer: Sealer::new(&key.derive(b"content"))?,
            tags: SubjectKey::from_bytes(*key.derive(b"tags").expose()),
            blind: key.derive(b"blind index").mac(),
        })
    }

    /// Equal for equal slots of this owner, meaningless without the key.
    pub(crate) fn slot_tag(&self, slot: &str) -> [u8; 32] {
        hmac_parts(&self.blind, &[b"slot\0", slot.as_bytes()])
    }

    /// Equal for equal statements of one kind of this owner.
    pub(crate) fn text_tag(&self, kind: &str, folded: &str) -> [u8; 32] {
        hmac_parts(&self.blind, &[b"text\0", kind.as_bytes(), b"\0", folded.as_bytes()])
    }
}

/// What the tenant key is used for.
pub(crate) struct TenantKeys {
    pub(crate) wrapping: Sealer,
    reference: hmac::Key,
}

impl TenantKeys {
    pub(crate) fn new(key: &Secret) -> Result<Self, Error> {
        Ok(Self { wrapping: Sealer::new(&key.derive(b"wrap"))?, reference: key.derive(b"references").mac() })
    }

    /// Finds a person by the customer's reference without storing it.
    pub(crate) fn reference_tag(&self, reference: &str) -> [u8; 32] {
        hmac_parts(&self.reference, &[b"subject\0", reference.as_bytes()])
    }

    /// Finds a source by where it comes from without storing that, which may name a person.
    pub(crate) fn origin_tag(&self, origin: &str) -> [u8; 32] {
        hmac_parts(&self.reference, &[b"origin\0", origin.as_bytes()])
    }

    /// Finds a repeated request without storing its key, which may name a person.
    pub(crate) fn idempotency_tag(&self, api_key: &str, key: &str) -> [u8; 32] {
        hmac_parts(&self.reference, &[b"idempotency\0", api_key.as_bytes(), b"\0", key.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use merkwelt_domain::env::fixed::FixedEnv;

    use super::*;

    fn place<'a>(row: &'a str, revision: u32) -> Place<'a> {
        Place { tenant: "ten_a", table: "memories", row, revision, column: "body" }
    }

    #[test]
    fn i_005_a_ciphertext_cannot_be_moved_to_another_place() {
        let env = FixedEnv::at(0);
        let sealer = Sealer::new(&Secret::random(&env)).unwrap();
        let sealed = sealer.seal(&env, place("mem_a", 1), b"likes tea").unwrap();
        assert_eq!(sealer.open(place("mem_a", 1), &sealed).unwrap().as_slice(), b"likes tea");
        assert!(sealer.open(place("mem_b", 1), &sealed).is_err());
        assert!(sealer.open(place("mem_a", 2), &sealed).is_err());
        let mut cut = sealed.clone();
        cut.pop();
        assert!(sealer.open(place("mem_a", 1), &cut).is_err());
        assert!(sealer.open(place("mem_a", 1), &[1, 2, 3]).is_err());
    }

    #[test]
    fn i_005_a_place_is_written_as_it_always_was() {
        assert_eq!(place("mem_a", 4_294_967_295).to_bytes(), b"ten_a|memories|mem_a|4294967295|body");
    }

    #[test]
    fn two_owners_have_unrelated_tags_and_nonces_do_not_repeat() {
        let env = FixedEnv::at(0);
        let (a, b) = (Secret::random(&env), Secret::random(&env));
        let (a, b) = (OwnerKeys::new(&a).unwrap(), OwnerKeys::new(&b).unwrap());
        assert_ne!(a.slot_tag("eta:17"), b.slot_tag("eta:17"));
        assert_ne!(a.text_tag("feedback", "x"), a.text_tag("user_fact", "x"));
        let one = a.sealer.seal(&env, place("mem_a", 1), b"x").unwrap();
        let two = a.sealer.seal(&env, place("mem_a", 1), b"x").unwrap();
        assert_ne!(one, two);
    }

    #[test]
    fn r_110_keys_do_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", MasterKey::from_bytes([7; 32])), "MasterKey(hidden)");
    }
}
