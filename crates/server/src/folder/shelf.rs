//! The register of sources as a folder needs it. It is behind one trait, because the command reaches it over
//! HTTP and the connector inside the service through the use cases; neither has another way to it.

use std::collections::BTreeMap;

use merkwelt_app::PassageRequest;
use merkwelt_domain::Content;
use merkwelt_domain::source::{SourceState, Terms, Title};
use merkwelt_intake::Media;
use merkwelt_store::source::NewAudience;

use super::{Label, Refusal};

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// For this file; the others go on.
    Refused(Refusal),
    /// For all of them.
    Stop(anyhow::Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A revision of a source, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    /// Its id.
    pub(crate) revision: String,
    /// SHA-256 of its document.
    pub(crate) digest: [u8; 32],
    /// Whether its texts are kept.
    pub(crate) kept: bool,
}

/// A source of this folder in the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its id.
    pub(crate) id: String,
    /// The path it was registered under.
    pub(crate) key: String,
    /// What became of it.
    pub(crate) state: SourceState,
    /// Ids of the groups that may be shown it; `None` for everybody.
    pub(crate) groups: Option<Vec<String>>,
    /// The current revision.
    pub(crate) current: Option<Past>,
    /// The last one that was ever current.
    pub(crate) approved: Option<Past>,
    /// Drafts that are newer than all of these.
    pub(crate) drafts: Vec<Past>,
}

/// A source to register.
#[derive(Debug)]
pub(crate) struct NewEntry<'n> {
    /// What people call it.
    pub(crate) title: &'n Title,
    /// Where it comes from.
    pub(crate) origin: &'n Content,
    /// Who may be shown it.
    pub(crate) audience: &'n NewAudience,
    /// What is recorded beside it.
    pub(crate) terms: &'n Terms,
}

/// A document that was read.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// What it is.
    pub(crate) media: Media,
    /// As it lies in the folder.
    pub(crate) bytes: Vec<u8>,
    /// Its passages.
    pub(crate) passages: Vec<PassageRequest>,
}

/// What became of a document that was taken in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Put {
    /// Its revision.
    pub(crate) revision: String,
    /// How many passages it has.
    pub(crate) passages: u32,
    /// How many of them the index holds.
    pub(crate) indexed: u32,
    /// How many vectors were made.
    pub(crate) embedded: u32,
    /// How many were taken over.
    pub(crate) reused: u32,
}

/// What became of a removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Whether nothing of it is found any more.
    pub(crate) done: bool,
}

/// What became of a source, and ids of the groups that may be shown it; `None` for everybody.
pub(crate) type Standing = (SourceState, Option<Vec<String>>);

/// What a folder needs of the register. Blocks.
pub(crate) trait Shelf {
    /// The sources of a folder that are not deleted.
    fn known(&self, label: &Label) -> Result<Vec<Known>, Failure>;
    /// What became of one source, and its groups; `None` if there never was one of this id.
    fn standing(&self, source: &str) -> Result<Option<Standing>, Failure>;
    /// All groups: ids by name. `None` if whoever asks may not see them.
    fn groups(&self) -> Result<Option<BTreeMap<String, String>>, Failure>;
    /// Registers a source and returns its id.
    fn register(&self, new: &NewEntry<'_>) -> Result<String, Failure>;
    /// Takes in a revision.
    fn put(&self, source: &str, document: &Prepared, publish: bool) -> Result<Put, Failure>;
    /// Makes a draft current.
    fn publish(&self, source: &str, revision: &str) -> Result<(), Failure>;
    /// Throws a draft away.
    fn discard(&self, source: &str, revision: &str) -> Result<(), Failure>;
    /// Makes an approved revision current again.
    fn restore(&self, source: &str, revision: &str) -> Result<(), Failure>;
    /// Changes who may be shown a source; whether something changed.
    fn admit(&self, source: &str, audience: &NewAudience) -> Result<bool, Failure>;
    /// Takes a source back.
    fn withdraw(&self, source: &str) -> Result<Removal, Failure>;
    /// Deletes a source.
    fn delete(&self, source: &str) -> Result<Removal, Failure>;
}

/// A shelf that is looked at only: what would be done is answered as if it had been.
pub(crate) struct Dry<'s>(pub(crate) &'s dyn Shelf);

impl Shelf for Dry<'_> {
    fn known(&self, label: &Label) -> Result<Vec<Known>, Failure> {
        self.0.known(label)
    }

    fn groups(&self) -> Result<Option<BTreeMap<String, String>>, Failure> {
        self.0.groups()
    }

    fn standing(&self, source: &str) -> Result<Option<Standing>, Failure> {
        self.0.standing(source)
    }

    fn register(&self, _: &NewEntry<'_>) -> Result<String, Failure> {
        Ok("new".to_owned())
    }

    fn put(&self, _: &str, document: &Prepared, _: bool) -> Result<Put, Failure> {
        let passages = u32::try_from(document.passages.len()).unwrap_or(u32::MAX);
        Ok(Put { passages, ..Put::default() })
    }

    fn publish(&self, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn discard(&self, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn restore(&self, _: &str, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn admit(&self, _: &str, _: &NewAudience) -> Result<bool, Failure> {
        Ok(false)
    }

    fn withdraw(&self, _: &str) -> Result<Removal, Failure> {
        Ok(Removal { done: true })
    }

    fn delete(&self, _: &str) -> Result<Removal, Failure> {
        Ok(Removal { done: true })
    }
}
