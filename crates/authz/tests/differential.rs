//! A slow and obvious decision, written from sentences that a data protection officer can correct, is
//! compared with the real one: on every combination for `decide`, and on random input and random answers
//! of the directory for `authorize`. The sentences share nothing with the table in `role.rs`.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use merkwelt_authz::{
    Action, ActionName, ApiKey, Caller, Credential, CredentialSource, Decision, DenyReason, Fut, GrantError,
    GrantSource, Grants, Principal, Refusal, Request, Role, Scope, action, authenticate, authorize, decide,
};
use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_domain::memory::Owner;
use merkwelt_domain::{GrantEpoch, GroupId, KeyId, Purpose, SubjectId, SubjectRef, TenantId, Timestamp};
use proptest::prelude::*;

/// Who may do what. What no sentence allows is denied.
const SENTENCES: &str = "
Only an app or an agent may recall, assemble and read_pack.
Only an app or an agent may remember, correct, open_conversation and append_turn.
Only an app, an agent or a privacy_officer may read_memory, read_conversation and retract.
Only an app or a privacy_officer may delete_conversation.
Only an app or a tenant_admin may remember_shared.
Only a tenant_admin or a privacy_officer may read_directory.
Only a tenant_admin may manage_directory.
Only an instance_admin or a tenant_admin may manage_keys.
Only an instance_admin may manage_tenants.
Only an instance_admin, a tenant_admin, a privacy_officer or an auditor may read_evidence.
Only a privacy_officer may erase.
Only a tenant_admin, an app or a privacy_officer may read_sources.
Only a tenant_admin or an app may manage_sources.
Only an app or an agent may cite, store_answer and look_up_answer.
Only an app may check_authorization and hand_over.
Only an app or a tenant_admin may read_switch.
";

/// What makes no sense without a person it is about.
const ABOUT_SOMEBODY: &str = "remember, open_conversation, append_turn, read_conversation, hand_over, delete_conversation \
     and erase";

/// The words of a sentence that mean something.
fn words(text: &str) -> BTreeSet<&str> {
    text.split([' ', ',', '.', '\n'])
        .filter(|word| !matches!(*word, "" | "a" | "an" | "or" | "and"))
        .collect()
}

/// The sentences as (who, what).
fn sentences() -> Vec<(BTreeSet<&'static str>, BTreeSet<&'static str>)> {
    let lines = SENTENCES.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (who, what) = line.strip_prefix("Only ").and_then(|rest| rest.split_once(" may ")).unwrap();
            (words(who), words(what))
        })
        .collect()
}

/// One question: a key, whom it names, and what it wants.
#[derive(Debug, Clone)]
struct Ask {
    role: Role,
    bound_to: Option<SubjectId>,
    act_for: bool,
    named: Option<SubjectRef>,
    action: ActionName,
    needs_subject: bool,
}

impl Ask {
    fn decide(&self) -> Decision {
        decide(
            self.role,
            self.bound_to.as_ref(),
            self.act_for,
            self.named.as_ref(),
            self.action,
            self.needs_subject,
        )
    }

    /// The slow decision: read the sentences, then ask about the person.
    fn reference(&self) -> Decision {
        let allows = |(who, what): &(BTreeSet<&str>, BTreeSet<&str>)| {
            who.contains(self.role.name()) && what.contains(self.action.name())
        };
        if !sentences().iter().any(allows) {
            return Decision::Deny(DenyReason::Role);
        }
        if let Some(own) = &self.bound_to {
            // A bound key acts for its own subject and names nobody, whatever else it may do.
            if self.named.is_some() {
                Decision::Deny(DenyReason::ActFor)
            } else {
                Decision::Allow(Principal::Bound(own.clone()))
            }
        } else if let Some(other) = &self.named {
            if self.act_for {
                Decision::Allow(Principal::Named(other.clone()))
            } else {
                Decision::Deny(DenyReason::ActFor)
            }
        } else if self.needs_subject {
            Decision::Deny(DenyReason::NoSubject)
        } else {
            Decision::Allow(Principal::Nobody)
        }
    }
}

/// Ids that are the same in every run.
struct Cast {
    tenant: TenantId,
    anna: SubjectId,
    ben: SubjectId,
    groups: Vec<GroupId>,
    named: SubjectRef,
}

fn cast() -> Cast {
    let env = FixedEnv::at(0);
    Cast {
        tenant: TenantId::random(&env),
        anna: SubjectId::random(&env),
        ben: SubjectId::random(&env),
        groups: (0..4).map(|_| GroupId::random(&env)).collect(),
        named: "ben@example.org".parse().unwrap(),
    }
}

/// Every combination of what a decision depends on.
fn every_ask() -> Vec<Ask> {
    let cast = cast();
    let mut asks = Vec::new();
    for role in Role::ALL {
        for action in ActionName::ALL.iter().copied() {
            for bits in 0..16u8 {
                asks.push(Ask {
                    role,
                    action,
                    bound_to: (bits & 1 != 0).then(|| cast.anna.clone()),
                    act_for: bits & 2 != 0,
                    named: (bits & 4 != 0).then(|| cast.named.clone()),
                    needs_subject: bits & 8 != 0,
                });
            }
        }
    }
    asks
}

/// Polls a future that never waits.
fn ready<F: Future + Send>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the sources of these tests answer at once"),
    }
}

/// A registry with one key.
struct OneKey(Credential);

impl CredentialSource for OneKey {
    fn credential<'a>(&'a self, key: &'a KeyId) -> Fut<'a, Option<Credential>> {
        Box::pin(async move { (*key == self.0.key).then(|| self.0.clone()) })
    }
}

fn caller(ask: &Ask, tenant: &TenantId) -> Caller {
    let presented = ApiKey::random(&FixedEnv::seeded(0, 9));
    let source = OneKey(Credential {
        key: presented.id().clone(),
        digest: presented.digest(),
        tenant: tenant.clone(),
        role: ask.role,
        subject: ask.bound_to.clone(),
        act_for: ask.act_for,
        expires_at: None,
        revoked_at: None,
    });
    ready(authenticate(&source, &presented, Timestamp::EPOCH)).unwrap()
}

fn request(ask: &Ask, tenant: &TenantId) -> Request {
    Request::new(caller(ask, tenant), ask.named.clone(), Purpose::default())
}

type Answer = Result<Option<Grants>, GrantError>;

/// A directory that says what it was told to say, and remembers what it was asked.
struct Directory {
    answer: Mutex<Answer>,
    asked: Mutex<Vec<(TenantId, Principal)>>,
}

impl Directory {
    fn saying(answer: Answer) -> Self {
        Self { answer: Mutex::new(answer), asked: Mutex::new(Vec::new()) }
    }

    fn now_say(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> Vec<(TenantId, Principal)> {
        self.asked.lock().unwrap().clone()
    }
}

impl GrantSource for Directory {
    fn grants<'a>(&'a self, tenant: &'a TenantId, principal: &'a Principal) -> Fut<'a, Answer> {
        self.asked.lock().unwrap().push((tenant.clone(), principal.clone()));
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move { answer })
    }
}

fn grants(epoch: u64, subject: Option<&SubjectId>, groups: &[GroupId]) -> Grants {
    Grants {
        epoch: GrantEpoch::from_number(epoch),
        subject: subject.cloned(),
        groups: groups.iter().cloned().collect(),
    }
}

/// What a capability said about itself. The capability is gone by then: it borrows the request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Minted {
    scope: Scope,
    epoch: GrantEpoch,
    action: ActionName,
    key: KeyId,
    key_is_personal: bool,
    purpose: Purpose,
}

fn mint<A: Action>(source: &dyn GrantSource, request: &Request) -> Result<Minted, Refusal> {
    let auth = ready(authorize::<A>(source, request))?;
    Ok(Minted {
        scope: auth.scope().clone(),
        epoch: auth.epoch(),
        action: auth.action(),
        key: auth.key().clone(),
        key_is_personal: auth.key_is_personal(),
        purpose: auth.purpose().clone(),
    })
}

/// Calls `authorize` with the type of an action that is known as data.
macro_rules! by_name {
    ($($name:ident)*) => {
        fn ask_for(action: ActionName, source: &dyn GrantSource, request: &Request) -> Result<Minted, Refusal> {
            match action { $(ActionName::$name => mint::<action::$name>(source, request),)* }
        }

        fn needs_subject(action: ActionName) -> bool {
            match action { $(ActionName::$name => action::$name::NEEDS_SUBJECT,)* }
        }
    };
}

by_name! {
    Recall Assemble ReadMemory Remember RememberShared Correct Retract OpenConversation AppendTurn
    ReadConversation HandOver ReadSwitch DeleteConversation ReadPack ReadDirectory ManageDirectory ManageKeys ManageTenants
    ReadEvidence Erase ReadSources ManageSources Cite StoreAnswer LookUpAnswer CheckAuthorization
}

/// A key that may recall for whom it names.
fn app_for(named: &SubjectRef) -> Ask {
    Ask {
        role: Role::App,
        bound_to: None,
        act_for: true,
        named: Some(named.clone()),
        action: ActionName::Recall,
        needs_subject: false,
    }
}

#[test]
fn the_sentences_speak_of_every_role_and_of_every_action_once() {
    let (mut roles, mut actions) = (BTreeSet::new(), Vec::new());
    for (who, what) in sentences() {
        roles.extend(who);
        actions.extend(what);
    }
    let known: BTreeSet<_> = Role::ALL.iter().map(|role| role.name()).collect();
    assert_eq!(roles, known);
    actions.sort_unstable();
    let mut known: Vec<_> = ActionName::ALL.iter().map(|action| action.name()).collect();
    known.sort_unstable();
    assert_eq!(actions, known);
}

#[test]
fn r_031_every_combination_is_decided_as_the_sentences_say() {
    let asks = every_ask();
    assert_eq!(asks.len(), 6 * 26 * 2 * 2 * 2 * 2, "a role or an action came or went: revise the sentences");
    for ask in asks {
        assert_eq!(ask.decide(), ask.reference(), "{ask:?}");
    }
}

#[test]
fn r_031_reading_writing_and_erasing_pass_the_same_door() {
    let cast = cast();
    let about_somebody = words(ABOUT_SOMEBODY);
    for mut ask in every_ask() {
        ask.needs_subject = about_somebody.contains(ask.action.name());
        assert_eq!(needs_subject(ask.action), ask.needs_subject, "{}", ask.action.name());
        let answered = match ask.reference() {
            Decision::Allow(Principal::Bound(bound)) => Some(bound),
            Decision::Allow(Principal::Named(_)) => Some(cast.ben.clone()),
            Decision::Allow(Principal::Nobody) | Decision::Deny(_) => None,
        };
        let directory = Directory::saying(Ok(Some(grants(1, answered.as_ref(), &[]))));
        let outcome = ask_for(ask.action, &directory, &request(&ask, &cast.tenant));
        match ask.reference() {
            Decision::Allow(_) => assert_eq!(outcome.unwrap().action, ask.action, "{ask:?}"),
            Decision::Deny(reason) => {
                let Err(Refusal::Denied(denied)) = outcome else { panic!("{ask:?} got {outcome:?}") };
                assert_eq!((denied.reason(), denied.action()), (reason, ask.action), "{ask:?}");
            }
        }
    }
}

#[test]
fn r_029_a_withdrawn_membership_is_gone_from_the_next_capability() {
    let cast = cast();
    let request = request(&app_for(&cast.named), &cast.tenant);
    let directory = Directory::saying(Ok(Some(grants(7, Some(&cast.ben), &cast.groups[..2]))));
    let before = mint::<action::Recall>(&directory, &request).unwrap();
    assert!(before.scope.sees(&Owner::Group(cast.groups[1].clone())));

    directory.now_say(Ok(Some(grants(8, Some(&cast.ben), &cast.groups[..1]))));
    let after = mint::<action::Recall>(&directory, &request).unwrap();
    assert!(after.scope.sees(&Owner::Group(cast.groups[0].clone())));
    assert!(!after.scope.sees(&Owner::Group(cast.groups[1].clone())));
    assert!(before.epoch < after.epoch, "a store tells the older capability by its epoch");
}

#[test]
fn r_029_a_suspended_subject_gets_nothing_on_the_next_request() {
    let cast = cast();
    let request = request(&app_for(&cast.named), &cast.tenant);
    let directory = Directory::saying(Ok(Some(grants(1, Some(&cast.ben), &cast.groups))));
    assert!(mint::<action::Recall>(&directory, &request).is_ok());
    directory.now_say(Ok(None));
    let Err(Refusal::Denied(denied)) = mint::<action::Recall>(&directory, &request) else {
        panic!("a suspended subject was served")
    };
    assert_eq!(denied.reason(), DenyReason::NoGrants);
    assert_eq!(directory.asked().len(), 2, "every request asks the directory again");
}

#[test]
fn r_035_a_group_named_in_a_request_field_is_no_membership() {
    let cast = cast();
    let wanted = &cast.groups[3];
    let ask = app_for(&wanted.as_str().parse().unwrap());
    let directory = Directory::saying(Ok(Some(grants(1, Some(&cast.ben), &cast.groups[..1]))));
    let minted = mint::<action::Recall>(&directory, &request(&ask, &cast.tenant)).unwrap();
    assert_eq!(minted.scope.groups(), &BTreeSet::from([cast.groups[0].clone()]));
    assert!(!minted.scope.sees(&Owner::Group(wanted.clone())));
}

#[test]
fn r_035_a_directory_that_cannot_be_asked_grants_nothing_and_denies_nothing() {
    let cast = cast();
    let directory = Directory::saying(Err(GrantError::Unavailable));
    let outcome = mint::<action::Recall>(&directory, &request(&app_for(&cast.named), &cast.tenant));
    assert_eq!(outcome, Err(Refusal::Unavailable(GrantError::Unavailable)));
}

/// A directory of two tenants with two people each, every one of them alone in a group.
struct Book(BTreeMap<(TenantId, SubjectId), GroupId>);

impl GrantSource for Book {
    fn grants<'a>(&'a self, tenant: &'a TenantId, principal: &'a Principal) -> Fut<'a, Answer> {
        let found = match principal {
            Principal::Bound(subject) => self.0.get_key_value(&(tenant.clone(), subject.clone())),
            Principal::Named(_) | Principal::Nobody => None,
        };
        let found = found.map(|((_, subject), group)| grants(1, Some(subject), std::slice::from_ref(group)));
        Box::pin(async move { Ok(found) })
    }
}

/// Whether one person of one tenant may do `action` with a key of `role`; if so, that the scope is theirs.
fn is_allowed_alone(
    book: &Book,
    tenant: &TenantId,
    person: &SubjectId,
    role: Role,
    action: ActionName,
) -> bool {
    let bound_to = Some(person.clone());
    let ask = Ask { role, bound_to, act_for: false, named: None, action, needs_subject: false };
    match ask_for(action, book, &request(&ask, tenant)) {
        Ok(minted) => {
            for ((of, who), group) in &book.0 {
                let theirs = (of, who) == (tenant, person);
                assert_eq!(minted.scope.sees(&Owner::Group(group.clone())), theirs, "{action:?}");
                assert!(who == person || !minted.scope.sees(&Owner::Subject(who.clone())), "{action:?}");
            }
            assert_eq!((minted.scope.tenant(), minted.scope.subject()), (tenant, Some(person)));
            true
        }
        Err(refusal) => {
            assert_eq!(denial(Err(refusal)), Some((tenant.clone(), action, DenyReason::Role)));
            false
        }
    }
}

#[test]
fn r_036_every_operation_is_allowed_and_denied_for_two_people_in_two_tenants_at_once() {
    let (cast, other) = (cast(), TenantId::random(&FixedEnv::seeded(0, 2)));
    let mut free = cast.groups.into_iter();
    let mut book = Book(BTreeMap::new());
    for tenant in [&cast.tenant, &other] {
        for person in [&cast.anna, &cast.ben] {
            book.0.insert((tenant.clone(), person.clone()), free.next().unwrap());
        }
    }
    std::thread::scope(|scope| {
        for (tenant, person) in book.0.keys() {
            let book = &book;
            scope.spawn(move || {
                for action in ActionName::ALL.iter().copied() {
                    let may = |role| is_allowed_alone(book, tenant, person, role, action);
                    let allowed = Role::ALL.into_iter().filter(|role| may(*role)).count();
                    assert!(0 < allowed && allowed < Role::ALL.len(), "{action:?}");
                }
            });
        }
    });
}

/// Whether a scope lets see and write what `owner` owns, said slowly.
fn reference_scope(role: Role, answered: &Grants, owner: &Owner) -> (bool, bool) {
    let shares = matches!(role, Role::App | Role::TenantAdmin);
    match owner {
        Owner::Tenant => (true, shares),
        Owner::Subject(subject) => {
            let own = answered.subject.iter().any(|me| me == subject);
            (own, own)
        }
        Owner::Group(group) => {
            let member = answered.groups.iter().any(|mine| mine == group);
            let for_nobody = answered.subject.is_none();
            (member, shares && (member || for_nobody))
        }
    }
}

fn asks() -> impl Strategy<Value = Ask> {
    proptest::sample::select(every_ask()).prop_map(|mut ask| {
        ask.needs_subject = needs_subject(ask.action);
        ask
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    let groups = proptest::sample::subsequence(cast().groups, 0..=4);
    let subject = proptest::option::of(proptest::sample::select(vec![cast().anna, cast().ben]));
    let granted = (any::<u64>(), subject, groups)
        .prop_map(|(epoch, subject, groups)| Ok(Some(grants(epoch, subject.as_ref(), &groups))));
    prop_oneof![6 => granted, 1 => Just(Ok(None)), 1 => Just(Err(GrantError::Unavailable))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn r_029_a_capability_holds_what_the_directory_says_now_and_nothing_else(
        ask in asks(),
        answer in answers(),
        purpose in "[a-z][a-z_]{0,8}",
    ) {
        let cast = cast();
        let purpose: Purpose = purpose.parse().unwrap();
        let request = Request::new(caller(&ask, &cast.tenant), ask.named.clone(), purpose.clone());
        let directory = Directory::saying(answer.clone());
        let outcome = ask_for(ask.action, &directory, &request);

        let principal = match ask.reference() {
            Decision::Allow(principal) => principal,
            Decision::Deny(reason) => {
                prop_assert_eq!(directory.asked(), vec![], "a denial must not look anybody up");
                prop_assert_eq!(denial(outcome), Some((cast.tenant, ask.action, reason)));
                return Ok(());
            }
        };
        prop_assert_eq!(directory.asked(), vec![(cast.tenant.clone(), principal.clone())]);
        let answered = match answer {
            Ok(Some(answered)) => answered,
            Ok(None) => {
                prop_assert_eq!(denial(outcome), Some((cast.tenant, ask.action, DenyReason::NoGrants)));
                return Ok(());
            }
            Err(error) => {
                prop_assert_eq!(outcome, Err(Refusal::Unavailable(error)));
                return Ok(());
            }
        };
        let honest = match &principal {
            Principal::Bound(bound) => answered.subject.as_ref() == Some(bound),
            Principal::Named(_) => answered.subject.is_some(),
            Principal::Nobody => answered.subject.is_none(),
        };
        if !honest {
            // An answer for somebody else than was asked for is not believed.
            prop_assert_eq!(denial(outcome), Some((cast.tenant, ask.action, DenyReason::NoGrants)));
            return Ok(());
        }
        let minted = outcome.unwrap();
        prop_assert_eq!(minted.scope.tenant(), &cast.tenant);
        prop_assert_eq!(minted.scope.subject(), answered.subject.as_ref());
        prop_assert_eq!(minted.scope.groups(), &answered.groups);
        prop_assert_eq!(minted.epoch, answered.epoch);
        prop_assert_eq!(minted.action, ask.action);
        prop_assert_eq!(&minted.key, request.caller().key());
        prop_assert_eq!(minted.key_is_personal, ask.bound_to.is_some());
        prop_assert_eq!(&minted.purpose, &purpose);
    }

    #[test]
    fn r_035_a_scope_sees_and_writes_what_its_directory_answer_allows(ask in asks(), answer in answers()) {
        let cast = cast();
        let directory = Directory::saying(answer.clone());
        let outcome = ask_for(ask.action, &directory, &request(&ask, &cast.tenant));
        let (Ok(minted), Ok(Some(answered))) = (outcome, answer) else { return Ok(()) };
        let mut owners = vec![Owner::Tenant, Owner::Subject(cast.anna), Owner::Subject(cast.ben)];
        owners.extend(cast.groups.into_iter().map(Owner::Group));
        for owner in owners {
            let seen = (minted.scope.sees(&owner), minted.scope.writes(&owner));
            prop_assert_eq!(seen, reference_scope(ask.role, &answered, &owner), "{:?}", owner);
        }
    }
}

fn denial(outcome: Result<Minted, Refusal>) -> Option<(TenantId, ActionName, DenyReason)> {
    match outcome {
        Err(Refusal::Denied(denied)) => Some((denied.tenant().clone(), denied.action(), denied.reason())),
        Ok(_) | Err(Refusal::Unavailable(_)) => None,
    }
}
