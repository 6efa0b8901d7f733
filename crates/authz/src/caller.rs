//! Authentication by API key. A key is `mk_<id>_<secret>` with 256 random bits of secret; only the
//! secret's SHA-256 is stored, which is enough for a value nobody can guess. [`authenticate`] is the only
//! maker of a [`Caller`].

use std::fmt;
use std::str::FromStr;

use merkwelt_domain::ids::base32;
use merkwelt_domain::{Env, KeyId, SubjectId, TenantId, Timestamp};

use crate::Fut;
use crate::role::Role;

/// SHA-256 of an API key's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// A digest as a store read it.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest as a store writes it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn matches(&self, other: &Self) -> bool {
        // All bytes are always compared, so the time tells nothing about where two digests differ.
        self.0.iter().zip(other.0).fold(0u8, |diff, (a, b)| diff | (a ^ b)) == 0
    }
}

/// Why a text is not an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct KeyError;

/// An API key as its holder presents it. It has no `Display`, and its `Debug` shows only the public part.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    id: KeyId,
    secret: String,
}

const SECRET_BYTES: usize = 32;
const SECRET_LEN: usize = 52;

impl ApiKey {
    /// Draws a new key.
    #[must_use]
    pub fn random(env: &dyn Env) -> Self {
        let mut secret = [0u8; SECRET_BYTES];
        let id = KeyId::random(env);
        env.fill(&mut secret);
        Self { id, secret: base32(&secret) }
    }

    /// The public part.
    #[must_use]
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// What a store keeps of the secret.
    #[must_use]
    pub fn digest(&self) -> SecretDigest {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.secret.as_bytes());
        let mut bytes = [0u8; 32];
        for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
        SecretDigest(bytes)
    }

    /// The whole key, to be shown to its new holder once.
    #[must_use]
    pub fn reveal(&self) -> String {
        let id = self.id.as_str().strip_prefix(KeyId::PREFIX).unwrap_or_default();
        format!("mk_{id}_{}", self.secret)
    }
}

impl FromStr for ApiKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (id, secret) = text.strip_prefix("mk_").and_then(|rest| rest.split_once('_')).ok_or(KeyError)?;
        let id = format!("{}{id}", KeyId::PREFIX).parse().map_err(|_| KeyError)?;
        let plain = secret.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b));
        if secret.len() == SECRET_LEN && plain {
            Ok(Self { id, secret: secret.to_owned() })
        } else {
            Err(KeyError)
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id)
    }
}

/// What the registry holds about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The public part.
    pub key: KeyId,
    /// What is kept of the secret.
    pub digest: SecretDigest,
    /// The tenant it belongs to. Keys of the instance belong to the instance's own tenant.
    pub tenant: TenantId,
    /// What it is for.
    pub role: Role,
    /// The only subject it may act for, if it is bound.
    pub subject: Option<SubjectId>,
    /// Whether it may act for subjects it names.
    pub act_for: bool,
    /// When it ends, if it does.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
}

/// Looks up credentials. The implementations are listed in the tidy test.
pub trait CredentialSource: Send + Sync {
    /// The credential of `key`, or `None` if there is none.
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>>;
}

/// No valid key was presented. There is one answer for unknown, wrong, expired and revoked keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no valid key")]
pub struct Unauthenticated;

/// A proven identity. It grants nothing by itself. It has no public constructor, no `Clone` and no serde.
#[derive(Debug)]
pub struct Caller {
    key: KeyId,
    tenant: TenantId,
    role: Role,
    subject: Option<SubjectId>,
    act_for: bool,
}

impl Caller {
    /// The key that was presented.
    #[must_use]
    pub fn key(&self) -> &KeyId {
        &self.key
    }

    /// The tenant it belongs to.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// What the key is for.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    pub(crate) fn binding(&self) -> Option<&SubjectId> {
        self.subject.as_ref()
    }

    pub(crate) fn may_act_for(&self) -> bool {
        self.act_for
    }
}

/// Proves the holder of `presented`.
///
/// # Errors
/// [`Unauthenticated`] for an unknown, wrong, expired or revoked key alike.
pub async fn authenticate(
    source: &dyn CredentialSource,
    presented: &ApiKey,
    now: Timestamp,
) -> Result<Caller, Unauthenticated> {
    let credential = source.credential(presented.id()).await;
    // An unknown key is compared too, so that it takes the time of a known one.
    let kept = credential.as_ref().map_or(SecretDigest([0; 32]), |c| c.digest);
    let proven = kept.matches(&presented.digest());
    match credential {
        Some(c) if proven && is_live(&c, now) => {
            Ok(Caller { key: c.key, tenant: c.tenant, role: c.role, subject: c.subject, act_for: c.act_for })
        }
        Some(_) | None => Err(Unauthenticated),
    }
}

fn is_live(credential: &Credential, now: Timestamp) -> bool {
    credential.revoked_at.is_none() && credential.expires_at.is_none_or(|end| now < end)
}

#[cfg(test)]
mod tests;
