//! Sources: what the trusted backend does with them. Which revision is current is decided here by the caller's
//! role and by nothing in a request or a model's words.

use std::collections::BTreeSet;

use merkwelt_authz::{Request, Scope, action};
use merkwelt_domain::memory::{Expiry, Revision};
use merkwelt_domain::source::{Region, SourceState, Terms, Title};
use merkwelt_domain::{Content, RevisionId, SourceId, Timestamp};
use merkwelt_store::change::EntryRef;
use merkwelt_store::query::Vector;
use merkwelt_store::record::Epochs;
use merkwelt_store::source::{
    NewAudience, NewPassage, NewRevision, NewSource, RevisionRecord, SourceChange, SourceProbe,
    SourceReceipt, SourceRecord, SourceResidue,
};

use crate::App;
use crate::error::{Attempt, Error, until_settled};

/// A source to register, parsed.
#[derive(Debug, Clone)]
pub struct SourceRequest {
    /// What people call it.
    pub title: Title,
    /// Where it comes from; one tenant has one source per origin.
    pub origin: Option<Content>,
    /// Who may be shown it.
    pub audience: NewAudience,
    /// What is recorded beside it.
    pub terms: Terms,
}

/// A passage of a document, parsed.
#[derive(Debug, Clone)]
pub struct PassageRequest {
    /// The words.
    pub text: Content,
    /// Headings above it.
    pub headings: Vec<Title>,
    /// Where it stands.
    pub region: Region,
}

/// A revision to take in, parsed.
#[derive(Debug, Clone)]
pub struct RevisionRequest {
    /// SHA-256 of the document as it was received.
    pub digest: [u8; 32],
    /// Its media type.
    pub media: String,
    /// From when it holds; from now on if absent.
    pub valid_from: Option<Timestamp>,
    /// Whether it becomes current at once, or waits as a draft for its approval.
    pub publish: bool,
    /// Its passages in order.
    pub passages: Vec<PassageRequest>,
}

/// What became of a revision that was sent.
#[derive(Debug, Clone)]
pub struct RevisionReceipt {
    /// The revision.
    pub revision: RevisionId,
    /// Its number.
    pub number: Revision,
    /// The same document is current already; nothing was written.
    pub unchanged: bool,
    /// Whether it is current now.
    pub published: bool,
    /// How many passages it has.
    pub passages: u32,
    /// How many of them the index holds now.
    pub indexed: u32,
    /// How many vectors were made for it.
    pub embedded: u32,
    /// How many vectors were taken over from equal passages.
    pub reused: u32,
    /// Its last entry in the ledger.
    pub entry: Option<EntryRef>,
}

/// What a removal left, asked of records and index afterwards.
#[derive(Debug, Clone)]
pub struct RemovalReceipt {
    /// Passages that were kept until then.
    pub passages: u32,
    /// What is still found.
    pub residue: SourceResidue,
    /// Its entry in the ledger; none if it was removed before.
    pub entry: Option<EntryRef>,
    /// The generations after it.
    pub epochs: Epochs,
}

impl App {
    /// Registers a source.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another source has the origin, [`Error::NotFound`] for an unknown group,
    /// [`Error::Invalid`] for an end that is past.
    pub async fn register_source(
        &self,
        request: &Request,
        wanted: &SourceRequest,
    ) -> Result<SourceId, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ManageSources>(request).await?;
            let now = self.env.now();
            if matches!(wanted.terms.expiry, Expiry::At(end) if end <= now) {
                return Err(Error::invalid("expires_at", "must lie in the future").into());
            }
            let new = NewSource {
                id: SourceId::random(&*self.env),
                title: wanted.title.clone(),
                origin: wanted.origin.clone(),
                audience: wanted.audience.clone(),
                terms: wanted.terms.clone(),
            };
            let id = new.id.clone();
            self.backend.change_source(&allowed, SourceChange::Register(new), now).await?;
            Ok(id)
        })
    }

    /// Takes in a revision and, if wanted, makes it current. Only passages that changed are embedded.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown or deleted source; [`Error::Invalid`] for a revision that is to be
    /// current before it holds.
    pub async fn put_revision(
        &self,
        request: &Request,
        source: &SourceId,
        wanted: &RevisionRequest,
    ) -> Result<RevisionReceipt, Error> {
        until_settled!(self.try_put(request, source, wanted))
    }

    async fn try_put(
        &self,
        request: &Request,
        source: &SourceId,
        wanted: &RevisionRequest,
    ) -> Result<RevisionReceipt, Attempt> {
        let (now, valid_from) = (self.env.now(), wanted.valid_from);
        if wanted.publish && valid_from.is_some_and(|from| from > now) {
            // The former revision would be gone before the new one holds.
            let reason = "lies in the future: send the revision as a draft and publish it when it holds";
            return Err(Error::invalid("valid_from", reason).into());
        }
        let record = self.source_to_change(request, source).await?;
        if let Some(receipt) = self.standing_already(request, &record, wanted).await? {
            return Ok(receipt);
        }
        let known = self.known_passages(request, &record).await?;
        let allowed = self.allow::<action::ManageSources>(request).await?;
        let (passages, embedded) = self.new_passages(allowed.scope(), &wanted.passages, &known).await;
        // Embedding may have taken long: a right that went meanwhile is missed before the store misses it.
        let allowed = self.allow::<action::ManageSources>(request).await?;
        let new = NewRevision {
            id: RevisionId::random(&*self.env),
            source: source.clone(),
            digest: wanted.digest,
            media: wanted.media.clone(),
            valid_from: valid_from.unwrap_or(now),
            passages,
            opening: self.opening_key(),
        };
        let revision = new.id.clone();
        let n_passages = u32::try_from(new.passages.len()).unwrap_or(u32::MAX);
        let staged = self.backend.change_source(&allowed, SourceChange::Stage(new), now).await?;
        let mut entry = staged.entry;
        if wanted.publish {
            let change = SourceChange::Publish { source: source.clone(), revision: revision.clone() };
            entry = self.backend.change_source(&allowed, change, self.env.now()).await?.entry;
        }
        Ok(RevisionReceipt {
            number: staged.revision.ok_or(Error::Unavailable)?,
            unchanged: false,
            published: wanted.publish,
            passages: n_passages,
            indexed: self.indexed(request, source, &revision).await?,
            embedded,
            reused: staged.reused,
            entry,
            revision,
        })
    }

    /// The receipt for a document that is current already, so that sending it again changes nothing.
    async fn standing_already(
        &self,
        request: &Request,
        record: &SourceRecord,
        wanted: &RevisionRequest,
    ) -> Result<Option<RevisionReceipt>, Attempt> {
        let current = record.revisions.iter().find(|revision| Some(&revision.id) == record.current.as_ref());
        let same = current.filter(|revision| {
            revision.digest == wanted.digest
                && wanted.valid_from.is_none_or(|from| from == revision.valid_from)
        });
        let Some(revision) = same else { return Ok(None) };
        Ok(Some(RevisionReceipt {
            revision: revision.id.clone(),
            number: revision.number,
            unchanged: true,
            published: true,
            passages: revision.passages,
            indexed: self.indexed(request, &record.id, &revision.id).await?,
            embedded: 0,
            reused: 0,
            entry: None,
        }))
    }

    /// Digests of the passages that the source has already.
    async fn known_passages(
        &self,
        request: &Request,
        record: &SourceRecord,
    ) -> Result<BTreeSet<[u8; 32]>, Attempt> {
        let reader = self.allow::<action::ReadSources>(request).await?;
        let mut known = BTreeSet::new();
        if let Some(last) = record.revisions.iter().rev().find(|revision| revision.kept) {
            let manifest = self.backend.manifest(&reader, &record.id, &last.id).await?;
            known.extend(manifest.into_iter().filter(|entry| entry.kept).map(|entry| entry.digest));
        }
        Ok(known)
    }

    /// The passages with their vectors, and how many vectors were made.
    async fn new_passages(
        &self,
        scope: &Scope,
        passages: &[PassageRequest],
        known: &BTreeSet<[u8; 32]>,
    ) -> (Vec<NewPassage>, u32) {
        let mut made: Vec<NewPassage> = passages.iter().map(|passage| self.new_passage(passage)).collect();
        let texts: Vec<Content> = made
            .iter()
            .filter(|passage| !known.contains(&passage.digest))
            .map(|passage| passage.text.clone())
            .collect();
        let vectors = self.all_vectors(scope, &texts).await;
        let embedded = vectors.iter().filter(|vector| vector.is_some()).count();
        let new = made.iter_mut().filter(|passage| !known.contains(&passage.digest));
        for (passage, vector) in new.zip(vectors) {
            passage.vector = vector;
        }
        (made, u32::try_from(embedded).unwrap_or(u32::MAX))
    }

    fn new_passage(&self, passage: &PassageRequest) -> NewPassage {
        NewPassage {
            text: passage.text.clone(),
            headings: passage.headings.clone(),
            region: passage.region.clone(),
            digest: digest_of(passage),
            tokens: self.counter.count(passage.text.expose()),
            vector: None,
        }
    }

    /// How many passages of a revision the index holds.
    async fn indexed(
        &self,
        request: &Request,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<u32, Attempt> {
        let reader = self.allow::<action::ReadSources>(request).await?;
        let manifest = self.backend.manifest(&reader, source, revision).await?;
        Ok(u32::try_from(manifest.iter().filter(|entry| entry.indexed).count()).unwrap_or(u32::MAX))
    }

    /// Makes a draft current.
    ///
    /// # Errors
    /// [`Error::Conflict`]: it was approved before or is older than the current one; [`Error::Invalid`]: it
    /// does not hold yet.
    pub async fn publish_revision(
        &self,
        request: &Request,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<SourceReceipt, Error> {
        until_settled!(async {
            let record = self.source_to_change(request, source).await?;
            let now = self.env.now();
            let early = |known: &RevisionRecord| known.id == *revision && known.valid_from > now;
            if record.revisions.iter().any(early) {
                return Err(Error::invalid("revision", "does not hold yet").into());
            }
            let change = SourceChange::Publish { source: source.clone(), revision: revision.clone() };
            self.change_source(request, change).await
        })
    }

    /// Makes an approved revision current again, embedding anew what a deletion took out of the index.
    ///
    /// # Errors
    /// [`Error::NotRetained`] if its texts are gone.
    pub async fn restore_revision(
        &self,
        request: &Request,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<SourceReceipt, Error> {
        until_settled!(async {
            let record = self.source_to_change(request, source).await?;
            let vectors = match record.state {
                SourceState::Deleted => self.vectors_of(request, &record, revision).await?,
                SourceState::Draft | SourceState::Active | SourceState::Withdrawn => Vec::new(),
            };
            let (source, revision) = (source.clone(), revision.clone());
            self.change_source(request, SourceChange::Restore { source, revision, vectors }).await
        })
    }

    /// Vectors for the passages of a revision whose texts are kept; none unless all could be made.
    async fn vectors_of(
        &self,
        request: &Request,
        record: &SourceRecord,
        revision: &RevisionId,
    ) -> Result<Vec<Vector>, Attempt> {
        let allowed = self.allow::<action::ManageSources>(request).await?;
        let probes = self.backend.probes(&allowed, &record.id).await?;
        // Probes come in the order of revisions and passages.
        let mut before = 0;
        for known in record.revisions.iter().filter(|known| known.kept) {
            let n_passages = usize::try_from(known.passages).unwrap_or(usize::MAX);
            if known.id == *revision {
                let texts: Vec<Content> =
                    probes.iter().skip(before).take(n_passages).map(|probe| probe.text.clone()).collect();
                let vectors = self.all_vectors(allowed.scope(), &texts).await;
                return Ok(vectors.into_iter().collect::<Option<Vec<_>>>().unwrap_or_default());
            }
            before += n_passages;
        }
        Ok(Vec::new())
    }

    /// Throws a draft away.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a revision that was approved.
    pub async fn discard_revision(
        &self,
        request: &Request,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<SourceReceipt, Error> {
        until_settled!(async {
            let change = SourceChange::Discard { source: source.clone(), revision: revision.clone() };
            self.change_source(request, change).await
        })
    }

    /// Changes who may be shown a source; it takes effect on the next read.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown source or group.
    pub async fn admit_to_source(
        &self,
        request: &Request,
        source: &SourceId,
        audience: &NewAudience,
    ) -> Result<SourceReceipt, Error> {
        until_settled!(async {
            let change = SourceChange::Admit { source: source.clone(), audience: audience.clone() };
            self.change_source(request, change).await
        })
    }

    /// Takes a source back, and looks whether anything of it is still found.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn withdraw_source(
        &self,
        request: &Request,
        source: &SourceId,
    ) -> Result<RemovalReceipt, Error> {
        until_settled!(self.remove(request, source, SourceChange::Withdraw { source: source.clone() }))
    }

    /// Removes every passage of a source, and looks by id, by filter and by similarity whether anything is
    /// left.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn delete_source(&self, request: &Request, source: &SourceId) -> Result<RemovalReceipt, Error> {
        until_settled!(self.remove(request, source, SourceChange::Delete { source: source.clone() }))
    }

    async fn remove(
        &self,
        request: &Request,
        source: &SourceId,
        change: SourceChange,
    ) -> Result<RemovalReceipt, Attempt> {
        let allowed = self.allow::<action::ManageSources>(request).await?;
        // What is asked for afterwards is collected before it goes.
        let probes: Vec<SourceProbe> = self.backend.probes(&allowed, source).await?;
        let receipt = self.backend.change_source(&allowed, change, self.env.now()).await?;
        let residue = self.backend.source_residue(&allowed, source, &probes, self.env.now()).await?;
        Ok(RemovalReceipt {
            passages: u32::try_from(probes.len()).unwrap_or(u32::MAX),
            residue,
            entry: receipt.entry,
            epochs: receipt.epochs,
        })
    }

    async fn change_source(&self, request: &Request, change: SourceChange) -> Result<SourceReceipt, Attempt> {
        let allowed = self.allow::<action::ManageSources>(request).await?;
        Ok(self.backend.change_source(&allowed, change, self.env.now()).await?)
    }

    pub(crate) async fn source_record(
        &self,
        request: &Request,
        source: &SourceId,
    ) -> Result<SourceRecord, Attempt> {
        let allowed = self.allow::<action::ReadSources>(request).await?;
        Ok(self.backend.source(&allowed, source).await?)
    }

    /// A source for somebody who may change it: who may only look is refused before it is looked for.
    async fn source_to_change(&self, request: &Request, source: &SourceId) -> Result<SourceRecord, Attempt> {
        let _ = self.allow::<action::ManageSources>(request).await?;
        self.source_record(request, source).await
    }

    /// Whether a revision may be sent for a source, asked before the document is read.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn expect_revision(&self, request: &Request, source: &SourceId) -> Result<SourceRecord, Error> {
        until_settled!(self.source_to_change(request, source))
    }
}

/// SHA-256 of headings and words: what a vector is made from.
fn digest_of(passage: &PassageRequest) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for heading in &passage.headings {
        context.update(heading.expose().as_bytes());
        context.update(b"\n");
    }
    context.update(b"\n");
    context.update(passage.text.expose().as_bytes());
    let mut out = [0; 32];
    for (to, from) in out.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    out
}
