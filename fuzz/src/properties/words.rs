//! Single words of a request: ids, names, times, slots, texts, keys. What is accepted has one spelling, and
//! reading it again gives the same.

use std::fmt::Debug;
use std::str::FromStr;

use merkwelt_authz::{ApiKey, Role};
use merkwelt_domain::conversation::Speaker;
use merkwelt_domain::memory::{Author, Kind, Metadata, NoExpiryReason, Pointer, Slot};
use merkwelt_domain::text::{Error as TextError, holds_mark};
use merkwelt_domain::{
    Content, ConversationId, GroupId, GroupName, KeyId, MemoryId, PackId, Purpose, ReadId, SubjectId,
    SubjectRef, TenantId, TenantName, Timestamp,
};
use merkwelt_ledger::{Token, UtcMillis};
use merkwelt_store::change::IdempotencyKey;
use merkwelt_store::query::Cursor;

/// One text as every word there is.
pub(crate) fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    spelled::<TenantId>(text, TenantId::as_str);
    spelled::<SubjectId>(text, SubjectId::as_str);
    spelled::<GroupId>(text, GroupId::as_str);
    spelled::<KeyId>(text, KeyId::as_str);
    spelled::<MemoryId>(text, MemoryId::as_str);
    spelled::<ConversationId>(text, ConversationId::as_str);
    spelled::<PackId>(text, PackId::as_str);
    spelled::<ReadId>(text, ReadId::as_str);
    spelled::<GroupName>(text, GroupName::as_str);
    spelled::<TenantName>(text, TenantName::as_str);
    spelled::<Purpose>(text, Purpose::as_str);
    spelled::<Token>(text, Token::as_str);
    spelled::<IdempotencyKey>(text, IdempotencyKey::as_str);
    spelled::<Kind>(text, |kind| kind.name());
    spelled::<Author>(text, |author| author.name());
    spelled::<NoExpiryReason>(text, |reason| reason.name());
    spelled::<Role>(text, |role| role.name());
    if text != "user" {
        spelled::<Speaker>(text, |speaker| speaker.name());
    }
    if let Ok(key) = text.parse::<ApiKey>() {
        assert_eq!(key.reveal(), text);
        assert!(!format!("{key:?}").contains(&text[text.len() - 52..]), "the secret is shown");
    }
    if let Ok(cursor) = Cursor::parse(text) {
        assert_eq!(cursor.as_str(), text);
    }
    times(text);
    texts(text);
    metadata(bytes);
}

/// What is accepted is spelled as it was sent.
fn spelled<T: FromStr>(text: &str, as_str: impl Fn(&T) -> &str) {
    if let Ok(word) = text.parse::<T>() {
        assert_eq!(as_str(&word), text);
    }
}

fn times(text: &str) {
    if let Ok(time) = text.parse::<Timestamp>() {
        let written = time.to_string();
        assert_eq!(written.parse(), Ok(time), "{text:?} is written as {written:?}");
        assert_eq!(UtcMillis::parse(&written).map(UtcMillis::unix_ms), Ok(time.millis()));
    }
    if let Ok(time) = UtcMillis::parse(text) {
        assert_eq!(time.to_string(), text);
        // The domain ends a day earlier than the ledger, so that a time has its year everywhere on earth.
        if let Ok(parsed) = text.parse::<Timestamp>() {
            assert_eq!(parsed.millis(), time.unix_ms());
        } else {
            assert!(text.starts_with("9999-12-3"), "{text:?}");
        }
    }
}

fn texts(text: &str) {
    again(text.parse::<SubjectRef>(), |subject| {
        assert!(subject.expose().len() <= SubjectRef::MAX_BYTES);
        subject.expose().parse()
    });
    again(text.parse::<Slot>(), |slot| slot.expose().parse());
    const MAX: usize = 512;
    again(Content::question(text, MAX), |content| {
        assert!(content.expose().len() <= MAX);
        Content::question(content.expose(), MAX)
    });
    again(Content::to_keep(text, MAX), |content| {
        assert!(!holds_mark(content.expose()), "a kept text holds a mark");
        assert!(Content::question(text, MAX).is_ok());
        Content::to_keep(content.expose(), MAX)
    });
    if Content::to_keep(text, MAX) == Err(TextError::Recalled) {
        assert!(holds_mark(text));
    }
    if let Ok(content) = Content::question(text, MAX) {
        let folded = content.folded();
        let folded_again = Content::question(&folded, MAX).expect("folding loses white space only");
        assert_eq!(folded_again.folded(), folded);
    }
    let (uri, resolve) = text.split_once('\n').unwrap_or((text, "tool:x"));
    if let Ok(pointer) = Pointer::new(uri, resolve) {
        assert_eq!((pointer.uri(), pointer.resolve()), (uri, resolve));
        assert!(!holds_mark(pointer.uri()));
    }
}

/// What was accepted and is read again is the same.
fn again<T: PartialEq + Debug, E: Debug>(read: Result<T, E>, reread: impl Fn(&T) -> Result<T, E>) {
    if let Ok(word) = read {
        let second = reread(&word).expect("an accepted word is accepted again");
        assert!(second == word, "a word changes when it is read again");
    }
}

fn metadata(bytes: &[u8]) {
    let Ok(map) = serde_json::from_slice(bytes) else { return };
    let Ok(metadata) = Metadata::new(map) else { return };
    let written = serde_json::to_vec(metadata.expose()).unwrap();
    assert!(written.len() <= 4096);
    let again = Metadata::new(serde_json::from_slice(&written).unwrap()).expect("accepted again");
    assert!(again == metadata, "metadata change when they are kept");
}
