//! Apart: nothing of a tenant, subject or group reaches anybody else, and nobody can tell the unknown from
//! the foreign.

use merkwelt_authz::{ApiKey, Role, action};
use merkwelt_domain::memory::Kind;
use merkwelt_domain::{ConversationId, MemoryId, TenantId};

use super::actor::{actor, app, group, listed_text, parse, second_tenant, tenant_admin};
use super::failure::{ensure, refused, same};
use super::note::{ask, note, top};
use super::subject::{Subject, new_key};
use super::{Failure, block};
use crate::change::NewOwner;
use crate::error::Error;
use crate::ports::Tenant;
use crate::query::{Key, KindSet, Listing, Turns};

fn memories() -> Listing {
    Listing::Memories { kinds: KindSet::all(), conversation: None }
}

/// What somebody sees on the paths that show many records, sorted; all paths must agree.
fn seen(actor: super::actor::Actor<'_>) -> Result<Vec<String>, Failure> {
    let mut found = actor.texts("note")?;
    let mut listed: Vec<String> = actor.list(memories())?.iter().map(listed_text).collect();
    found.sort();
    listed.sort();
    same(&found, &listed, "search and list")?;
    same(actor.cost(None)?.items, u64::try_from(found.len()).unwrap_or(0), "flat cost and list")?;
    Ok(found)
}

/// A subject's memories are the subject's, a group's are its members', the tenant's are everybody's.
pub fn r_022_a_memory_is_seen_by_its_owners_circle_and_nobody_else(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna, bob) = (tenant_admin(s), app(s, "anna"), app(s, "bob"));
    admin.create_group("sales")?;
    admin.create_group("hr")?;
    admin.add("sales", "anna")?;
    admin.add("hr", "bob")?;
    let own = anna.keep(note("note of anna"))?;
    let sales = anna.keep(note("note of sales").owner(NewOwner::Group(group("sales")?)))?;
    let shared = anna.keep(note("note of all").owner(NewOwner::Tenant))?;
    let of_bob = bob.keep(note("note of bob"))?;
    let hr = bob.keep(note("note of hr").owner(NewOwner::Group(group("hr")?)))?;
    let nobody = actor(s, &s.keys().app, None);
    same(
        seen(anna)?,
        ["note of all", "note of anna", "note of sales"].map(str::to_owned).into(),
        "anna sees",
    )?;
    same(seen(bob)?, ["note of all", "note of bob", "note of hr"].map(str::to_owned).into(), "bob sees")?;
    same(seen(nobody)?, ["note of all"].map(str::to_owned).into(), "nobody in particular sees")?;
    for (who, id, expected) in [
        (anna, &own, true),
        (anna, &sales, true),
        (anna, &shared, true),
        (anna, &of_bob, false),
        (anna, &hr, false),
        (bob, &own, false),
        (bob, &sales, false),
        (nobody, &own, false),
        (nobody, &sales, false),
        (nobody, &shared, true),
    ] {
        same(who.memory(id)?.is_some(), expected, "found by id")?;
    }
    Ok(())
}

/// Two tenants with the same person and the same words share nothing (R-023, I-5).
pub fn r_023_equal_texts_of_two_tenants_stay_apart(s: &dyn Subject) -> Result<(), Failure> {
    let other_key = second_tenant(s)?;
    let (first, second) = (app(s, "anna"), actor(s, &other_key, Some("anna")));
    let (mine, theirs) = (first.keep(note("note of both"))?, second.keep(note("note of both"))?);
    ensure(mine != theirs, "equal texts of two tenants became one memory")?;
    ensure(first.id()? != second.id()?, "one pseudonym in two tenants")?;
    for (who, own, foreign) in [(first, &mine, &theirs), (second, &theirs, &mine)] {
        same(seen(who)?.len(), 1, "memories seen")?;
        ensure(who.memory(own)?.is_some(), "the own memory is not found")?;
        ensure(who.memory(foreign)?.is_none(), "the memory of the other tenant is found")?;
        refused(who.retract(foreign), Error::NotFound)?;
        refused(who.correct(foreign, None, note("mine now")), Error::NotFound)?;
    }
    first.correct(&mine, None, note("note of the first"))?;
    same(seen(second)?, vec!["note of both".to_owned()], "the second tenant sees")?;
    first.keep(note("note for everybody").owner(NewOwner::Tenant))?;
    same(seen(second)?, vec!["note of both".to_owned()], "the second tenant sees")
}

/// What others write moves no score, be they of another tenant or of the same one.
pub fn r_023_scores_do_not_depend_on_what_others_write(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    for text in ["the delivery is late", "a violin for the concert", "delivery by train", "nothing else"] {
        anna.keep(note(text))?;
    }
    let query = ask(s, "When does the delivery of the violin arrive?")?;
    let before = anna.recall(&query)?;
    let other_key = second_tenant(s)?;
    let stranger = actor(s, &other_key, Some("anna"));
    for n in 0..20 {
        bob.keep(note(&format!("delivery delivery violin {n}")))?;
        stranger.keep(note(&format!("violin arrives {n}")).owner(NewOwner::Tenant))?;
        stranger.keep(note(&format!("delivery of {n}")))?;
    }
    let after = anna.recall(&query)?;
    same(after.candidates, before.candidates, "hits and scores")?;
    same(after.considered, before.considered, "records considered")
}

/// The id of a conversation opens nothing for anybody but its subject.
pub fn r_028_knowing_the_id_of_a_conversation_grants_nothing(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let other_key = second_tenant(s)?;
    let conversation = anna.open()?;
    anna.say(&conversation, "a word in private")?;
    for who in [bob, actor(s, &other_key, Some("anna")), actor(s, &s.keys().app, None)] {
        ensure(who.fetch(Key::Conversation(conversation.clone()))?.is_none(), "conversation found")?;
        ensure(who.fetch(Key::Turn(conversation.clone(), 1))?.is_none(), "turn found")?;
        refused(who.list(Listing::Turns(conversation.clone())), Error::NotFound)?;
        refused(who.list(Listing::TurnsBackwards(conversation.clone())), Error::NotFound)?;
        refused(who.say(&conversation, "me too"), Error::NotFound)?;
        refused(who.delete(&conversation), Error::NotFound)?;
        refused(who.remember(note("x").said_in(&conversation).owner(NewOwner::Tenant)), Error::NotFound)?;
        same(who.cost(Some(&conversation))?.items, 0, "turns in the flat cost")?;
        for turns in [Turns::All, Turns::Of(conversation.clone())] {
            let mut query = ask(s, "word in private")?;
            query.turns = turns;
            same(who.recall(&query)?.candidates.len(), 0, "turns found by search")?;
        }
    }
    same(anna.list(Listing::Turns(conversation))?.len(), 1, "turns of the subject")
}

/// An agent reads what is shared, and changes nothing of it.
pub fn r_031_a_role_that_may_not_share_changes_nothing_shared(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, agent) = (app(s, "anna"), actor(s, &s.keys().agent, Some("anna")));
    let shared = anna.keep(note("shared note").owner(NewOwner::Tenant))?;
    ensure(agent.memory(&shared)?.is_some(), "the agent does not see what is shared")?;
    refused(agent.remember(note("mine for all").owner(NewOwner::Tenant)), Error::NotFound)?;
    refused(agent.correct(&shared, None, note("changed")), Error::NotFound)?;
    refused(agent.retract(&shared), Error::NotFound)?;
    let own = agent.keep(note("own note"))?;
    agent.correct(&own, Some(1), note("own note, corrected"))?;
    same(seen(anna)?, ["own note, corrected", "shared note"].map(str::to_owned).into(), "anna sees")
}

/// Ten ids that nobody has and ten that somebody else has are answered alike on every verb, and the attempts
/// leave no trace in content or generations.
pub fn r_034_twenty_unknown_and_foreign_ids_are_refused_alike(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let other_key = second_tenant(s)?;
    let stranger = actor(s, &other_key, Some("anna"));
    let (mut ids, mut conversations) = (Vec::new(), Vec::new());
    for n in 0..5 {
        for who in [bob, stranger] {
            ids.push(who.keep(note(&format!("note {n}")))?);
            let conversation = who.open()?;
            who.say(&conversation, "hello")?;
            conversations.push(conversation);
        }
        ids.extend([MemoryId::random(s.env()), MemoryId::random(s.env())]);
        conversations.extend([ConversationId::random(s.env()), ConversationId::random(s.env())]);
    }
    anna.keep(note("note of anna"))?;
    let before = anna.recall(&ask(s, "note")?)?;
    for id in &ids {
        ensure(anna.memory(id)?.is_none(), "found by id")?;
        let past = Key::MemoryAt(id.clone(), merkwelt_domain::memory::Revision::FIRST);
        ensure(anna.fetch(past)?.is_none(), "found by revision")?;
        refused(anna.correct(id, None, note("changed")), Error::NotFound)?;
        // A wrong revision must not be told apart from a wrong id either.
        refused(anna.correct(id, Some(9), note("changed")), Error::NotFound)?;
        refused(anna.retract(id), Error::NotFound)?;
    }
    for id in &conversations {
        ensure(anna.fetch(Key::Conversation(id.clone()))?.is_none(), "conversation found")?;
        refused(anna.list(Listing::Turns(id.clone())), Error::NotFound)?;
        refused(anna.say(id, "hello"), Error::NotFound)?;
        refused(anna.delete(id), Error::NotFound)?;
        refused(anna.remember(note("x").said_in(id)), Error::NotFound)?;
    }
    let after = anna.recall(&ask(s, "note")?)?;
    same(after.epochs, before.epochs, "generations")?;
    same(seen(bob)?.len(), 5, "memories of bob")?;
    same(seen(stranger)?.len(), 5, "memories of the other tenant")
}

/// Writing for a group that does not exist and for one the subject is no member of fails alike.
pub fn r_034_an_unknown_group_and_a_group_of_others_are_alike(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    tenant_admin(s).create_group("board")?;
    tenant_admin(s).add("board", "bob")?;
    for name in ["board", "nonesuch"] {
        let owner = NewOwner::Group(group(name)?);
        refused(anna.remember(note("note").owner(owner)), Error::NotFound)?;
    }
    let of_board = app(s, "bob").keep(note("note of the board").owner(NewOwner::Group(group("board")?)))?;
    refused(anna.correct(&of_board, None, note("x")), Error::NotFound)?;
    refused(anna.retract(&of_board), Error::NotFound)?;
    // A request for nobody in particular may write for any group, and reads none.
    let nobody = actor(s, &s.keys().app, None);
    nobody.keep(note("rule of the board").kind(Kind::Reference).owner(NewOwner::Group(group("board")?)))?;
    same(seen(nobody)?.len(), 0, "memories seen by nobody in particular")?;
    same(seen(app(s, "bob"))?.len(), 2, "memories seen by the member")
}

/// Keys and tenants: each tenant runs its own, the instance sees all tenants and no content.
pub fn r_036_keys_of_another_tenant_are_out_of_reach(s: &dyn Subject) -> Result<(), Failure> {
    let other_key = second_tenant(s)?;
    let other = actor(s, &other_key, None).tenant()?;
    let (admin, now, backend) = (tenant_admin(s), s.env_now(), s.backend());
    let revoked =
        admin.act::<action::ManageKeys, _>(|pass| block::on(backend.revoke_key(pass, other_key.id(), now)));
    refused(revoked, Error::NotFound)?;
    let fresh = ApiKey::random(s.env());
    let foreign = new_key(&fresh, &other, Role::App);
    let added = admin.act::<action::ManageKeys, _>(|pass| block::on(backend.add_key(pass, foreign, now)));
    refused(added, Error::NotFound)?;
    actor(s, &other_key, None).caller()?;
    let own = admin.act::<action::ManageKeys, _>(|pass| block::on(backend.keys(pass)))?;
    same(own.len(), 5, "keys of the first tenant")?;
    let instance = actor(s, &s.keys().admin, None);
    let tenants = instance.act::<action::ManageTenants, _>(|pass| block::on(backend.tenants(pass)))?;
    let names: Vec<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    same(names, vec!["first", "second"], "tenants")?;
    let id = TenantId::random(s.env());
    let again = Tenant { id: id.clone(), name: parse("second")?, created_at: now };
    let key = new_key(&ApiKey::random(s.env()), &id, Role::App);
    let repeated =
        instance.act::<action::ManageTenants, _>(|pass| block::on(backend.create_tenant(pass, again, key)));
    refused(repeated, Error::Exists)?;
    let mut query = ask(s, "note")?;
    query.k = top(1)?;
    same(actor(s, &other_key, None).recall(&query)?.candidates.len(), 0, "content of a new tenant")
}
