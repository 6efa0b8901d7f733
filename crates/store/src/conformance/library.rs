//! What the checks of sources do with a source, in short words.

use std::collections::BTreeSet;

use merkwelt_authz::action;
use merkwelt_domain::memory::{Expiry, NoExpiryReason, Revision};
use merkwelt_domain::source::{EvidencePolicy, Passage, PassageId, Region, RegionUnit, Terms};
use merkwelt_domain::{RevisionId, SourceId};
use ring::digest::{SHA256, digest};

use super::actor::{Actor, actor, group, parse};
use super::failure::ensure;
use super::note::{ask, content, opening, vector};
use super::subject::Subject;
use super::{Failure, block};
use crate::query::{Key, RecallQuery, Turns};
use crate::record::{Found, Record};
use crate::source::{
    NewAudience, NewPassage, NewRevision, NewSource, SourceChange, SourceProbe, SourceReceipt, SourceRecord,
    SourceResidue,
};

/// The customer's backend, for nobody in particular.
pub(super) fn backend(s: &dyn Subject) -> Actor<'_> {
    actor(s, &s.keys().app, None)
}

impl Actor<'_> {
    #[track_caller]
    pub(super) fn change_source(&self, change: SourceChange) -> Result<SourceReceipt, Failure> {
        let now = self.subject.env_now();
        self.act::<action::ManageSources, _>(|pass| {
            block::on(self.subject.backend().change_source(pass, change, now))
        })
    }

    pub(super) fn register(
        &self,
        title: &str,
        audience: NewAudience,
        evidence: EvidencePolicy,
    ) -> Result<SourceId, Failure> {
        let id = SourceId::random(self.subject.env());
        let expiry = Expiry::Never(NoExpiryReason::CompanyKnowledge);
        let origin = Some(content(&format!("file:///{title}"))?);
        let terms = Terms { expiry, evidence, purpose: None };
        let new = NewSource { id: id.clone(), title: parse(title)?, origin, audience, terms };
        self.change_source(SourceChange::Register(new))?;
        Ok(id)
    }

    /// Takes in a revision of these texts and says how many vectors were taken over.
    pub(super) fn stage(
        &self,
        source: &SourceId,
        texts: &[(&str, Option<[f32; 3]>)],
    ) -> Result<(RevisionId, u32), Failure> {
        let id = RevisionId::random(self.subject.env());
        let passages = (1_u32..).zip(texts).map(|(at, (text, near))| {
            Ok(NewPassage {
                text: content(text)?,
                headings: Vec::new(),
                region: Region::new(Some(1), RegionUnit::Line, (at, at), None)
                    .map_err(|e| Failure::new(e.to_string()))?,
                digest: sha256(text),
                tokens: 4,
                vector: near.map(|values| vector(self.subject, values)),
            })
        });
        let new = NewRevision {
            id: id.clone(),
            source: source.clone(),
            digest: sha256(&texts.iter().map(|(text, _)| *text).collect::<String>()),
            media: "text/plain".to_owned(),
            valid_from: self.subject.env_now(),
            passages: passages.collect::<Result<_, Failure>>()?,
            opening: opening(self.subject),
        };
        let reused = self.change_source(SourceChange::Stage(new))?.reused;
        Ok((id, reused))
    }

    pub(super) fn publish(&self, source: &SourceId, revision: &RevisionId) -> Result<SourceReceipt, Failure> {
        self.change_source(SourceChange::Publish { source: source.clone(), revision: revision.clone() })
    }

    /// Takes in and publishes.
    pub(super) fn replace(&self, source: &SourceId, texts: &[&str]) -> Result<RevisionId, Failure> {
        let texts: Vec<_> = texts.iter().map(|text| (*text, None)).collect();
        let (revision, _) = self.stage(source, &texts)?;
        self.publish(source, &revision)?;
        Ok(revision)
    }

    pub(super) fn source(&self, id: &SourceId) -> Result<SourceRecord, Failure> {
        self.act::<action::ReadSources, _>(|pass| block::on(self.subject.backend().source(pass, id)))
    }

    pub(super) fn probes(&self, id: &SourceId) -> Result<Vec<SourceProbe>, Failure> {
        self.act::<action::ManageSources, _>(|pass| block::on(self.subject.backend().probes(pass, id)))
    }

    pub(super) fn source_residue(
        &self,
        id: &SourceId,
        probes: &[SourceProbe],
    ) -> Result<SourceResidue, Failure> {
        let now = self.subject.env_now();
        self.act::<action::ManageSources, _>(|pass| {
            block::on(self.subject.backend().source_residue(pass, id, probes, now))
        })
    }

    /// The passages that a question finds, best first.
    pub(super) fn passages(&self, question: &str) -> Result<Vec<Passage>, Failure> {
        self.passages_of(&documents(self.subject, question)?)
    }

    pub(super) fn passages_of(&self, query: &RecallQuery) -> Result<Vec<Passage>, Failure> {
        let found = self.recall(query)?;
        let passage = |record| match record {
            Record::Passage(passage) => Some(passage),
            Record::Memory(_) | Record::Turn(_) => None,
        };
        Ok(found.candidates.into_iter().filter_map(|candidate| passage(candidate.record)).collect())
    }

    pub(super) fn passage(&self, key: Key) -> Result<Option<Passage>, Failure> {
        match self.fetch(key)? {
            Some(Found::Passage(passage)) => Ok(Some(passage)),
            None => Ok(None),
            Some(
                Found::Memory(_)
                | Found::Conversation(..)
                | Found::Turn(_)
                | Found::Pack(_)
                | Found::Source(_),
            ) => Err(Failure::new("a passage's key found something else")),
        }
    }

    pub(super) fn current(&self, id: &SourceId) -> Result<Option<Revision>, Failure> {
        match self.fetch(Key::Source(id.clone()))? {
            Some(Found::Source(head)) => Ok(Some(head.revision)),
            None => Ok(None),
            Some(
                Found::Memory(_)
                | Found::Conversation(..)
                | Found::Turn(_)
                | Found::Pack(_)
                | Found::Passage(_),
            ) => Err(Failure::new("a source's key found something else")),
        }
    }

    /// No path shows anything of a source, to this caller.
    pub(super) fn sees_nothing_of(
        &self,
        id: &SourceId,
        passages: &[PassageId],
        words: &str,
    ) -> Result<(), Failure> {
        let found = self.passages(words)?;
        ensure(found.iter().all(|passage| passage.source != *id), "a search shows what may not be shown")?;
        ensure(self.current(id)?.is_none(), "the source's key shows what may not be shown")?;
        for passage in passages {
            let keys = [Key::Passage(passage.clone()), Key::PassageAt(passage.clone())];
            for key in keys {
                ensure(self.passage(key)?.is_none(), "a passage's key shows what may not be shown")?;
            }
        }
        Ok(())
    }
}

pub(super) fn sha256(text: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    out
}

/// A question to passages only.
pub(super) fn documents(s: &dyn Subject, question: &str) -> Result<RecallQuery, Failure> {
    let kinds = crate::query::KindSet::of([]);
    Ok(RecallQuery { documents: true, kinds, turns: Turns::None, ..ask(s, question)? })
}

pub(super) fn texts(passages: &[Passage]) -> Vec<&str> {
    passages.iter().map(|passage| passage.text.expose()).collect()
}

pub(super) fn first(revision: &RevisionId) -> PassageId {
    PassageId { revision: revision.clone(), number: 1 }
}

pub(super) fn groups(names: &[&str]) -> Result<NewAudience, Failure> {
    Ok(NewAudience::Groups(names.iter().map(|name| group(name)).collect::<Result<BTreeSet<_>, _>>()?))
}
