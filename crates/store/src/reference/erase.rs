//! Erasing a subject and looking for what is left. A capability for an erasure keeps working for the subject
//! that it erased: there is nothing left that a change of grants could protect, and proving the erasure
//! must not register the person again.

use merkwelt_authz::{Pass, class};
use merkwelt_domain::memory::Owner;
use merkwelt_domain::{ConversationId, SubjectId, TenantId, Timestamp};

use super::rows::State;
use super::view::View;
use crate::error::Error;
use crate::evidence::{erasure_receipt_draft, erasure_requested_draft};
use crate::ports::{Erased, Residue};

/// Erases the subject of the scope.
pub(super) fn erase(
    state: &mut State,
    pass: &Pass<'_, class::Erase>,
    now: Timestamp,
) -> Result<Erased, Error> {
    let (tenant, scope) = (pass.scope().tenant(), pass.scope().subject());
    let subject = scope.ok_or(Error::NotFound)?;
    if state.is_erased(tenant, subject) {
        let subject = subject.clone();
        return Ok(Erased { subject, memories: 0, conversations: 0, turns: 0, evidence: 0 });
    }
    View::open(state, pass)?;
    let requested = erasure_requested_draft(pass)?;
    let erased = purge(state, tenant, subject);
    state.forget(tenant, subject, now);
    state.append(tenant, &[requested, erasure_receipt_draft(pass, &erased)?], now)?;
    let cell = state.cells.get_mut(tenant).ok_or(Error::NotFound)?;
    cell.epochs.grants = cell.epochs.grants.next();
    cell.epochs.content = cell.epochs.content.next();
    cell.epochs.prefix = cell.epochs.prefix.next();
    Ok(erased)
}

/// Removes content and evidence, and says how much it was.
fn purge(state: &mut State, tenant: &TenantId, subject: &SubjectId) -> Erased {
    let whose = Owner::Subject(subject.clone());
    let conversations: Vec<ConversationId> = state
        .conversations
        .iter()
        .filter(|row| row.tenant == *tenant && row.conversation.owner == *subject)
        .map(|row| row.conversation.id.clone())
        .collect();
    for row in &mut state.memories {
        // A shared memory stays, but no longer says in whose conversation it arose.
        if row.tenant == *tenant
            && row.memory.conversation.as_ref().is_some_and(|c| conversations.contains(c))
        {
            row.memory.conversation = None;
        }
    }
    Erased {
        subject: subject.clone(),
        memories: take(&mut state.memories, |row| row.tenant == *tenant && row.memory.owner == whose),
        turns: take(&mut state.turns, |row| row.tenant == *tenant && row.owner == *subject),
        conversations: take(&mut state.conversations, |row| {
            row.tenant == *tenant && row.conversation.owner == *subject
        }),
        evidence: take(&mut state.openings, |row| {
            row.tenant == *tenant && row.owner.as_ref() == Some(&whose)
        }) + take(&mut state.packs, |row| {
            row.tenant == *tenant && row.owner.as_ref() == Some(subject)
        }),
    }
}

/// Removes the rows that match and counts them.
fn take<T>(rows: &mut Vec<T>, matches: impl Fn(&T) -> bool) -> u64 {
    let before = rows.len();
    rows.retain(|row| !matches(row));
    count(before - rows.len())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl State {
    /// Removes who the subject was: reference, memberships, tag key, remembered answers; its keys end.
    fn forget(&mut self, tenant: &TenantId, subject: &SubjectId, now: Timestamp) {
        for row in &mut self.subjects {
            if row.tenant == *tenant && row.id == *subject {
                row.reference = None;
            }
        }
        for info in self.keys.values_mut() {
            let credential = &mut info.credential;
            if credential.tenant == *tenant && credential.subject.as_ref() == Some(subject) {
                credential.revoked_at.get_or_insert(now);
            }
        }
        self.members.retain(|row| !(row.tenant == *tenant && row.subject == *subject));
        self.answered.retain(|row| !(row.tenant == *tenant && row.subject.as_ref() == Some(subject)));
        self.tag_keys.remove(&(tenant.clone(), Owner::Subject(subject.clone())));
    }
}

/// Counts what is left of a subject, by looking at every list.
pub(super) fn residue(
    state: &State,
    pass: &Pass<'_, class::Erase>,
    subject: &SubjectId,
) -> Result<Residue, Error> {
    let tenant = pass.scope().tenant();
    let own_erasure = pass.scope().subject() == Some(subject) && state.is_erased(tenant, subject);
    if !own_erasure {
        View::open(state, pass)?;
    }
    let whose = Owner::Subject(subject.clone());
    let memories = state.memories.iter().filter(|row| row.tenant == *tenant && row.memory.owner == whose);
    let turns = state.turns.iter().filter(|row| row.tenant == *tenant && row.owner == *subject);
    let indexed = memories.clone().count() + turns.clone().count();
    let rows = [
        indexed,
        state
            .conversations
            .iter()
            .filter(|row| row.tenant == *tenant && row.conversation.owner == *subject)
            .count(),
        state.packs.iter().filter(|row| row.tenant == *tenant && row.owner.as_ref() == Some(subject)).count(),
        state
            .openings
            .iter()
            .filter(|row| row.tenant == *tenant && row.owner.as_ref() == Some(&whose))
            .count(),
        state
            .answered
            .iter()
            .filter(|row| row.tenant == *tenant && row.subject.as_ref() == Some(subject))
            .count(),
        usize::from(state.is_active(tenant, subject)),
    ];
    let members = state.members.iter().filter(|row| row.tenant == *tenant && row.subject == *subject);
    Ok(Residue {
        rows: count(rows.iter().sum()),
        // The index is made anew from the rows for every search, so it holds what they hold.
        indexed: count(indexed),
        keys: u64::from(state.tag_keys.contains_key(&(tenant.clone(), whose))),
        memberships: count(members.count()),
    })
}
