//! Proven: what the ledger holds, and that it verifies.

use merkwelt_authz::{Refusal, action, authorize};
use merkwelt_domain::memory::Kind;
use merkwelt_ledger::checkpoint::SignedCheckpoint;
use merkwelt_ledger::export::{Header, Writer};
use merkwelt_ledger::note::VerifierKey;
use merkwelt_ledger::policy::Policy;
use merkwelt_ledger::proof::Proof;
use merkwelt_ledger::verify::{Report, verify_export};

use super::actor::{Actor, actor, app, group, second_tenant, tenant_admin};
use super::failure::{ensure, refused, same, there};
use super::note::{ask, note};
use super::subject::{START, Subject};
use super::{Failure, block};
use crate::change::NewOwner;
use crate::error::Error;
use crate::record::Record;

fn types(who: Actor<'_>) -> Result<Vec<String>, Failure> {
    who.entries()?
        .iter()
        .map(|entry| {
            let value: serde_json::Value =
                serde_json::from_slice(entry).map_err(|_| Failure::new("an entry is not JSON"))?;
            Ok(there(value.get("type").and_then(serde_json::Value::as_str), "type")?.to_owned())
        })
        .collect()
}

fn n_of(who: Actor<'_>, kind: &str) -> Result<usize, Failure> {
    Ok(types(who)?.iter().filter(|found| *found == kind).count())
}

fn hits(who: Actor<'_>, question: &str) -> Result<Vec<Record>, Failure> {
    let mut query = ask(who.subject, question)?;
    query.k = super::note::top(200)?;
    Ok(who.recall(&query)?.candidates.into_iter().map(|candidate| candidate.record).collect())
}

/// One read, one entry, whatever it delivered; a search that is not recorded leaves none.
pub fn r_080_each_recorded_read_is_one_entry(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, admin) = (app(s, "anna"), tenant_admin(s));
    for n in 0..30 {
        anna.keep(note(&format!("note {n}")))?;
    }
    let records = hits(anna, "note")?;
    same(records.len(), 30, "hits")?;
    same(n_of(admin, "read")?, 0, "entries before a read is recorded")?;
    for (n, delivered) in [(1, &records[..]), (2, &[][..]), (3, &records[..])] {
        let receipt = anna.deliver(delivered)?;
        same(n_of(admin, "read")?, n, "read entries")?;
        let entry = there(receipt.entry, "entry")?;
        let index = usize::try_from(entry.index).unwrap_or(usize::MAX);
        same(types(admin)?.get(index).map(String::as_str), Some("read"), "type of the entry told")?;
    }
    Ok(())
}

/// A bit of everything in two tenants.
fn busy(s: &dyn Subject) -> Result<merkwelt_authz::ApiKey, Failure> {
    let (admin, anna, bob) = (tenant_admin(s), app(s, "anna"), app(s, "bob"));
    let other_key = second_tenant(s)?;
    admin.create_group("team")?;
    admin.add("team", "anna")?;
    admin.add("team", "bob")?;
    let conversation = anna.open()?;
    anna.say(&conversation, "hello violins")?;
    let id = anna.keep(note("violins").said_in(&conversation))?;
    let shared = anna.keep(note("shared violins").owner(NewOwner::Group(group("team")?)))?;
    let _ = anna.deliver(&hits(anna, "violins")?)?;
    anna.correct(&id, None, note("corrected violins"))?;
    bob.keep(note("violins of bob"))?;
    bob.retract(&shared)?;
    bob.keep(note("state").kind(Kind::ProjectState).slot("s").until(START + 9000))?;
    bob.keep(note("state, later").kind(Kind::ProjectState).slot("s").until(START + 9000))?;
    s.env().advance(2000);
    let _ = bob.deliver(&hits(bob, "violins")?)?;
    admin.remove("team", "bob")?;
    anna.delete(&conversation)?;
    actor(s, &s.keys().officer, Some("anna")).erase()?;
    actor(s, &other_key, Some("anna")).keep(note("of another tenant"))?;
    Ok(other_key)
}

fn verified(who: Actor<'_>) -> Result<Report, Failure> {
    let text = |e: &dyn std::fmt::Display| Failure::new(e.to_string());
    let checkpoint =
        who.act::<action::ReadEvidence, _>(|pass| block::on(who.subject.backend().checkpoint(pass)))?;
    let key = VerifierKey::parse(&checkpoint.verifier_key).map_err(|e| text(&e))?;
    let signed = SignedCheckpoint::parse(&checkpoint.note).map_err(|e| text(&e))?;
    let header = Header { origin: key.name().to_owned(), key: key.clone() };
    let mut export = Writer::new(Vec::new(), &header).map_err(|e| text(&e))?;
    let entries = who.entries()?;
    same(u64::try_from(entries.len()).unwrap_or(0), checkpoint.size, "size of the checkpoint")?;
    for (index, entry) in (0_u64..).zip(&entries) {
        export.entry(index, entry).map_err(|e| text(&e))?;
    }
    let bytes = export.finish(&signed).map_err(|e| text(&e))?;
    verify_export(&bytes[..], Some(&key), None).map_err(|e| text(&e))
}

/// After a bit of everything each tenant's ledger verifies and nothing in it needs an explanation.
pub fn r_099_the_ledger_verifies_after_everything(s: &dyn Subject) -> Result<(), Failure> {
    busy(s)?;
    let report = verified(tenant_admin(s))?;
    same(report.exceptions, Vec::new(), "findings")?;
    for kind in ["genesis", "read", "memory_written", "memory_corrected", "memory_retracted"] {
        ensure(report.by_type.contains_key(kind), &format!("no entry of type {kind}"))?;
    }
    for kind in ["conversation_opened", "turn_appended", "conversation_deleted", "directory_changed"] {
        ensure(report.by_type.contains_key(kind), &format!("no entry of type {kind}"))?;
    }
    same(report.by_type.get("erasure_receipt").copied(), Some(1), "receipts of the erasure")?;
    same(report.by_type.get("erasure_requested").copied(), Some(1), "requests of the erasure")?;
    let instance = verified(actor(s, &s.keys().admin, None))?;
    same(instance.exceptions, Vec::new(), "findings of the instance")?;
    ensure(instance.by_type.contains_key("tenant_changed"), "the new tenant is not recorded")?;
    ensure(instance.origin != report.origin, "two tenants share a ledger")
}

/// A refusal of the authorisation is recorded in the caller's ledger (L-28).
pub fn l_28_a_denial_is_recorded(s: &dyn Subject) -> Result<(), Failure> {
    let (agent, admin) = (actor(s, &s.keys().agent, None), tenant_admin(s));
    let request = agent.request()?;
    match block::on(authorize::<action::ManageDirectory>(s.backend(), &request)) {
        Err(Refusal::Denied(denied)) => {
            block::on(s.backend().record_denial(&denied, s.env_now()))?;
        }
        _ => return Err(Failure::new("an agent may change the directory")),
    }
    same(types(admin)?.last().map(String::as_str), Some("authz_denied"), "last entry")?;
    same(verified(admin)?.n_exceptions, 0, "findings")
}

/// One entry is proven without the rest (L-22).
pub fn l_22_an_entry_is_proven_on_its_own(s: &dyn Subject) -> Result<(), Failure> {
    busy(s)?;
    let (admin, backend) = (tenant_admin(s), s.backend());
    let entries = admin.entries()?;
    let checkpoint = admin.act::<action::ReadEvidence, _>(|pass| block::on(backend.checkpoint(pass)))?;
    let text = |e: &dyn std::fmt::Display| Failure::new(e.to_string());
    let key = VerifierKey::parse(&checkpoint.verifier_key).map_err(|e| text(&e))?;
    let policy = Policy::of_keys(vec![key]);
    for (index, entry) in (0_u64..).zip(&entries) {
        let proof = admin.act::<action::ReadEvidence, _>(|pass| block::on(backend.proof(pass, index)))?;
        let proof = Proof::parse(&proof).map_err(|e| text(&e))?;
        proof.verify(entry, &policy).map_err(|e| text(&e))?;
    }
    let beyond = u64::try_from(entries.len()).unwrap_or(0);
    refused(
        admin.act::<action::ReadEvidence, _>(|pass| block::on(backend.proof(pass, beyond))),
        Error::NotFound,
    )
}

/// No word, name, pseudonym or id of a subject's record stands in the ledger (R-097, L-19).
pub fn r_097_no_word_and_no_name_stands_in_the_ledger(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna) = (tenant_admin(s), app(s, "canary-person"));
    admin.create_group("team")?;
    admin.add("team", "canary-person")?;
    let conversation = anna.open()?;
    anna.say(&conversation, "canary-turn")?;
    let memory = note("canary-text").slot("canary-slot").metadata("canary-name", "canary-value");
    let id = anna.keep(memory.said_in(&conversation))?;
    let _ = anna.deliver(&hits(anna, "canary-question")?)?;
    let pseudonym = anna.id()?;
    actor(s, &s.keys().officer, Some("canary-person")).erase()?;
    for entry in admin.entries()? {
        let text = String::from_utf8_lossy(&entry).into_owned();
        ensure(!text.contains("canary"), "a word stands in the ledger")?;
        for hidden in [id.as_str(), conversation.as_str(), pseudonym.as_str()] {
            ensure(!text.contains(hidden), "an id of a person or of its records stands in the ledger")?;
        }
    }
    Ok(())
}

/// Each change is one entry, and what changed nothing is none.
pub fn each_change_is_one_entry(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, admin) = (app(s, "anna"), tenant_admin(s));
    let mut before = types(admin)?.len();
    let mut step = |expected: usize, kinds: &[&str]| -> Result<(), Failure> {
        let all = types(admin)?;
        let new: Vec<&str> = all.iter().skip(before).map(String::as_str).collect();
        before = all.len();
        same(new.len(), expected, "new entries")?;
        ensure(new.iter().all(|kind| kinds.contains(kind)), &format!("unexpected entries {new:?}"))
    };
    let id = anna.keep(note("one"))?;
    step(1, &["memory_written"])?;
    anna.keep(note("one"))?;
    step(0, &[])?;
    anna.keep(note("in a slot").slot("s"))?;
    anna.keep(note("in a slot, later").slot("s"))?;
    step(2, &["memory_written", "memory_corrected"])?;
    anna.correct(&id, None, note("two"))?;
    step(1, &["memory_corrected"])?;
    anna.retract(&id)?;
    step(1, &["memory_retracted"])?;
    let conversation = anna.open()?;
    step(1, &["conversation_opened"])?;
    anna.say(&conversation, "hello")?;
    step(1, &["turn_appended"])?;
    anna.delete(&conversation)?;
    step(1, &["conversation_deleted"])?;
    admin.create_group("g")?;
    admin.add("g", "anna")?;
    step(2, &["directory_changed"])?;
    admin.add("g", "anna")?;
    step(0, &[])?;
    refused(anna.retract(&id), Error::NotFound)?;
    step(0, &[])
}
