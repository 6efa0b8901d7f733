//! Sources: what is current, for whom, and what a removal leaves (R-048 … R-056).

use merkwelt_authz::action;
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Expiry, Revision};
use merkwelt_domain::source::{Approval, EvidencePolicy, SourceState, Terms};
use merkwelt_domain::{RevisionId, SourceId, Timestamp};

use super::actor::{Actor, actor, app, group, parse, second_tenant, tenant_admin};
use super::failure::{ensure, refused, same, there};
use super::library::{backend, documents, first, groups, sha256, texts};
use super::note::{ask, near, note, reading, vector};
use super::subject::Subject;
use super::{Failure, block};
use crate::change::{Batch, Shown};
use crate::error::Error;
use crate::query::{Key, RecallQuery};
use crate::record::Record;
use crate::source::{NewAudience, NewSource, SourceChange};

const POLICY: EvidencePolicy = EvidencePolicy::DigestWithVersion;

/// A draft is served to nobody; publishing makes it current in one step.
pub fn r_048_a_draft_is_served_to_nobody_until_it_is_published(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let (revision, _) = own.stage(&id, &[("Goods may be returned within thirty days.", None)])?;
    anna.sees_nothing_of(&id, &[first(&revision)], "returned thirty days")?;
    same(own.source(&id)?.state, SourceState::Draft, "state before")?;
    own.publish(&id, &revision)?;
    let found = anna.passages("returned thirty days")?;
    let passage = there(found.first(), "published passage")?;
    same(&passage.source, &id, "source of the passage")?;
    same(passage.revision, Revision::FIRST, "revision of the passage")?;
    same(passage.standing, Standing::Active, "standing of the passage")?;
    same(passage.region.page(), Some(1), "page of the passage")?;
    let record = own.source(&id)?;
    same(record.state, SourceState::Active, "state after")?;
    same(record.revisions.first().map(|r| r.approval), Some(Approval::Approved), "approval after")
}

/// After a replacement no path presents the old revision as current.
pub fn r_051_a_replaced_revision_is_not_current_on_any_path(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let old = own.replace(&id, &["Goods may be returned within thirty days.", "Shipping is free."])?;
    same(anna.passages("returned days")?.len(), 2, "passages before")?;
    let new = own.replace(&id, &["Goods may be returned within seven days.", "Shipping is free."])?;
    let found = anna.passages("returned thirty seven days")?;
    same(
        texts(&found),
        vec!["Goods may be returned within seven days.", "Shipping is free."],
        "passages after the replacement",
    )?;
    ensure(found.iter().all(|p| p.id.revision == new), "a passage of the old revision is current")?;
    same(anna.current(&id)?, Some(Revision::from_number(2)), "current revision")?;
    ensure(anna.passage(Key::Passage(first(&old)))?.is_none(), "the old passage is current by its key")?;
    let cited = there(anna.passage(Key::PassageAt(first(&old)))?, "citation of the old revision")?;
    match cited.standing {
        Standing::Superseded { by, .. } => same(by, Revision::from_number(2), "successor"),
        Standing::Active | Standing::Retracted { .. } | Standing::Restricted { .. } => {
            Err(Failure::new("a superseded passage does not say so"))
        }
    }
}

/// Only present members of its groups are shown a source, and a change counts from the next request on
///
pub fn r_056_a_source_is_shown_to_present_members_of_its_groups_only(s: &dyn Subject) -> Result<(), Failure> {
    let (own, admin) = (backend(s), tenant_admin(s));
    let (anna, ben) = (app(s, "anna"), app(s, "ben"));
    for name in ["sales", "board"] {
        admin.create_group(name)?;
    }
    admin.add("sales", "anna")?;
    let id = own.register("Discounts", groups(&["sales", "board"])?, POLICY)?;
    let revision = own.replace(&id, &["Discounts of more than ten percent need approval."])?;
    let all = [first(&revision)];
    same(anna.passages("discounts approval")?.len(), 1, "for a member")?;
    for stranger in [ben, own] {
        stranger.sees_nothing_of(&id, &all, "discounts approval")?;
    }
    admin.remove("sales", "anna")?;
    anna.sees_nothing_of(&id, &all, "discounts approval")?;
    admin.add("board", "ben")?;
    same(ben.passages("discounts approval")?.len(), 1, "for a member of the other group")?;
    own.change_source(SourceChange::Admit { source: id.clone(), audience: groups(&["sales"])? })?;
    ben.sees_nothing_of(&id, &all, "discounts approval")?;
    own.change_source(SourceChange::Admit { source: id.clone(), audience: NewAudience::Tenant })?;
    same(ben.passages("discounts approval")?.len(), 1, "for everybody")
}

/// A source whose only group is deleted is shown to nobody, not to everybody (I-6).
pub fn r_056_a_source_of_a_deleted_group_is_shown_to_nobody(s: &dyn Subject) -> Result<(), Failure> {
    let (own, admin, anna) = (backend(s), tenant_admin(s), app(s, "anna"));
    admin.create_group("sales")?;
    admin.add("sales", "anna")?;
    let id = own.register("Discounts", groups(&["sales"])?, POLICY)?;
    let revision = own.replace(&id, &["Discounts need approval."])?;
    same(anna.passages("discounts")?.len(), 1, "before")?;
    admin.change(crate::ports::DirectoryChange::DeleteGroup { name: group("sales")? })?;
    anna.sees_nothing_of(&id, &[first(&revision)], "discounts")
}

/// Sources of another tenant are unknown, to readers and to whoever manages sources.
pub fn r_034_sources_of_another_tenant_are_unknown(s: &dyn Subject) -> Result<(), Failure> {
    let own = backend(s);
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let revision = own.replace(&id, &["Goods may be returned within thirty days."])?;
    let other = second_tenant(s)?;
    let stranger = actor(s, &other, Some("anna"));
    stranger.sees_nothing_of(&id, &[first(&revision)], "returned")?;
    let stranger = actor(s, &other, None);
    refused(stranger.source(&id), Error::NotFound)?;
    refused(stranger.probes(&id), Error::NotFound)?;
    for change in [
        SourceChange::Withdraw { source: id.clone() },
        SourceChange::Delete { source: id.clone() },
        SourceChange::Publish { source: id.clone(), revision: revision.clone() },
        SourceChange::Admit { source: id.clone(), audience: NewAudience::Tenant },
    ] {
        refused(stranger.change_source(change), Error::NotFound)?;
    }
    let agent = actor(s, &s.keys().agent, None);
    ensure(agent.source(&id).is_err(), "an agent reads the register")?;
    ensure(
        agent.change_source(SourceChange::Withdraw { source: id.clone() }).is_err(),
        "an agent decides what is current",
    )?;
    same(app(s, "anna").passages("returned")?.len(), 1, "still there")
}

/// A withdrawal takes effect at once and can be undone.
pub fn r_051_a_withdrawn_source_is_not_served_until_it_is_restored(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let revision = own.replace(&id, &["Goods may be returned within thirty days."])?;
    own.change_source(SourceChange::Withdraw { source: id.clone() })?;
    anna.sees_nothing_of(&id, &[first(&revision)], "returned thirty")?;
    let restore =
        || SourceChange::Restore { source: id.clone(), revision: revision.clone(), vectors: Vec::new() };
    own.change_source(restore())?;
    same(anna.passages("returned thirty")?.len(), 1, "restored")?;
    ensure(own.change_source(restore())?.entry.is_none(), "restoring twice is recorded twice")
}

/// A deletion removes every passage of every revision; looking by id, by filter and by similarity finds
/// nothing, while ids, digests and times stay.
pub fn r_053_after_a_deletion_nothing_is_found_by_id_filter_or_similarity(
    s: &dyn Subject,
) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let other = own.register("Shipping", NewAudience::Tenant, POLICY)?;
    own.replace(&other, &["Shipping is free."])?;
    let old = own.replace(&id, &["Goods may be returned within thirty days."])?;
    let (new, _) = own.stage(&id, &[("Goods may be returned within seven days.", Some([1.0, 0.0, 0.0]))])?;
    own.publish(&id, &new)?;
    let probes = own.probes(&id)?;
    same(probes.len(), 2, "probes of both revisions")?;
    let before = own.source_residue(&id, &probes)?;
    ensure(
        before.by_id > 0 && before.by_filter > 0 && before.by_similarity > 0,
        "a look finds nothing before",
    )?;
    own.change_source(SourceChange::Delete { source: id.clone() })?;
    ensure(own.source_residue(&id, &probes)?.is_none(), "something is left")?;
    anna.sees_nothing_of(&id, &[first(&old), first(&new)], "goods returned days")?;
    same(anna.passages("shipping")?.len(), 1, "the other source")?;
    let record = own.source(&id)?;
    same(record.state, SourceState::Deleted, "state")?;
    ensure(record.title.is_none() && record.origin.is_none(), "title or origin is left")?;
    same(record.revisions.iter().filter(|r| !r.kept && r.digest != [0; 32]).count(), 2, "digests that stay")?;
    refused(
        own.change_source(SourceChange::Restore { source: id.clone(), revision: new, vectors: Vec::new() }),
        Error::NotRetained,
    )?;
    ensure(
        own.change_source(SourceChange::Delete { source: id.clone() })?.entry.is_none(),
        "deleting twice is recorded twice",
    )
}

/// Where a copy is kept for evidence, a deleted source is not found either, and an approved version can be
/// restored.
pub fn r_063_a_deleted_source_with_a_copy_can_be_restored(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, EvidencePolicy::DigestWithCopy)?;
    let (revision, _) = own.stage(&id, &[("Returned within thirty days.", Some([1.0, 0.0, 0.0]))])?;
    own.publish(&id, &revision)?;
    let probes = own.probes(&id)?;
    own.change_source(SourceChange::Delete { source: id.clone() })?;
    ensure(own.source_residue(&id, &probes)?.is_none(), "something is left")?;
    anna.sees_nothing_of(&id, &[first(&revision)], "returned thirty")?;
    let vectors = vec![vector(s, [1.0, 0.0, 0.0])];
    own.change_source(SourceChange::Restore { source: id.clone(), revision, vectors })?;
    same(anna.passages("returned thirty")?.len(), 1, "restored by words")?;
    let query = RecallQuery { vector: Some(near(s, [1.0, 0.0, 0.0])), ..documents(s, "zzz")? };
    let found = anna.recall(&query)?;
    let score = there(found.candidates.first(), "restored by vector")?.scores.cosine;
    ensure(score.is_some_and(|cosine| cosine > 0.9), "the restored vector is not searched")
}

/// Passages that did not change keep their vectors; only what changed is embedded again.
pub fn r_062_unchanged_passages_take_over_their_vectors(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let near_one = Some([1.0, 0.0, 0.0]);
    let (old, reused) = own.stage(&id, &[("alpha stays", near_one), ("beta goes", Some([0.0, 1.0, 0.0]))])?;
    same(reused, 0, "nothing to take over")?;
    own.publish(&id, &old)?;
    let (new, reused) = own.stage(&id, &[("inserted", Some([0.0, 0.0, 1.0])), ("alpha stays", None)])?;
    same(reused, 1, "taken over")?;
    own.publish(&id, &new)?;
    let query = RecallQuery { vector: Some(near(s, [1.0, 0.0, 0.0])), ..documents(s, "zzz")? };
    same(texts(&anna.passages_of(&query)?), vec!["alpha stays", "inserted"], "order by vector")
}

/// What changed between the search and the answer is not released: the old revision, and what the caller may
/// no longer be shown.
pub fn r_056_a_passage_is_checked_again_when_it_is_released(s: &dyn Subject) -> Result<(), Failure> {
    let (own, admin, anna) = (backend(s), tenant_admin(s), app(s, "anna"));
    admin.create_group("sales")?;
    admin.add("sales", "anna")?;
    let id = own.register("Returns", groups(&["sales"])?, POLICY)?;
    let found = || -> Result<Vec<Record>, Failure> {
        Ok(anna.passages("returned")?.into_iter().map(Record::Passage).collect())
    };
    own.replace(&id, &["Returned within thirty days."])?;
    anna.deliver(&found()?)?;
    let stale = found()?;
    own.replace(&id, &["Returned within seven days."])?;
    refused(anna.deliver(&stale), Error::ContentMoved)?;
    // As one of the past it may be shown, as long as its source may.
    let past: Vec<_> = stale.iter().filter_map(cited).collect();
    same(past.len(), 1, "superseded passage")?;
    past.iter().try_for_each(|shown| anna.show(shown.clone()).map(drop))?;
    let foreign = found()?;
    same(foreign.len(), 1, "current passage")?;
    own.change_source(SourceChange::Admit { source: id.clone(), audience: NewAudience::Tenant })?;
    anna.deliver(&foreign)?;
    admin.create_group("board")?;
    own.change_source(SourceChange::Admit { source: id.clone(), audience: groups(&["board"])? })?;
    refused(anna.deliver(&foreign), Error::ContentMoved)?;
    past.iter().try_for_each(|shown| refused(anna.show(shown.clone()), Error::ContentMoved))?;
    own.change_source(SourceChange::Admit { source: id.clone(), audience: NewAudience::Tenant })?;
    past.iter().try_for_each(|shown| anna.show(shown.clone()).map(drop))?;
    own.change_source(SourceChange::Withdraw { source: id })?;
    past.iter().try_for_each(|shown| refused(anna.show(shown.clone()), Error::ContentMoved))?;
    refused(anna.deliver(&foreign), Error::ContentMoved)
}

fn cited(record: &Record) -> Option<Shown> {
    match record {
        Record::Passage(passage) => Some(Shown::Cited(passage.id.clone())),
        Record::Memory(_) | Record::Turn(_) => None,
    }
}

/// Every relevant change of sources and of rights raises the knowledge epoch; a memory does not.
pub fn r_054_changes_of_sources_and_rights_raise_the_knowledge_epoch(s: &dyn Subject) -> Result<(), Failure> {
    let (own, admin, anna) = (backend(s), tenant_admin(s), app(s, "anna"));
    let epoch = || -> Result<_, Failure> { Ok(anna.recall(&ask(s, "x")?)?.epochs.knowledge) };
    let rises = |what: &str, act: &dyn Fn() -> Result<(), Failure>| -> Result<(), Failure> {
        let before = epoch()?;
        act()?;
        ensure(epoch()? > before, &format!("{what} does not raise the epoch"))
    };
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let (revision, _) = own.stage(&id, &[("Returned within thirty days.", None)])?;
    let change = |change: SourceChange| own.change_source(change).map(|_| ());
    rises("publishing", &|| own.publish(&id, &revision).map(|_| ()))?;
    rises("a group", &|| admin.create_group("sales"))?;
    rises("a member", &|| admin.add("sales", "anna"))?;
    rises("an audience", &|| {
        change(SourceChange::Admit { source: id.clone(), audience: groups(&["sales"])? })
    })?;
    rises("a withdrawal", &|| change(SourceChange::Withdraw { source: id.clone() }))?;
    rises("a deletion", &|| change(SourceChange::Delete { source: id.clone() }))?;
    let before = epoch()?;
    anna.keep(note("likes tea"))?;
    same(epoch()?, before, "epoch after a memory")
}

/// What rests on a generation of knowledge as a whole is not released once that has risen.
pub fn r_055_what_rests_on_an_older_generation_is_not_released(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    own.replace(&id, &["Returned within thirty days."])?;
    let known = anna.recall(&ask(s, "x")?)?.epochs.knowledge;
    let release = || -> Result<_, Failure> {
        let (record, now) = (reading(s, &[], None)?, s.env_now());
        let record = crate::change::ReadRecord { knowledge: Some(known), ..record };
        anna.act::<action::Recall, _>(|pass| block::on(s.backend().commit(Batch::read(pass, record, now))))
    };
    release()?;
    own.replace(&id, &["Returned within seven days."])?;
    refused(release(), Error::ContentMoved)
}

/// A passage of a later validity, or of a source that has ended, is not served.
pub fn r_071_a_source_is_served_inside_its_window_only(s: &dyn Subject) -> Result<(), Failure> {
    let (own, anna) = (backend(s), app(s, "anna"));
    let start = s.env_now().millis();
    let end = Timestamp::from_millis(start + 1_000_000);
    let id = SourceId::random(s.env());
    let terms = Terms { expiry: Expiry::At(end), evidence: POLICY, purpose: None };
    let audience = NewAudience::Tenant;
    let new = NewSource { id: id.clone(), title: parse("Returns")?, origin: None, audience, terms };
    own.change_source(SourceChange::Register(new))?;
    let revision = own.replace(&id, &["Returned within thirty days."])?;
    same(anna.passages("returned")?.len(), 1, "inside")?;
    s.env().set(end.millis());
    anna.sees_nothing_of(&id, &[first(&revision)], "returned")
}

/// The manifest names every passage of every revision and where it still is.
pub fn r_049_a_manifest_names_every_passage_and_where_it_is(s: &dyn Subject) -> Result<(), Failure> {
    let own = backend(s);
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    let old = own.replace(&id, &["one", "two", "three"])?;
    let manifest = |revision: &RevisionId| {
        own.act::<action::ReadSources, _>(|pass| block::on(s.backend().manifest(pass, &id, revision)))
    };
    let counts = |revision: &RevisionId| -> Result<(usize, usize, usize), Failure> {
        let entries = manifest(revision)?;
        let kept = entries.iter().filter(|entry| entry.kept).count();
        Ok((entries.len(), kept, entries.iter().filter(|entry| entry.indexed).count()))
    };
    same(counts(&old)?, (3, 3, 3), "current")?;
    let new = own.replace(&id, &["one", "two"])?;
    same(counts(&old)?, (3, 3, 0), "superseded")?;
    same(counts(&new)?, (2, 2, 2), "its successor")?;
    own.change_source(SourceChange::Delete { source: id.clone() })?;
    same(counts(&old)?, (3, 0, 0), "deleted")?;
    same(counts(&new)?, (2, 0, 0), "deleted too")?;
    let first = manifest(&new)?.into_iter().next();
    same(first.map(|entry| entry.digest), Some(sha256("one")), "digest that stays")
}

/// Passages rank by the caller's own statistics: what others may be shown changes no score.
pub fn r_023_passages_of_others_change_no_score(s: &dyn Subject) -> Result<(), Failure> {
    let (own, admin, anna) = (backend(s), tenant_admin(s), app(s, "anna"));
    admin.create_group("board")?;
    let id = own.register("Returns", NewAudience::Tenant, POLICY)?;
    own.replace(&id, &["Returned within thirty days.", "Shipping is free."])?;
    let query = documents(s, "returned days")?;
    let scores = |who: Actor<'_>| -> Result<Vec<String>, Failure> {
        Ok(who.recall(&query)?.candidates.iter().map(|c| format!("{:?}", c.scores)).collect())
    };
    let before = scores(anna)?;
    let secret = own.register("Board", groups(&["board"])?, POLICY)?;
    own.replace(&secret, &["Returned returned days days.", "days", "returned"])?;
    same(scores(anna)?, before, "scores")
}
