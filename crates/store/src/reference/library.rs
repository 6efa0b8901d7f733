//! The register of sources of the reference backend: full scans over one list, as everywhere here.

mod port;

use std::collections::{BTreeMap, BTreeSet};

use merkwelt_authz::{Pass, class};
use merkwelt_domain::freshness::admit;
use merkwelt_domain::memory::Revision;
use merkwelt_domain::source::{
    Approval, Audience, EvidencePolicy, Passage, PassageId, Region, SourceHead, SourceState, Title,
};
use merkwelt_domain::{Content, GroupId, Interval, RevisionId, SourceId, TenantId, Timestamp};
use merkwelt_ledger::commitment::Commitment;

use super::rows::{OpeningRow, State};
use super::view::View;
use crate::error::Error;
use crate::evidence::{source_draft, token};
use crate::query::Vector;
use crate::register::{self, Effect};
use crate::source::{
    ManifestEntry, NewAudience, NewPassage, NewRevision, NewSource, RevisionRecord, SourceChange,
    SourceProbe, SourceReceipt, SourceRecord, SourceResidue,
};

/// A source with all that is kept of it.
#[derive(Clone)]
pub(super) struct SourceRow {
    pub(super) tenant: TenantId,
    record: SourceRecord,
    ended_at: Timestamp,
    superseded: BTreeMap<RevisionId, (Revision, Timestamp)>,
    passages: BTreeMap<RevisionId, Vec<PassageRow>>,
}

/// A passage; its words are gone once they were removed.
#[derive(Clone)]
struct PassageRow {
    digest: [u8; 32],
    region: Region,
    tokens: u32,
    words: Option<(Content, Vec<Title>)>,
    vector: Option<Vector>,
}

/// A passage as a search sees it.
#[derive(Clone)]
pub(super) struct Shown<'s> {
    pub(super) passage: Passage,
    pub(super) vector: Option<&'s Vector>,
}

impl PassageRow {
    fn of(new: NewPassage, former: &BTreeMap<[u8; 32], Vector>) -> (Self, bool) {
        let taken = new.vector.is_none().then(|| former.get(&new.digest).cloned()).flatten();
        let reused = taken.is_some();
        let row = Self {
            digest: new.digest,
            region: new.region,
            tokens: new.tokens,
            words: Some((new.text, new.headings)),
            vector: new.vector.or(taken),
        };
        (row, reused)
    }
}

impl SourceRow {
    /// Every passage whose words are kept, with what became of it.
    fn passages(&self) -> impl Iterator<Item = Shown<'_>> {
        let of_revision = move |revision: &RevisionRecord| {
            let rows = self.passages.get(&revision.id).map(Vec::as_slice).unwrap_or_default();
            let revision = revision.clone();
            (1_u32..).zip(rows).filter_map(move |(number, row)| self.show(&revision, number, row))
        };
        self.record.revisions.iter().flat_map(of_revision)
    }

    fn show<'s>(&'s self, revision: &RevisionRecord, number: u32, row: &'s PassageRow) -> Option<Shown<'s>> {
        let (text, headings) = row.words.clone()?;
        let passage = Passage {
            id: PassageId { revision: revision.id.clone(), number },
            source: self.record.id.clone(),
            revision: revision.number,
            title: self.record.title.clone()?,
            headings,
            text,
            region: row.region.clone(),
            document: revision.digest,
            audience: self.record.audience.clone(),
            received_at: revision.received_at,
            valid_from: revision.valid_from,
            expiry: self.record.terms.expiry,
            standing: register::standing(
                self.record.state,
                self.record.current.as_ref() == Some(&revision.id),
                self.superseded.get(&revision.id).copied(),
                self.ended_at,
            ),
            tokens: row.tokens,
        };
        Some(Shown { passage, vector: row.vector.as_ref() })
    }

    /// Vectors by the digest of the passage they were made for.
    fn vectors(&self) -> BTreeMap<[u8; 32], Vector> {
        let rows = self.passages.values().flatten();
        rows.filter_map(|row| Some((row.digest, row.vector.clone()?))).collect()
    }

    fn make_current(
        &mut self,
        id: &RevisionId,
        number: Revision,
        instead_of: Option<RevisionId>,
        at: Timestamp,
    ) {
        if let Some(former) = instead_of {
            self.superseded.insert(former, (number, at));
        }
        self.superseded.remove(id);
        self.record.current = Some(id.clone());
        self.record.state = SourceState::Active;
        for revision in &mut self.record.revisions {
            if revision.id == *id {
                revision.approval = Approval::Approved;
                revision.published_at.get_or_insert(at);
            }
        }
    }

    fn remove(&mut self, at: Timestamp) {
        let keeps = self.record.terms.evidence == EvidencePolicy::DigestWithCopy;
        for row in self.passages.values_mut().flatten() {
            row.vector = None;
            if !keeps {
                row.words = None;
            }
        }
        if !keeps {
            self.record.title = None;
            self.record.origin = None;
            for revision in &mut self.record.revisions {
                revision.kept = false;
            }
        }
        self.end(SourceState::Deleted, at);
    }

    /// What is current until then counts as replaced by nothing.
    fn end(&mut self, state: SourceState, at: Timestamp) {
        self.record.state = state;
        self.record.current = None;
        self.ended_at = at;
    }
}

impl State {
    /// The sources of a tenant.
    fn sources_of<'s>(&'s self, tenant: &'s TenantId) -> impl Iterator<Item = &'s SourceRow> {
        self.sources.iter().filter(move |row| row.tenant == *tenant)
    }

    fn source_row(&self, tenant: &TenantId, id: &SourceId) -> Result<&SourceRow, Error> {
        self.sources.iter().find(|row| row.tenant == *tenant && row.record.id == *id).ok_or(Error::NotFound)
    }

    /// Every passage that this caller may be shown now, whatever became of it, of sources that are active.
    pub(super) fn passages<'s>(&'s self, view: &'s View) -> impl Iterator<Item = Shown<'s>> {
        self.sources
            .iter()
            .filter(|row| view.is_shown(&row.tenant, &row.record.audience))
            .filter(|row| row.record.state == SourceState::Active)
            .flat_map(SourceRow::passages)
    }

    /// Every passage of everybody, for an engine that looks at no filter.
    pub(super) fn all_passages(&self) -> impl Iterator<Item = Shown<'_>> {
        self.sources.iter().flat_map(SourceRow::passages)
    }

    /// Vectors of passages of a tenant.
    pub(super) fn passage_vectors<'s>(&'s self, tenant: &'s TenantId) -> impl Iterator<Item = &'s Vector> {
        let rows = self.sources_of(tenant).flat_map(|row| row.passages.values().flatten());
        rows.filter_map(|row| row.vector.as_ref())
    }

    /// The passages that may be served as current.
    pub(super) fn current_passages<'s>(
        &'s self,
        view: &'s View,
        now: Timestamp,
        interval: Option<Interval>,
    ) -> impl Iterator<Item = Shown<'s>> {
        self.passages(view).filter(move |shown| admit(shown.passage.clone(), now, interval).is_ok())
    }

    /// Which revision of a source is current for this caller.
    pub(super) fn head(&self, view: &View, id: &SourceId, now: Timestamp) -> Option<SourceHead> {
        let row = self.source_row(&view.tenant, id).ok()?;
        if !view.is_shown(&row.tenant, &row.record.audience) {
            return None;
        }
        let current = row.record.current.as_ref()?;
        let revision = row.record.revisions.iter().find(|revision| revision.id == *current)?;
        let head = SourceHead {
            id: id.clone(),
            title: row.record.title.clone()?,
            revision: revision.number,
            revision_id: revision.id.clone(),
            valid_from: revision.valid_from,
            expiry: row.record.terms.expiry,
            knowledge: view.epochs.knowledge,
        };
        admit(head, now, None).ok().map(merkwelt_domain::freshness::Fresh::into_inner)
    }

    fn audience(&self, tenant: &TenantId, new: &NewAudience) -> Result<Audience, Error> {
        match new {
            NewAudience::Tenant => Ok(Audience::Tenant),
            NewAudience::Groups(names) => {
                let ids = names.iter().map(|name| self.group(tenant, name).ok_or(Error::NotFound));
                Ok(Audience::Groups(ids.collect::<Result<BTreeSet<GroupId>, Error>>()?))
            }
        }
    }

    /// Takes a group that is deleted out of every audience; a source that named only it is shown to nobody.
    pub(super) fn forget_group(&mut self, tenant: &TenantId, group: &GroupId) {
        for row in self.sources.iter_mut().filter(|row| row.tenant == *tenant) {
            match &mut row.record.audience {
                Audience::Groups(groups) => {
                    groups.remove(group);
                }
                Audience::Tenant => {}
            }
        }
    }
}

/// What was done, for the receipt and the evidence.
struct Done {
    revision: Option<Revision>,
    document: Option<Commitment>,
    reused: u32,
}

impl Done {
    fn to(revision: Option<Revision>) -> Self {
        Self { revision, document: None, reused: 0 }
    }
}

/// Makes one change; `None` if nothing had to change.
fn apply(state: &mut State, view: &View, change: SourceChange, at: Timestamp) -> Result<Option<Done>, Error> {
    let tenant = view.tenant.clone();
    match change {
        SourceChange::Register(new) => register_source(state, &tenant, new, at).map(Some),
        SourceChange::Stage(new) => stage(state, view, new, at).map(Some),
        SourceChange::Publish { source, revision } => {
            let effect = register::publish(&state.source_row(&tenant, &source)?.record, &revision)?;
            Ok(make_current(state, &tenant, (&source, &revision), effect, at))
        }
        SourceChange::Restore { source, revision, vectors } => {
            let effect = register::restore(&state.source_row(&tenant, &source)?.record, &revision)?;
            for vector in &vectors {
                state.check_model(view, vector)?;
            }
            let done = make_current(state, &tenant, (&source, &revision), effect, at);
            let row = row_mut(state, &tenant, &source)?;
            let passages = row.passages.get_mut(&revision).into_iter().flatten();
            for (passage, vector) in passages.zip(vectors) {
                passage.vector = Some(vector);
            }
            Ok(done)
        }
        SourceChange::Discard { source, revision } => {
            register::discard(&state.source_row(&tenant, &source)?.record, &revision)?;
            let row = row_mut(state, &tenant, &source)?;
            let number = row.record.revisions.iter().find(|r| r.id == revision).map(|r| r.number);
            row.record.revisions.retain(|r| r.id != revision);
            row.passages.remove(&revision);
            Ok(Some(Done::to(number)))
        }
        SourceChange::Admit { source, audience } => {
            let audience = state.audience(&tenant, &audience)?;
            let effect = register::admit(&state.source_row(&tenant, &source)?.record, &audience)?;
            when(effect, || row_mut(state, &tenant, &source).map(|row| row.record.audience = audience))
        }
        SourceChange::Withdraw { source } => {
            let effect = register::withdraw(&state.source_row(&tenant, &source)?.record)?;
            when(effect, || row_mut(state, &tenant, &source).map(|row| row.end(SourceState::Withdrawn, at)))
        }
        SourceChange::Delete { source } => {
            let effect = register::delete(&state.source_row(&tenant, &source)?.record);
            when(effect, || row_mut(state, &tenant, &source).map(|row| row.remove(at)))
        }
    }
}

fn when(effect: Effect, act: impl FnOnce() -> Result<(), Error>) -> Result<Option<Done>, Error> {
    match effect {
        Effect::Nothing => Ok(None),
        Effect::Happens | Effect::MakesCurrent { .. } => act().map(|()| Some(Done::to(None))),
    }
}

fn row_mut<'s>(state: &'s mut State, tenant: &TenantId, id: &SourceId) -> Result<&'s mut SourceRow, Error> {
    let own = |row: &&mut SourceRow| row.tenant == *tenant && row.record.id == *id;
    state.sources.iter_mut().find(own).ok_or(Error::NotFound)
}

fn make_current(
    state: &mut State,
    tenant: &TenantId,
    (source, revision): (&SourceId, &RevisionId),
    effect: Effect,
    at: Timestamp,
) -> Option<Done> {
    let Effect::MakesCurrent { number, instead_of } = effect else { return None };
    row_mut(state, tenant, source).ok()?.make_current(revision, number, instead_of, at);
    Some(Done::to(Some(number)))
}

fn register_source(
    state: &mut State,
    tenant: &TenantId,
    new: NewSource,
    at: Timestamp,
) -> Result<Done, Error> {
    let taken = |row: &SourceRow| {
        row.record.id == new.id || (new.origin.is_some() && row.record.origin == new.origin)
    };
    if state.sources_of(tenant).any(taken) {
        return Err(Error::Exists);
    }
    let record = SourceRecord {
        audience: state.audience(tenant, &new.audience)?,
        id: new.id,
        title: Some(new.title),
        origin: new.origin,
        terms: new.terms,
        state: SourceState::Draft,
        registered_at: at,
        current: None,
        revisions: Vec::new(),
    };
    state.sources.push(SourceRow {
        tenant: tenant.clone(),
        record,
        ended_at: at,
        superseded: BTreeMap::new(),
        passages: BTreeMap::new(),
    });
    Ok(Done::to(None))
}

fn stage(state: &mut State, view: &View, new: NewRevision, at: Timestamp) -> Result<Done, Error> {
    let number = register::stage(&state.source_row(&view.tenant, &new.source)?.record)?;
    for vector in new.passages.iter().filter_map(|passage| passage.vector.as_ref()) {
        state.check_model(view, vector)?;
    }
    if state.sources.iter().any(|row| row.record.revisions.iter().any(|r| r.id == new.id)) {
        return Err(Error::Exists);
    }
    let (document, opening) = new.opening.commit(&token("document")?, &new.digest);
    state.openings.push(OpeningRow {
        tenant: view.tenant.clone(),
        owner: None,
        keys: opening.key().expose().to_vec(),
        keep_until: None,
    });
    let row = row_mut(state, &view.tenant, &new.source)?;
    let former = row.vectors();
    let passages = u32::try_from(new.passages.len()).map_err(|_| Error::Unavailable)?;
    let (rows, reused): (Vec<PassageRow>, Vec<bool>) =
        new.passages.into_iter().map(|passage| PassageRow::of(passage, &former)).unzip();
    row.record.revisions.push(RevisionRecord {
        id: new.id.clone(),
        number,
        digest: new.digest,
        media: new.media,
        received_at: at,
        valid_from: new.valid_from,
        approval: Approval::Draft,
        published_at: None,
        passages,
        kept: true,
    });
    row.passages.insert(new.id, rows);
    let reused = u32::try_from(reused.into_iter().filter(|reused| *reused).count()).unwrap_or(u32::MAX);
    Ok(Done { revision: Some(number), document: Some(document), reused })
}

fn change(
    state: &mut State,
    pass: &Pass<'_, class::Sources>,
    change: SourceChange,
    at: Timestamp,
) -> Result<SourceReceipt, Error> {
    let view = View::open(state, pass)?;
    let (name, source) = (change.name(), change.source().clone());
    let Some(done) = apply(state, &view, change, at)? else {
        return Ok(SourceReceipt { entry: None, epochs: view.epochs, revision: None, reused: 0 });
    };
    let draft = source_draft(&view.tenant, pass.key(), name, &source, done.revision, done.document)?;
    let entry = state.append(&view.tenant, &[draft], at)?;
    let cell = state.cells.get_mut(&view.tenant).ok_or(Error::NotFound)?;
    cell.epochs.content = cell.epochs.content.next();
    cell.epochs.knowledge = cell.epochs.knowledge.next();
    Ok(SourceReceipt { entry, epochs: cell.epochs, revision: done.revision, reused: done.reused })
}

fn manifest(row: &SourceRow, revision: &RevisionId) -> Result<Vec<ManifestEntry>, Error> {
    let rows = row.passages.get(revision).ok_or(Error::NotFound)?;
    let indexed = row.record.current.as_ref() == Some(revision);
    let entry = |(number, passage): (u32, &PassageRow)| ManifestEntry {
        number,
        digest: passage.digest,
        region: passage.region.clone(),
        kept: passage.words.is_some(),
        indexed,
    };
    Ok((1_u32..).zip(rows).map(entry).collect())
}

/// Here the index is made anew from the rows for every search, so it holds what may be served.
fn residue(row: &SourceRow, probes: &[SourceProbe], now: Timestamp) -> SourceResidue {
    let served = row.passages().filter(|shown| admit(shown.passage.clone(), now, None).is_ok());
    let served: Vec<Shown<'_>> = served.collect();
    let count = u64::try_from(served.len()).unwrap_or(u64::MAX);
    let finds = |probe: &&SourceProbe| {
        served.iter().any(|shown| {
            shown.passage.text == probe.text
                || probe.vector.is_some() && shown.vector == probe.vector.as_ref()
        })
    };
    let by_similarity = u64::try_from(probes.iter().filter(finds).count()).unwrap_or(u64::MAX);
    SourceResidue { by_id: count, by_filter: count, by_similarity }
}
