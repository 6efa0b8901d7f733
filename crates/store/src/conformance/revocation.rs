//! Grants: what a change of the directory does to capabilities that exist and to those that come.

use std::collections::BTreeSet;

use merkwelt_authz::{ApiKey, Fut, GrantError, GrantSource, Grants, Principal, Role, action, authorize};
use merkwelt_domain::summary::OrganisationSwitch;
use merkwelt_domain::{GroupId, KeyId, TenantId};

use super::actor::{Actor, actor, app, group, parse, second_tenant, tenant_admin};
use super::failure::{ensure, refused, same};
use super::note::{ask, note, reading};
use super::subject::{Subject, new_key};
use super::{Failure, block};
use crate::change::{Batch, NewOwner, Write};
use crate::error::Error;
use crate::ports::{Backend, DirectoryChange, NewKey};
use crate::query::{Key, KindSet, Listing, PageSize, ScanQuery};

/// Some change of grants in the first tenant, as another request would make it meanwhile.
fn disturb(s: &dyn Subject) -> Result<(), Error> {
    let id = GroupId::random(s.env());
    let name = id.as_str().to_owned();
    tenant_admin(s).create_group(&name).map_err(|_| Error::Damaged)
}

/// Every verb refuses a capability that was minted before a change of grants (I-2).
pub fn r_029_a_capability_from_before_a_change_of_grants_opens_nothing(
    s: &dyn Subject,
) -> Result<(), Failure> {
    reads_of_old_capabilities(s)?;
    let (b, now) = (s.backend(), s.env_now());
    let anna = app(s, "anna");
    let new = note("late").build(s)?;
    let written = anna.act::<action::Remember, _>(|pass| {
        disturb(s)?;
        block::on(b.commit(Batch::writes(pass, vec![Write::Remember(new)], None, now)))
    });
    refused(written, Error::GrantsMoved)?;
    let record = reading(s, &[], None)?;
    let recorded = anna.act::<action::Recall, _>(|pass| {
        disturb(s)?;
        block::on(b.commit(Batch::read(pass, record, now)))
    });
    refused(recorded, Error::GrantsMoved)?;
    let admin = tenant_admin(s);
    let change = DirectoryChange::CreateGroup { id: GroupId::random(s.env()), name: group("late")? };
    let changed = admin.act::<action::ManageDirectory, _>(|pass| {
        disturb(s)?;
        block::on(b.change(pass, change, now))
    });
    refused(changed, Error::GrantsMoved)?;
    let listed = admin.act::<action::ReadDirectory, _>(|pass| {
        disturb(s)?;
        block::on(b.groups(pass))
    });
    refused(listed, Error::GrantsMoved)?;
    let keys = admin.act::<action::ManageKeys, _>(|pass| {
        disturb(s)?;
        block::on(b.keys(pass))
    });
    refused(keys, Error::GrantsMoved)?;
    let entries = admin.act::<action::ReadEvidence, _>(|pass| {
        disturb(s)?;
        block::on(b.entries(pass, 0, 10))
    });
    refused(entries, Error::GrantsMoved)?;
    administration_of_old_capabilities(s)?;
    same(anna.texts("late")?, vec!["early".to_owned()], "what was written")
}

fn administration_of_old_capabilities(s: &dyn Subject) -> Result<(), Failure> {
    let (b, now, admin) = (s.backend(), s.env_now(), tenant_admin(s));
    let id = app(s, "anna").id()?;
    let officer = actor(s, &s.keys().officer, Some("anna"));
    let erased = officer.act::<action::Erase, _>(|pass| {
        disturb(s)?;
        block::on(b.erase(pass, now))
    });
    refused(erased, Error::GrantsMoved)?;
    let residue = officer.act::<action::Erase, _>(|pass| {
        disturb(s)?;
        block::on(b.residue(pass, &id))
    });
    refused(residue, Error::GrantsMoved)?;
    let key = new_key(&ApiKey::random(s.env()), &admin.tenant()?, Role::App);
    let added = admin.act::<action::ManageKeys, _>(|pass| {
        disturb(s)?;
        block::on(b.add_key(pass, key, now))
    });
    refused(added, Error::GrantsMoved)?;
    let revoked = admin.act::<action::ManageKeys, _>(|pass| {
        disturb(s)?;
        block::on(b.revoke_key(pass, s.keys().app.id(), now))
    });
    refused(revoked, Error::GrantsMoved)?;
    let checkpoint = admin.act::<action::ReadEvidence, _>(|pass| {
        disturb(s)?;
        block::on(b.checkpoint(pass))
    });
    refused(checkpoint, Error::GrantsMoved)?;
    let proof = admin.act::<action::ReadEvidence, _>(|pass| {
        disturb(s)?;
        block::on(b.proof(pass, 0))
    });
    refused(proof, Error::GrantsMoved)
}

fn reads_of_old_capabilities(s: &dyn Subject) -> Result<(), Failure> {
    let (b, now) = (s.backend(), s.env_now());
    let anna = app(s, "anna");
    let id = anna.keep(note("early"))?;
    let query = ask(s, "early")?;
    let recalled = anna.act::<action::Recall, _>(|pass| {
        disturb(s)?;
        block::on(b.recall(pass, &query))
    });
    refused(recalled, Error::GrantsMoved)?;
    let keys = [Key::Memory(id)];
    let fetched = anna.act::<action::ReadMemory, _>(|pass| {
        disturb(s)?;
        block::on(b.fetch(pass, &keys, now))
    });
    refused(fetched, Error::GrantsMoved)?;
    let listing = Listing::Memories { kinds: KindSet::all(), conversation: None };
    let page = ScanQuery { listing, after: None, limit: PageSize::default(), interval: None, now };
    let scanned = anna.act::<action::ReadMemory, _>(|pass| {
        disturb(s)?;
        block::on(b.scan(pass, &page))
    });
    refused(scanned, Error::GrantsMoved)?;
    let cost = anna.act::<action::Assemble, _>(|pass| {
        disturb(s)?;
        block::on(b.flat_cost(pass, None, now))
    });
    refused(cost, Error::GrantsMoved)
}

fn sees(actor: Actor<'_>, text: &str) -> Result<bool, Failure> {
    Ok(actor.texts(text)?.iter().any(|found| found == text))
}

/// A new member reads and writes at once, a former member does neither from the next request on.
pub fn r_029_a_membership_counts_from_the_next_request_on(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna, carl) = (tenant_admin(s), app(s, "anna"), app(s, "carl"));
    let sales = || -> Result<_, Failure> { Ok(NewOwner::Group(group("sales")?)) };
    admin.create_group("sales")?;
    admin.add("sales", "carl")?;
    let id = carl.keep(note("sales numbers").owner(sales()?))?;
    ensure(!sees(anna, "sales numbers")?, "seen before the membership")?;
    admin.add("sales", "anna")?;
    ensure(sees(anna, "sales numbers")?, "not seen after the membership began")?;
    anna.correct(&id, Some(1), note("sales numbers"))?;
    admin.remove("sales", "anna")?;
    ensure(!sees(anna, "sales numbers")?, "seen after the membership ended")?;
    ensure(anna.memory(&id)?.is_none(), "found by id after the membership ended")?;
    refused(anna.correct(&id, None, note("x")), Error::NotFound)?;
    refused(anna.remember(note("x").owner(sales()?)), Error::NotFound)?;
    ensure(sees(carl, "sales numbers")?, "the other member lost sight")
}

/// A directory that lies about memberships.
struct Liar<'s> {
    truth: &'s dyn Backend,
    groups: BTreeSet<GroupId>,
}

impl GrantSource for Liar<'_> {
    fn grants<'a>(
        &'a self,
        tenant: &'a TenantId,
        principal: &'a Principal,
    ) -> Fut<'a, Result<Option<Grants>, GrantError>> {
        Box::pin(async move {
            let grants = self.truth.grants(tenant, principal).await?;
            Ok(grants.map(|grants| Grants { groups: self.groups.clone(), ..grants }))
        })
    }
}

/// A capability says who, where and what for; who is a member of what the store knows better (I-2).
pub fn i_002_groups_that_a_capability_claims_open_nothing(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna, bob, b) = (tenant_admin(s), app(s, "anna"), app(s, "bob"), s.backend());
    admin.create_group("board")?;
    admin.add("board", "bob")?;
    let owner = || -> Result<_, Failure> { Ok(NewOwner::Group(group("board")?)) };
    let id = bob.keep(note("board secret").owner(owner()?))?;
    let groups = admin.act::<action::ReadDirectory, _>(|pass| block::on(b.groups(pass)))?;
    let liar = Liar { truth: b, groups: groups.into_iter().map(|group| group.id).collect() };
    let request = anna.request()?;
    let denied = |_| Failure::new("not authorised");
    let pass = block::on(authorize::<action::Recall>(&liar, &request)).map_err(denied)?;
    let found = block::on(b.recall(&pass, &ask(s, "board secret")?))?;
    same(found.candidates.len(), 0, "hits of a claimed group")?;
    let (keys, now) = ([Key::Memory(id)], s.env_now());
    let fetched = block::on(b.fetch(&pass, &keys, now))?;
    ensure(fetched.iter().all(Option::is_none), "found by id through a claimed group")?;
    same(block::on(b.flat_cost(&pass, None, now))?.items, 0, "items of a claimed group")?;
    let pass = block::on(authorize::<action::RememberShared>(&liar, &request)).map_err(denied)?;
    let writes = vec![Write::Remember(note("by a liar").owner(owner()?).build(s)?)];
    let written = block::on(b.commit(Batch::writes(&pass, writes, None, now)));
    refused(written.map_err(Failure::from), Error::NotFound)
}

/// Generations are per tenant.
pub fn r_029_the_grants_of_one_tenant_do_not_move_another_s(s: &dyn Subject) -> Result<(), Failure> {
    let other_key = second_tenant(s)?;
    let other = actor(s, &other_key, Some("anna"));
    other.keep(note("kept"))?;
    let query = ask(s, "kept")?;
    let recalled = other.act::<action::Recall, _>(|pass| {
        disturb(s)?;
        block::on(s.backend().recall(pass, &query))
    })?;
    same(recalled.candidates.len(), 1, "hits")
}

/// What goes along when a person changes the organisation is said by each tenant for itself.
pub fn r_033_the_rule_for_a_change_of_the_organisation_is_the_tenants_own(
    s: &dyn Subject,
) -> Result<(), Failure> {
    let rule = |who: &Actor<'_>| {
        who.act::<action::ReadSwitch, _>(|pass| block::on(s.backend().organisation_switch(pass)))
    };
    let admin = tenant_admin(s);
    let other = second_tenant(s)?;
    same(rule(&admin)?, OrganisationSwitch::StartNew, "rule that nobody set")?;
    let n_entries = admin.entries()?.len();
    for switch in [OrganisationSwitch::Continue, OrganisationSwitch::ApprovedSummary] {
        admin.change(DirectoryChange::SetSwitch(switch))?;
        admin.change(DirectoryChange::SetSwitch(switch))?;
        same(rule(&app(s, "anna"))?, switch, "rule")?;
    }
    same(admin.entries()?.len(), n_entries + 2, "entries; the same rule again is none")?;
    same(rule(&actor(s, &other, None))?, OrganisationSwitch::StartNew, "rule of the other tenant")
}

/// A key that is revoked proves nothing any more, and what it was minted before opens nothing.
pub fn r_029_a_revoked_key_and_its_capabilities_are_worth_nothing(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, b, now) = (tenant_admin(s), s.backend(), s.env_now());
    let key = ApiKey::random(s.env());
    let mut new = new_key(&key, &admin.tenant()?, Role::Agent);
    new.credential.act_for = false;
    let new = NewKey { subject: Some(parse("anna")?), ..new };
    admin.act::<action::ManageKeys, _>(|pass| block::on(b.add_key(pass, new, now)))?;
    let bound = actor(s, &key, None);
    same(bound.id()?, app(s, "anna").id()?, "whom the key is bound to")?;
    bound.keep(note("by a bound key"))?;
    let query = ask(s, "bound key")?;
    let recalled = bound.act::<action::Recall, _>(|pass| {
        let revoked = admin.act::<action::ManageKeys, _>(|keys| block::on(b.revoke_key(keys, key.id(), now)));
        revoked.map_err(|_| Error::Damaged)?;
        block::on(b.recall(pass, &query))
    });
    refused(recalled, Error::GrantsMoved)?;
    ensure(bound.caller().is_err(), "the revoked key is still valid")?;
    same(app(s, "anna").texts("bound key")?.len(), 1, "what the key wrote")
}

/// Neither a tenant nor the instance is left without a key that makes keys: the last one stays, and what would not
/// last as long as it does not count.
pub fn r_036_the_last_key_that_makes_keys_is_not_revoked(s: &dyn Subject) -> Result<(), Failure> {
    let instance = actor(s, &s.keys().admin, None);
    for (admin, role) in [(tenant_admin(s), Role::TenantAdmin), (instance, Role::InstanceAdmin)] {
        let own = admin.caller()?.key().clone();
        refused(end_key(s, &admin, &own), Error::LastAdmin)?;
        admin.caller()?;
        let tenant = admin.tenant()?;
        let (soon, bound, next) = (ApiKey::random(s.env()), ApiKey::random(s.env()), ApiKey::random(s.env()));
        let mut ends = new_key(&soon, &tenant, role);
        ends.credential.expires_at = Some(s.env_now().plus_days(1));
        add_key(s, &admin, ends)?;
        if role == Role::TenantAdmin {
            let new = new_key(&bound, &tenant, role);
            add_key(s, &admin, NewKey { subject: Some(parse("anna")?), ..new })?;
            add_key(s, &admin, new_key(&ApiKey::random(s.env()), &tenant, Role::App))?;
        }
        refused(end_key(s, &admin, &own), Error::LastAdmin)?;
        // What does not end last may go, and again.
        end_key(s, &admin, soon.id())?;
        end_key(s, &admin, soon.id())?;
        add_key(s, &admin, new_key(&next, &tenant, role))?;
        end_key(s, &admin, &own)?;
        ensure(admin.caller().is_err(), "the revoked key is still valid")?;
        let next = actor(s, &next, None);
        refused(end_key(s, &next, next.caller()?.key()), Error::LastAdmin)?;
        next.caller()?;
    }
    Ok(())
}

pub(super) fn add_key(s: &dyn Subject, admin: &Actor<'_>, new: NewKey) -> Result<(), Failure> {
    let b = s.backend();
    admin.act::<action::ManageKeys, _>(|pass| block::on(b.add_key(pass, new, s.env_now())))
}

pub(super) fn end_key(s: &dyn Subject, admin: &Actor<'_>, key: &KeyId) -> Result<(), Failure> {
    let b = s.backend();
    admin.act::<action::ManageKeys, _>(|pass| block::on(b.revoke_key(pass, key, s.env_now())))
}

/// What a deleted group owned is seen by nobody, and a new group of the same name does not inherit it
///
pub fn r_035_a_deleted_group_takes_its_memories_out_of_sight(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna) = (tenant_admin(s), app(s, "anna"));
    admin.create_group("team")?;
    admin.add("team", "anna")?;
    let id = anna.keep(note("team secret").owner(NewOwner::Group(group("team")?)))?;
    admin.change(DirectoryChange::DeleteGroup { name: group("team")? })?;
    ensure(!sees(anna, "team secret")?, "seen after the group was deleted")?;
    admin.create_group("team")?;
    admin.add("team", "anna")?;
    ensure(!sees(anna, "team secret")?, "inherited by a new group of the same name")?;
    ensure(anna.memory(&id)?.is_none(), "found by id through a new group of the same name")
}

/// Groups with their numbers, members as the customer refers to them, and errors for what is not there.
pub fn r_035_the_directory_tells_what_it_holds(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, b) = (tenant_admin(s), s.backend());
    admin.create_group("b")?;
    admin.create_group("a")?;
    admin.add("a", "zoe")?;
    admin.add("a", "anna")?;
    admin.add("a", "anna")?;
    admin.remove("b", "anna")?;
    refused(admin.create_group("a"), Error::Exists)?;
    refused(admin.add("c", "anna"), Error::NotFound)?;
    refused(admin.remove("c", "anna"), Error::NotFound)?;
    refused(admin.change(DirectoryChange::DeleteGroup { name: group("c")? }), Error::NotFound)?;
    let groups = admin.act::<action::ReadDirectory, _>(|pass| block::on(b.groups(pass)))?;
    let listed: Vec<(&str, u64)> = groups.iter().map(|group| (group.name.as_str(), group.members)).collect();
    same(listed, vec![("a", 2), ("b", 0)], "groups")?;
    let name = group("a")?;
    let members = admin.act::<action::ReadDirectory, _>(|pass| block::on(b.members(pass, &name)))?;
    let mut members: Vec<&str> = members.iter().map(|member| member.expose()).collect();
    members.sort_unstable();
    same(members, vec!["anna", "zoe"], "members")?;
    let unknown = group("c")?;
    refused(
        admin.act::<action::ReadDirectory, _>(|pass| block::on(b.members(pass, &unknown))),
        Error::NotFound,
    )
}
