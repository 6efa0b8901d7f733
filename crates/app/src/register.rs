//! Looking at the register of sources: who may manage or oversee sources sees what there is, and no passage's
//! text.

use merkwelt_authz::{Request, action};
use merkwelt_domain::{Content, RevisionId, SourceId};
use merkwelt_store::source::{ManifestEntry, SourceRecord};

use crate::App;
use crate::error::{Error, until_settled};

impl App {
    /// One source of the register.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn read_source(&self, request: &Request, source: &SourceId) -> Result<SourceRecord, Error> {
        until_settled!(self.source_record(request, source))
    }

    /// The source of an origin, if there is one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn source_of_origin(
        &self,
        request: &Request,
        origin: &Content,
    ) -> Result<Option<SourceId>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadSources>(request).await?;
            Ok(self.backend.source_of_origin(&allowed, origin).await?)
        })
    }

    /// Sources of the register by id, from the one after `after` on.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn list_sources(
        &self,
        request: &Request,
        after: Option<&SourceId>,
        limit: usize,
    ) -> Result<Vec<SourceRecord>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadSources>(request).await?;
            Ok(self.backend.sources(&allowed, after, limit).await?)
        })
    }

    /// The manifest of a revision, compared with records and index.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn read_manifest(
        &self,
        request: &Request,
        source: &SourceId,
        revision: &RevisionId,
    ) -> Result<Vec<ManifestEntry>, Error> {
        until_settled!(async {
            let allowed = self.allow::<action::ReadSources>(request).await?;
            Ok(self.backend.manifest(&allowed, source, revision).await?)
        })
    }
}
