//! What one request could see at the moments at which it looked. Filled from the journal while the request runs;
//! its answer is compared with it when it is done.

#![expect(clippy::wildcard_enum_match_arm, reason = "each part knows its own kinds of requests")]

use std::collections::BTreeSet;

use merkwelt_domain::memory::Kind;
use merkwelt_domain::routing::{StateChoice, route};
use merkwelt_store::Error;

use crate::journal::{Call, Event, Recorded};
use crate::marker::{Serial, words_in};
use crate::model::{Asker, Model, Tenant};
use crate::plan::{Client, Op, Plan, TurnsIn, text_of};

/// A read event that took effect, and what could be served then.
#[derive(Debug, Clone)]
pub(crate) struct Landed {
    pub(crate) recorded: Recorded,
    pub(crate) allowed: BTreeSet<Serial>,
    pub(crate) asker: Asker,
    /// The caller's key was ended by then.
    pub(crate) key_ended: bool,
}

/// What a request saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// A fault was injected into one of its calls.
    pub(crate) faulted: bool,
    /// Its key, its person or a group of it changed while it ran.
    pub(crate) disturbed: bool,
    /// Calls that were refused because something moved.
    pub(crate) moved: u32,
    /// Whether the key was live when it was looked up.
    pub(crate) live: Option<bool>,
    pub(crate) considered: Option<usize>,
    /// Whether what a search aims at could be found.
    pub(crate) aimed: bool,
    pub(crate) rules: BTreeSet<Serial>,
    pub(crate) facts: BTreeSet<Serial>,
    pub(crate) listed: Option<BTreeSet<Serial>>,
    /// Whether what is asked for by id was there.
    pub(crate) found: Option<bool>,
    /// Records and words of everything as one flat list.
    pub(crate) flat: Option<(usize, usize)>,
    pub(crate) landed: Vec<Landed>,
    pub(crate) denials: u32,
    /// For whom the request acted when its permissions were last asked.
    pub(crate) life: Asker,
    /// Whether the write could succeed when it was made.
    pub(crate) writable: Option<bool>,
    /// Whether a write took effect.
    pub(crate) wrote: bool,
    /// The kinds a pack looked for.
    pub(crate) kinds: Vec<Kind>,
}

impl View {
    /// Notes what a call could see. The model is as it was when the call was made.
    pub(crate) fn note(&mut self, event: &Event, plan: &Plan, model: &Model, clients: &[Client]) {
        self.faulted |= event.faulted;
        if matches!(event.told, Err(Error::GrantsMoved | Error::ContentMoved)) {
            self.moved += 1;
        }
        let Some(tenant) = model.tenants.get(plan.tenant) else { return };
        let client = clients.get(plan.client);
        let asker = plan.asker(tenant);
        match &event.call {
            Call::Credential => self.live = client.filter(|client| !client.unsure).map(|c| !c.revoked),
            Call::Recall(now) if event.told.is_ok() => self.note_search(plan, tenant, asker, now.millis()),
            Call::Scan(now) if event.told.is_ok() => {
                self.listed = Some(listed(plan, tenant, asker, now.millis()));
            }
            // A conversation that went between two looks is not found by the second.
            Call::Scan(now) if event.told == Err(Error::NotFound) => {
                self.found = found(plan, tenant, asker, now.millis());
            }
            Call::Fetch(now) if event.told.is_ok() => self.found = found(plan, tenant, asker, now.millis()),
            Call::Flat(now) if event.told.is_ok() => {
                self.flat = Some(flat(plan, tenant, asker, now.millis()));
            }
            Call::Read(at, recorded) if event.landed => {
                let allowed = if recorded.pack {
                    tenant.rebuildable(asker, at.millis())
                } else {
                    let mut allowed = tenant.servable(asker, at.millis());
                    allowed.extend(sitting(plan, tenant, asker));
                    allowed
                };
                let key_ended = client.is_some_and(|client| client.revoked && !client.unsure);
                self.landed.push(Landed { recorded: (**recorded).clone(), allowed, asker, key_ended });
            }
            Call::Denial if event.landed => self.denials += 1,
            Call::Grants => self.life = asker,
            Call::Recall(_)
            | Call::Scan(_)
            | Call::Fetch(_)
            | Call::Flat(_)
            | Call::Read(..)
            | Call::Denial
            | Call::Write(..)
            | Call::Directory
            | Call::Erase(..)
            | Call::AddKey
            | Call::RevokeKey(_)
            | Call::Look => {}
        }
    }

    fn note_search(&mut self, plan: &Plan, tenant: &Tenant, asker: Asker, now: i64) {
        self.kinds = match &plan.op {
            Op::Recall { kinds, .. } => kinds.iter().copied().filter(|k| *k != Kind::Feedback).collect(),
            Op::Context { words, .. } => {
                let state = route(words, StateChoice::Auto).looks().then_some(Kind::ProjectState);
                [Kind::UserFact, Kind::Reference].into_iter().chain(state).collect()
            }
            _ => Vec::new(),
        };
        let mut seen = tenant.serials(asker, now, &self.kinds);
        seen.extend(match &plan.op {
            Op::Recall { turns: TurnsIn::All, .. } => tenant.turns(asker, now, None),
            Op::Recall { turns: TurnsIn::Of(talk), .. } if talk.0 == plan.tenant => {
                tenant.turns(asker, now, Some(talk.1))
            }
            _ => BTreeSet::new(),
        });
        self.considered = Some(seen.len());
        self.aimed = matches!(&plan.op, Op::Recall { aim: Some(aim), .. } if seen.contains(aim));
        self.rules = tenant.serials(asker, now, &[Kind::Feedback]);
        self.facts = tenant.serials(asker, now, &[Kind::UserFact]);
    }
}

/// Turns of the sitting that a request may show.
fn sitting(plan: &Plan, tenant: &Tenant, asker: Asker) -> BTreeSet<Serial> {
    let talk = match &plan.op {
        Op::ReadTalk { talk, .. } | Op::Context { talk: Some(talk), .. } if talk.0 == plan.tenant => talk.1,
        _ => return BTreeSet::new(),
    };
    let own = asker.and_then(|asker| tenant.own_talk(talk, asker));
    own.map(|talk| talk.said.iter().map(|said| said.serial).collect()).unwrap_or_default()
}

/// What a listing should hold, before it is cut into pages.
fn listed(plan: &Plan, tenant: &Tenant, asker: Asker, now: i64) -> BTreeSet<Serial> {
    match &plan.op {
        Op::List { kinds, .. } => tenant.serials(asker, now, kinds),
        Op::ReadTalk { talk, .. } if talk.0 == plan.tenant => tenant.turns(asker, now, Some(talk.1)),
        _ => BTreeSet::new(),
    }
}

/// Whether what a plan names by id is there for the asker.
fn found(plan: &Plan, tenant: &Tenant, asker: Asker, now: i64) -> Option<bool> {
    let own_talk = |talk: &(usize, usize, _)| {
        talk.0 == plan.tenant && asker.is_some_and(|asker| tenant.own_talk(talk.1, asker).is_some())
    };
    match &plan.op {
        Op::Read { id } => Some(tenant.current(asker, now).any(|item| item.id.as_ref() == Some(id))),
        Op::ReadTalk { talk, .. } | Op::Say { talk, .. } => Some(own_talk(talk)),
        Op::Context { talk, .. } => Some(talk.as_ref().is_none_or(own_talk)),
        _ => None,
    }
}

fn flat(plan: &Plan, tenant: &Tenant, asker: Asker, now: i64) -> (usize, usize) {
    let mut serials = tenant.serials(asker, now, &Kind::ALL);
    if let Op::Context { talk: Some(talk), .. } = &plan.op
        && talk.0 == plan.tenant
    {
        serials.extend(tenant.turns(asker, now, Some(talk.1)));
    }
    let words = serials.iter().map(|serial| text_of(*serial).split_whitespace().count()).sum();
    (serials.len(), words)
}

/// The words in a part of an answer.
pub(crate) fn words_at(answer: &serde_json::Value, pointer: &str) -> BTreeSet<Serial> {
    words_in(answer.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default())
}
