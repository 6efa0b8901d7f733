//! What a presented key proves, and what a refused one gives away: nothing.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::{GrantEpoch, Purpose};
use proptest::prelude::*;

use super::*;
use crate::{GrantError, GrantSource, Grants, Principal, Refusal, Request, action, authorize};

const NOW: i64 = 1_000_000;

/// A registry as a store would keep it.
struct Registry(Vec<Credential>);

impl CredentialSource for Registry {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move { self.0.iter().find(|kept| kept.key == *key).cloned() })
    }
}

fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the registries of these tests answer at once"),
    }
}

fn key(seed: u64) -> ApiKey {
    ApiKey::random(&FixedEnv::seeded(NOW, seed))
}

fn tenant(seed: u64) -> TenantId {
    TenantId::random(&FixedEnv::seeded(NOW, seed))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A live credential of `key` for an app of `tenant`.
fn credential(key: &ApiKey, tenant: &TenantId) -> Credential {
    Credential {
        key: key.id().clone(),
        digest: key.digest(),
        tenant: tenant.clone(),
        role: Role::App,
        subject: None,
        act_for: true,
        expires_at: None,
        revoked_at: None,
    }
}

fn present(registry: &Registry, key: &ApiKey) -> Result<Caller, Unauthenticated> {
    ready(authenticate(registry, key, at(NOW)))
}

/// The public part of one key with the secret of another, as somebody would type it.
fn spliced(id: &ApiKey, secret: &ApiKey) -> ApiKey {
    let (id, secret) = (id.reveal(), secret.reveal());
    format!("{}_{}", id.rsplit_once('_').unwrap().0, secret.rsplit_once('_').unwrap().1).parse().unwrap()
}

#[test]
fn a_live_key_proves_exactly_what_its_credential_says() {
    let key = key(1);
    let bound = SubjectId::random(&FixedEnv::seeded(NOW, 5));
    for role in Role::ALL {
        for (subject, act_for) in [(None, true), (None, false), (Some(bound.clone()), false)] {
            let kept = Credential { role, subject: subject.clone(), act_for, ..credential(&key, &tenant(2)) };
            let caller = present(&Registry(vec![kept]), &key).unwrap();
            assert_eq!((caller.key(), caller.tenant(), caller.role()), (key.id(), &tenant(2), role));
            assert_eq!((caller.binding(), caller.may_act_for()), (subject.as_ref(), act_for));
        }
    }
}

#[test]
fn r_034_unknown_wrong_expired_and_revoked_keys_are_refused_alike() {
    let known = key(1);
    let live = credential(&known, &tenant(2));
    let registry = |kept: Credential| Registry(vec![kept]);
    let refusals = [
        ("unknown", present(&Registry(vec![]), &known)),
        ("wrong", present(&registry(live.clone()), &spliced(&known, &key(3)))),
        ("expired", present(&registry(Credential { expires_at: Some(at(NOW - 1)), ..live.clone() }), &known)),
        ("ends now", present(&registry(Credential { expires_at: Some(at(NOW)), ..live.clone() }), &known)),
        ("revoked", present(&registry(Credential { revoked_at: Some(at(NOW - 1)), ..live.clone() }), &known)),
        ("revoked later", present(&registry(Credential { revoked_at: Some(at(NOW + 1)), ..live }), &known)),
    ];
    for (why, refusal) in refusals {
        let refusal = refusal.err();
        assert_eq!(refusal, Some(Unauthenticated), "{why}");
        assert_eq!(refusal.map(|error| error.to_string()).as_deref(), Some("no valid key"), "{why}");
    }
}

#[test]
fn a_key_works_until_the_moment_before_its_end() {
    let key = key(1);
    let kept = Credential { expires_at: Some(at(NOW + 1)), ..credential(&key, &tenant(2)) };
    let registry = Registry(vec![kept]);
    assert!(ready(authenticate(&registry, &key, at(NOW))).is_ok());
    assert!(ready(authenticate(&registry, &key, at(NOW + 1))).is_err());
}

#[test]
fn a_digest_matches_itself_and_nothing_that_differs_in_one_bit() {
    let digest = key(1).digest();
    assert!(digest.matches(&SecretDigest::from_bytes(*digest.as_bytes())));
    for bit in 0..256 {
        let mut bytes = *digest.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(!digest.matches(&SecretDigest::from_bytes(bytes)), "bit {bit}");
    }
}

#[test]
fn an_unknown_key_is_refused_even_if_its_digest_were_the_stand_in() {
    // The stand-in digest of an unknown key is all zeros; a credential that holds it proves nothing.
    let key = key(1);
    let kept = Credential { digest: SecretDigest::from_bytes([0; 32]), ..credential(&key, &tenant(2)) };
    assert_eq!(present(&Registry(vec![kept]), &key).err(), Some(Unauthenticated));
}

#[test]
fn the_digest_is_the_sha_256_of_the_secret_s_letters() {
    // `printf a%.0s $(seq 52) | sha256sum`
    const EXPECTED: &str = "6c1b3dc7a706b9dc81352a6716b9c666c608d8626272c64b914ab05572fc6e84";
    let id = key(1).reveal();
    let key: ApiKey = format!("{}_{}", id.rsplit_once('_').unwrap().0, "a".repeat(52)).parse().unwrap();
    let hex: String = key.digest().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, EXPECTED);
}

#[test]
fn malformed_keys_are_refused_without_repeating_them() {
    let good = key(1).reveal();
    let (head, secret) = good.rsplit_once('_').unwrap();
    let id = head.strip_prefix("mk_").unwrap();
    assert_eq!((good.len(), id.len(), secret.len()), (3 + 26 + 1 + 52, 26, 52));
    let bad = [
        String::new(),
        "mk_".to_owned(),
        "mk__".to_owned(),
        head.to_owned(),
        format!("{head}_"),
        format!("mk_{secret}"),
        format!("mk_{secret}_{id}"),
        format!("{id}_{secret}"),
        format!("MK_{id}_{secret}"),
        format!("sk_{id}_{secret}"),
        format!("mk_key_{id}_{secret}"),
        format!("mk_{}_{secret}", &id[1..]),
        format!("mk_{}_{secret}", id.to_uppercase()),
        format!("{head}_{}", &secret[1..]),
        format!("{head}_{secret}a"),
        format!("{head}_{}", secret.to_uppercase()),
        format!("{head}_{}1", &secret[1..]),
        format!("{head}_{}8", &secret[1..]),
        format!("{head}_{}_", &secret[1..]),
        format!("{head}_{}ä", &secret[2..]),
        format!(" {good}"),
        format!("{good}\n"),
        format!("Bearer {good}"),
        format!("{good}_{secret}"),
    ];
    for text in bad {
        let error = text.parse::<ApiKey>().expect_err(&text);
        assert_eq!(error.to_string(), "not an API key");
    }
    assert!(good.parse::<ApiKey>().is_ok());
}

#[test]
fn r_110_no_debug_output_shows_a_secret() {
    let key = key(1);
    let revealed = key.reveal();
    let secret = revealed.rsplit_once('_').unwrap().1;
    let registry = Registry(vec![credential(&key, &tenant(2))]);
    let caller = present(&registry, &key).unwrap();
    let shown = format!("{key:?} {key:#?} {caller:?} {:?}", registry.0);
    assert!(shown.contains(key.id().as_str()), "the public part names the key in a log: {shown}");
    // A part of the secret would be too much as well.
    for at in 0..secret.len() - 8 {
        assert!(!shown.contains(&secret[at..at + 8]), "{shown}");
    }
}

#[test]
fn two_keys_share_neither_their_public_part_nor_their_secret() {
    let env = FixedEnv::at(NOW);
    let (one, other) = (ApiKey::random(&env), ApiKey::random(&env));
    assert_ne!(one.id(), other.id());
    assert_ne!(one.digest(), other.digest());
}

#[test]
fn r_028_the_public_part_of_another_tenant_s_key_is_no_way_in() {
    let (ours, theirs) = (key(1), key(2));
    let registry = Registry(vec![credential(&ours, &tenant(10)), credential(&theirs, &tenant(20))]);
    assert_eq!(present(&registry, &spliced(&theirs, &ours)).err(), Some(Unauthenticated));
    assert_eq!(present(&registry, &spliced(&ours, &theirs)).err(), Some(Unauthenticated));
    assert_eq!(present(&registry, &ours).unwrap().tenant(), &tenant(10));
    assert_eq!(present(&registry, &theirs).unwrap().tenant(), &tenant(20));
}

/// A directory that knows everybody everywhere, and remembers in which tenant it was asked.
struct Everywhere(Mutex<Vec<TenantId>>);

impl GrantSource for Everywhere {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        self.0.lock().unwrap().push(tenant.clone());
        let named = matches!(principal, Principal::Named(_));
        let (epoch, subject) = (GrantEpoch::default(), named.then(|| SubjectId::random(&FixedEnv::at(NOW))));
        Box::pin(async move { Ok(Some(Grants { epoch, subject, groups: [].into() })) })
    }
}

#[test]
fn r_035_a_key_of_one_tenant_cannot_name_another_tenant() {
    let key = key(1);
    let (own, other) = (tenant(10), tenant(20));
    let registry = Registry(vec![credential(&key, &own)]);
    let directory = Everywhere(Mutex::new(Vec::new()));
    // All a request can say is a subject and a purpose; a tenant's id in the first stays a subject.
    for named in [None, Some(other.as_str().parse().unwrap()), Some("../ten_other/anna".parse().unwrap())] {
        let request = Request::new(present(&registry, &key).unwrap(), named, Purpose::default());
        let auth = ready(authorize::<action::Recall>(&directory, &request)).unwrap();
        assert_eq!(auth.scope().tenant(), &own);
    }
    assert_eq!(*directory.0.lock().unwrap(), [own.clone(), own.clone(), own]);
}

#[test]
fn a_request_and_its_capability_say_what_for() {
    let (key, directory) = (key(1), Everywhere(Mutex::new(Vec::new())));
    let registry = Registry(vec![credential(&key, &tenant(10))]);
    let purpose: Purpose = "support".parse().unwrap();
    let request = Request::new(present(&registry, &key).unwrap(), None, purpose.clone());
    assert_eq!(request.purpose(), &purpose);
    let auth = ready(authorize::<action::Recall>(&directory, &request)).unwrap();
    assert_eq!(auth.purpose(), &purpose);
}

#[test]
fn l_19_a_denial_knows_whose_key_it_was() {
    let (key, directory) = (key(1), Everywhere(Mutex::new(Vec::new())));
    let person = SubjectId::random(&FixedEnv::seeded(NOW, 3));
    for bound in [None, Some(person)] {
        let kept = Credential { subject: bound.clone(), act_for: false, ..credential(&key, &tenant(10)) };
        let caller = present(&Registry(vec![kept]), &key).unwrap();
        let request = Request::new(caller, Some("ben".parse().unwrap()), Purpose::default());
        match ready(authorize::<action::Recall>(&directory, &request)) {
            Err(Refusal::Denied(denied)) => assert_eq!(denied.bound_subject(), bound.as_ref()),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn digests_that_differ_twice_in_the_same_way_are_not_equal() {
    let (kept, mut other) = ([7; 32], [7; 32]);
    (other[3], other[20]) = (6, 6);
    assert!(!SecretDigest::from_bytes(kept).matches(&SecretDigest::from_bytes(other)));
    assert!(SecretDigest::from_bytes(kept).matches(&SecretDigest::from_bytes(kept)));
}

proptest! {
    #[test]
    fn a_key_survives_being_shown_once_and_typed_in(seed in any::<u64>()) {
        let key = key(seed);
        let typed: ApiKey = key.reveal().parse().unwrap();
        prop_assert_eq!(&typed, &key);
        prop_assert_eq!(typed.digest(), key.digest());
        prop_assert!(present(&Registry(vec![credential(&key, &tenant(2))]), &typed).is_ok());
    }

    #[test]
    fn a_key_with_one_letter_changed_is_refused(seed in any::<u64>(), place in 0..52usize, letter in "[a-z2-7]") {
        let key = key(seed);
        let mut text = key.reveal();
        let start = text.len() - 52 + place;
        prop_assume!(text[start..=start] != letter);
        text.replace_range(start..=start, &letter);
        let registry = Registry(vec![credential(&key, &tenant(2))]);
        prop_assert_eq!(present(&registry, &text.parse().unwrap()).err(), Some(Unauthenticated));
    }

    #[test]
    fn no_text_makes_the_parser_fail_otherwise(text in any::<String>(), tail in "\\PC{0,90}") {
        let _ = text.parse::<ApiKey>();
        let _ = format!("mk_{tail}").parse::<ApiKey>();
    }
}
