//! Typed ids, parsed once at the edge (I-5). An id is a prefix that names its type and 128 random bits in
//! base32, so it can be neither guessed nor mistaken for another type. Names that people choose
//! (tenants, groups, purposes) and the customer's own reference to a person are newtypes of their own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

use crate::env::Env;

/// Why a text is not an id or a name of the wanted type. It never repeats the text (I-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text does not have the prefix, length or alphabet of this id.
    #[error("not a {0}")]
    Malformed(&'static str),
    /// The text is not a name.
    #[error("{0} must be 1 to 64 of a-z, 0-9, `.`, `_`, `-`, and begin with a letter or digit")]
    Name(&'static str),
    /// The text begins or ends with white space, or holds characters that nobody sees.
    #[error("{0} must not begin or end with white space, nor hold control or invisible characters")]
    Unseen(&'static str),
    /// The text is empty or only white space: an absent scope is an error, never everything (I-6).
    #[error("{0} is empty")]
    Empty(&'static str),
    /// The text contains a wildcard: a scope names one thing (I-6).
    #[error("{0} must not contain `*` or `%`: it names one, and these stand for many")]
    Wildcard(&'static str),
    /// The text is longer than its type allows.
    #[error("{what} is longer than {max} bytes")]
    TooLong {
        /// What was parsed.
        what: &'static str,
        /// The most bytes allowed.
        max: usize,
    },
}

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const RANDOM_BYTES: usize = 16;
const ENCODED_LEN: usize = 26;

/// Lower-case RFC 4648 base32 without padding. It is public because API keys are written with it too.
#[must_use]
pub fn base32(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0u32, 0u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            push_symbol(&mut out, (buffer >> bits) & 31);
        }
        buffer &= (1 << bits) - 1;
    }
    if bits > 0 {
        push_symbol(&mut out, (buffer << (5 - bits)) & 31);
    }
    out
}

fn push_symbol(out: &mut String, value: u32) {
    let symbol = usize::try_from(value).ok().and_then(|i| ALPHABET.get(i)).copied().unwrap_or(b'a');
    out.push(char::from(symbol));
}

fn is_encoded_id(body: &str) -> bool {
    // The last of the 26 symbols holds three bits, so only every fourth symbol can stand there: one id
    // has one spelling.
    body.len() == ENCODED_LEN
        && body.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
        && body.bytes().last().is_some_and(|b| b"aeimquy4".contains(&b))
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The prefix that names the type, with its underscore.
            pub const PREFIX: &'static str = $prefix;

            /// Draws a new id from the environment's randomness (I-10).
            #[must_use]
            pub fn random(env: &dyn Env) -> Self {
                let mut bytes = [0u8; RANDOM_BYTES];
                env.fill(&mut bytes);
                Self(format!("{}{}", $prefix, base32(&bytes)))
            }

            /// The id as it is written in requests, answers and evidence.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                let body = text.strip_prefix($prefix).ok_or(Error::Malformed($what))?;
                if is_encoded_id(body) { Ok(Self(text.to_owned())) } else { Err(Error::Malformed($what)) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

typed_id!(
    /// An organisation whose data are one isolation domain.
    TenantId, "ten_", "tenant id"
);
typed_id!(
    /// The pseudonym of a person or account that data are about. It is random, so it is no hash of a
    /// name; the customer's own reference is a [`SubjectRef`].
    SubjectId, "sub_", "subject id"
);
typed_id!(
    /// A group of subjects inside one tenant.
    GroupId, "grp_", "group id"
);
typed_id!(
    /// An API key's public part.
    KeyId, "key_", "key id"
);
typed_id!(
    /// A kept statement; its revisions share the id.
    MemoryId, "mem_", "memory id"
);
typed_id!(
    /// A conversation. It is unpredictable, and knowing it grants nothing.
    ConversationId, "con_", "conversation id"
);
typed_id!(
    /// An assembled context pack.
    PackId, "pac_", "pack id"
);
typed_id!(
    /// One read event of the ledger.
    ReadId, "rea_", "read id"
);
typed_id!(
    /// A registered source. It stays the same through all revisions.
    SourceId, "src_", "source id"
);
typed_id!(
    /// One revision of a source; a passage is named by it and a number.
    RevisionId, "rev_", "revision id"
);

/// The customer's own reference to a person, such as a login or a customer number. It is personal data:
/// it has no `Display` and its `Debug` shows nothing (I-12).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubjectRef(String);

impl SubjectRef {
    /// The most bytes a reference may have.
    pub const MAX_BYTES: usize = 256;

    /// The reference itself. Only the store's keyed lookup and the wire may need it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for SubjectRef {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        const WHAT: &str = "subject";
        // One person has one spelling: composed and decomposed letters are the same reference, so that an
        // erasure cannot miss the other one. The rules hold for what is kept: composing can lengthen a text.
        let text: String = text.nfc().collect();
        if text.trim().is_empty() {
            return Err(Error::Empty(WHAT));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(Error::TooLong { what: WHAT, max: Self::MAX_BYTES });
        }
        if text.contains(['*', '%']) {
            return Err(Error::Wildcard(WHAT));
        }
        if text.trim() != text || text.chars().any(|c| c.is_control() || is_invisible(c)) {
            return Err(Error::Unseen(WHAT));
        }
        Ok(Self(text))
    }
}

/// Characters that nobody sees and that would make two references look alike.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Debug for SubjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectRef(..)")
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The most bytes a name may have.
            pub const MAX_BYTES: usize = 64;

            /// The name as written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                parse_name(text, $what).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self, Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

fn parse_name(text: &str, what: &'static str) -> Result<String, Error> {
    if text.is_empty() {
        return Err(Error::Empty(what));
    }
    if text.contains(['*', '%']) {
        return Err(Error::Wildcard(what));
    }
    if text.len() > GroupName::MAX_BYTES {
        return Err(Error::TooLong { what, max: GroupName::MAX_BYTES });
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if starts && text.bytes().all(plain) { Ok(text.to_owned()) } else { Err(Error::Name(what)) }
}

name!(
    /// A group's name: lower-case letters, digits, `.`, `_`, `-`.
    GroupName, "group name"
);
name!(
    /// A tenant's name as the operator writes it: lower-case letters, digits, `.`, `_`, `-`.
    TenantName, "name"
);
name!(
    /// Why data are processed in this request; part of the evidence.
    Purpose, "purpose"
);

name!(
    /// The rule by which a summary was made: a name and a version of prompt and model.
    SummaryRule, "rule"
);

impl Default for Purpose {
    /// `assist`: the agent answers the subject's own question.
    fn default() -> Self {
        Self("assist".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::fixed::FixedEnv;

    #[test]
    fn an_id_survives_being_written_and_read() {
        let id = MemoryId::random(&FixedEnv::at(0));
        assert_eq!(id.as_str().parse::<MemoryId>(), Ok(id.clone()));
        assert!(id.as_str().starts_with("mem_"));
    }

    #[test]
    fn an_id_of_another_type_or_case_is_refused() {
        let id = MemoryId::random(&FixedEnv::at(0));
        assert!(id.as_str().parse::<ConversationId>().is_err());
        assert!(id.as_str().to_uppercase().parse::<MemoryId>().is_err());
        assert!("mem_".parse::<MemoryId>().is_err());
    }

    #[test]
    fn one_id_has_one_spelling() {
        let id = MemoryId::random(&FixedEnv::at(0));
        let mut twisted = id.as_str().to_owned();
        let last = twisted.pop().unwrap();
        twisted.push(if last == 'a' { 'b' } else { char::from(last as u8 + 1) });
        assert!(twisted.parse::<MemoryId>().is_err());
    }

    #[test]
    fn r_024_empty_and_wildcard_scopes_are_refused() {
        for (text, error) in [
            ("", Error::Empty("subject")),
            ("   ", Error::Empty("subject")),
            ("*", Error::Wildcard("subject")),
            ("user*", Error::Wildcard("subject")),
            ("%", Error::Wildcard("subject")),
            (" padded", Error::Unseen("subject")),
            ("two\nlines", Error::Unseen("subject")),
        ] {
            assert_eq!(text.parse::<SubjectRef>(), Err(error), "{text:?}");
        }
        assert!("Jürgen.Müller@example.org".parse::<SubjectRef>().is_ok());
    }

    #[test]
    fn one_person_has_one_spelling() {
        let composed: SubjectRef = "Müller".parse().unwrap();
        assert_eq!("Mu\u{308}ller".parse(), Ok(composed));
        assert_eq!("Mül\u{200b}ler".parse::<SubjectRef>(), Err(Error::Unseen("subject")));
    }

    #[test]
    fn a_reference_is_as_long_as_what_is_kept_of_it() {
        // This letter is one that NFC takes apart: three bytes become six.
        let grows = "\u{958}".repeat(SubjectRef::MAX_BYTES / 3);
        assert_eq!(grows.parse::<SubjectRef>(), Err(Error::TooLong { what: "subject", max: 256 }));
        let shrinks = "u\u{308}".repeat(SubjectRef::MAX_BYTES / 2);
        assert_eq!(shrinks.parse::<SubjectRef>(), "\u{fc}".repeat(SubjectRef::MAX_BYTES / 2).parse());
    }

    #[test]
    fn r_110_a_person_s_reference_does_not_show_in_debug_output() {
        let subject: SubjectRef = "anna@example.org".parse().unwrap();
        assert!(!format!("{subject:?}").contains("anna"));
    }

    #[test]
    fn names_are_lower_case_and_short() {
        assert!("support-de".parse::<GroupName>().is_ok());
        for bad in ["", "*", "Support", "a b", "-x", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<GroupName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn r_028_ids_carry_128_random_bits() {
        let env = FixedEnv::at(0);
        let ids: std::collections::BTreeSet<_> = (0..10_000).map(|_| ConversationId::random(&env)).collect();
        assert_eq!(ids.len(), 10_000);
        assert_eq!(RANDOM_BYTES * 8, 128);
    }
}
