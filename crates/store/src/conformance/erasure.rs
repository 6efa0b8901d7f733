//! Forgotten: an erasure reaches everything of the subject, leaves everything of the others, and is proven by
//! looking.

use merkwelt_authz::{ApiKey, Refusal, Role, action, authorize};
use merkwelt_domain::{ConversationId, PackId, ReadId, SubjectId};

use super::actor::{Actor, actor, app, group, later, parse, tenant_admin, texts};
use super::failure::{ensure, refused, same};
use super::note::{ask, note, reading};
use super::subject::{Subject, new_key};
use super::{Failure, block};
use crate::change::{Batch, Idempotency, NewOwner, Write};
use crate::error::Error;
use crate::ports::{NewKey, Residue};
use crate::query::{Key, Turns};
use crate::record::{Pack, Record};

fn officer<'s>(s: &'s dyn Subject, who: &'s str) -> Actor<'s> {
    actor(s, &s.keys().officer, Some(who))
}

/// Leaves something of a person in every place there is: two memories, one of them of two revisions, two
/// turns, an answer under an idempotency key, a pack, a membership.
fn live(s: &dyn Subject, who: &str) -> Result<(SubjectId, ConversationId, PackId), Failure> {
    let person = app(s, who);
    tenant_admin(s).add("team", who)?;
    let conversation = person.open()?;
    person.say(&conversation, &format!("{who} speaks of violins"))?;
    person.say(&conversation, &format!("{who} speaks again"))?;
    let id = person.keep(note(&format!("{who} plays the violin")).vector([1.0, 0.0, 0.0]))?;
    person.correct(&id, None, note(&format!("{who} plays two violins")).vector([1.0, 0.0, 0.0]))?;
    let at = s.env_now();
    let idempotency =
        Idempotency { key: parse(&format!("k-{who}"))?, request: [1; 32], keep_until: later(s, 99_999) };
    let new = note(&format!("{who} likes tea")).said_in(&conversation).build(s)?;
    let _ = person.commit(vec![Write::Remember(new)], Some(idempotency))?;
    person.keep(note(&format!("{who} shares")).owner(NewOwner::Tenant).said_in(&conversation))?;
    let pack = Pack {
        id: PackId::random(s.env()),
        read_id: ReadId::random(s.env()),
        at,
        composition: vec![1],
        expires_at: later(s, 99_999),
    };
    let found: Vec<Record> =
        person.recall(&ask(s, "violin")?)?.candidates.into_iter().map(|c| c.record).collect();
    let record = reading(s, &found, Some(pack.clone()))?;
    let _ = person
        .act::<action::Assemble, _>(|pass| block::on(s.backend().commit(Batch::read(pass, record, at))))?;
    Ok((person.id()?, conversation, pack.id))
}

/// After it nothing is left of the subject, everything is left of the others, and the others' key would find
/// a residue if there were one.
pub fn r_064_an_erasure_leaves_nothing_of_the_subject_and_all_of_the_others(
    s: &dyn Subject,
) -> Result<(), Failure> {
    tenant_admin(s).create_group("team")?;
    let (anna, anna_conversation, anna_pack) = live(s, "anna")?;
    let (bob, bob_conversation, bob_pack) = live(s, "bob")?;
    let left = officer(s, "bob").residue(&anna)?;
    ensure(
        left.rows > 0 && left.keys > 0 && left.memberships == 1,
        "the residue before the erasure is not seen",
    )?;
    let before = all_of(app(s, "bob"))?;
    let erased = officer(s, "anna").erase()?;
    same(erased.subject, anna.clone(), "who was erased")?;
    same((erased.memories, erased.conversations, erased.turns), (3, 1, 2), "memories, conversations, turns")?;
    ensure(erased.evidence > 0, "no openings and packs were erased")?;
    same(officer(s, "bob").residue(&anna)?, Residue::default(), "residue")?;
    let mut expected = before;
    // What she shared is not hers and stays.
    expected.sort();
    let mut after = all_of(app(s, "bob"))?;
    after.sort();
    same(after, expected, "what bob finds")?;
    ensure(!officer(s, "bob").residue(&bob)?.is_none(), "nothing is left of bob")?;
    let (as_bob, as_anna) = (app(s, "bob"), app(s, "anna"));
    ensure(as_bob.fetch(Key::Conversation(bob_conversation))?.is_some(), "bob's conversation is gone")?;
    ensure(as_bob.fetch(Key::Pack(bob_pack))?.is_some(), "bob's pack is gone")?;
    ensure(as_anna.fetch(Key::Conversation(anna_conversation))?.is_none(), "her conversation is found")?;
    ensure(as_anna.fetch(Key::Pack(anna_pack))?.is_none(), "her pack is found")
}

fn all_of(who: Actor<'_>) -> Result<Vec<String>, Failure> {
    let mut query = ask(who.subject, "violin")?;
    query.turns = Turns::All;
    query.k = super::note::top(200)?;
    Ok(texts(&who.recall(&query)?))
}

/// The same name later is a new pseudonym without a past.
pub fn r_067_an_erased_person_who_comes_back_is_somebody_new(s: &dyn Subject) -> Result<(), Failure> {
    tenant_admin(s).create_group("team")?;
    let (old, conversation, _) = live(s, "anna")?;
    officer(s, "anna").erase()?;
    let anna = app(s, "anna");
    ensure(anna.id()? != old, "the old pseudonym came back")?;
    same(all_of(anna)?, vec!["anna shares".to_owned()], "what she finds")?;
    same(anna.cost(Some(&conversation))?.items, 1, "items of the flat cost")?;
    // The answer that was remembered for her is gone too, so its key is free.
    let key = Idempotency { key: parse("k-anna")?, request: [2; 32], keep_until: later(s, 99_999) };
    let again = anna.commit(vec![Write::Remember(note("anna is back").build(s)?)], Some(key))?;
    ensure(!again.replayed, "an answer to an erased person is remembered")?;
    let members = group("team")?;
    let members = tenant_admin(s)
        .act::<action::ReadDirectory, _>(|pass| block::on(s.backend().members(pass, &members)))?;
    same(members.len(), 0, "members of her group")
}

/// The capability of an erasure proves it and repeats it, without registering the person again.
pub fn r_069_an_erasure_can_be_repeated(s: &dyn Subject) -> Result<(), Failure> {
    tenant_admin(s).create_group("team")?;
    let (anna, ..) = live(s, "anna")?;
    let (b, now) = (s.backend(), s.env_now());
    officer(s, "anna").act::<action::Erase, _>(|pass| {
        let first = block::on(b.erase(pass, now))?;
        let second = block::on(b.erase(pass, now))?;
        let residue = block::on(b.residue(pass, &anna))?;
        // The repetition tells the same again or that there was nothing left to erase.
        let told = second.memories == first.memories || second.memories == 0;
        if first.memories == 3 && told && second.subject == anna && residue.is_none() {
            Ok(())
        } else {
            Err(Error::Damaged)
        }
    })
}

/// From acceptance on, keys and capabilities of the subject open nothing (I-9).
pub fn l_16_nothing_is_written_or_opened_after_an_erasure_was_accepted(
    s: &dyn Subject,
) -> Result<(), Failure> {
    let (admin, b, now) = (tenant_admin(s), s.backend(), s.env_now());
    let key = ApiKey::random(s.env());
    let mut new = new_key(&key, &admin.tenant()?, Role::Agent);
    new.credential.act_for = false;
    let new = NewKey { subject: Some(parse("anna")?), ..new };
    admin.act::<action::ManageKeys, _>(|pass| block::on(b.add_key(pass, new, now)))?;
    let bound = actor(s, &key, None);
    bound.keep(note("by the bound key"))?;
    let late = note("too late").build(s)?;
    let written = app(s, "anna").act::<action::Remember, _>(|pass| {
        officer(s, "anna").erase().map_err(|_| Error::Damaged)?;
        block::on(b.commit(Batch::writes(pass, vec![Write::Remember(late)], None, now)))
    });
    refused(written, Error::GrantsMoved)?;
    ensure(bound.caller().is_err(), "the key of an erased person is valid")?;
    same(app(s, "anna").texts("late key")?.len(), 0, "found after the erasure")
}

/// A request of a person's own key that is denied after the erasure leaves no key of that person behind (I-9).
pub fn l_16_a_denial_after_an_erasure_makes_no_key(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, b, now) = (tenant_admin(s), s.backend(), s.env_now());
    let key = ApiKey::random(s.env());
    let mut new = new_key(&key, &admin.tenant()?, Role::Agent);
    new.credential.act_for = false;
    let new = NewKey { subject: Some(parse("anna")?), ..new };
    admin.act::<action::ManageKeys, _>(|pass| block::on(b.add_key(pass, new, now)))?;
    let bound = actor(s, &key, None);
    let (anna, request) = (bound.id()?, bound.request()?);
    officer(s, "anna").erase()?;
    match block::on(authorize::<action::Recall>(b, &request)) {
        Err(Refusal::Denied(denied)) => block::on(b.record_denial(&denied, now))?,
        _ => return Err(Failure::new("an erased person's key is not denied")),
    }
    same(officer(s, "bob").residue(&anna)?, Residue::default(), "residue")
}
