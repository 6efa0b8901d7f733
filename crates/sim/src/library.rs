//! Sources take no part in the simulated requests yet: their port is passed on as it is, by the stage and by the
//! defective backends alike.

use merkwelt_authz::{Fut, Pass, class};
use merkwelt_domain::{Content, RevisionId, SourceId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::source::{
    Library, ManifestEntry, SourceChange, SourceProbe, SourceReceipt, SourceRecord, SourceResidue,
};

use crate::mutant::Broken;
use crate::stage::Stage;

macro_rules! passed_on {
    ($name:ty) => {
        impl Library for $name {
            fn change_source<'a>(
                &'a self,
                pass: &'a Pass<'_, class::Sources>,
                change: SourceChange,
                at: Timestamp,
            ) -> Fut<'a, Result<SourceReceipt, Error>> {
                self.inner.change_source(pass, change, at)
            }

            fn sources<'a>(
                &'a self,
                pass: &'a Pass<'_, class::SourcesRead>,
                after: Option<&'a SourceId>,
                limit: usize,
            ) -> Fut<'a, Result<Vec<SourceRecord>, Error>> {
                self.inner.sources(pass, after, limit)
            }

            fn source<'a>(
                &'a self,
                pass: &'a Pass<'_, class::SourcesRead>,
                id: &'a SourceId,
            ) -> Fut<'a, Result<SourceRecord, Error>> {
                self.inner.source(pass, id)
            }

            fn source_of_origin<'a>(
                &'a self,
                pass: &'a Pass<'_, class::SourcesRead>,
                origin: &'a Content,
            ) -> Fut<'a, Result<Option<SourceId>, Error>> {
                self.inner.source_of_origin(pass, origin)
            }

            fn manifest<'a>(
                &'a self,
                pass: &'a Pass<'_, class::SourcesRead>,
                source: &'a SourceId,
                revision: &'a RevisionId,
            ) -> Fut<'a, Result<Vec<ManifestEntry>, Error>> {
                self.inner.manifest(pass, source, revision)
            }

            fn probes<'a>(
                &'a self,
                pass: &'a Pass<'_, class::Sources>,
                source: &'a SourceId,
            ) -> Fut<'a, Result<Vec<SourceProbe>, Error>> {
                self.inner.probes(pass, source)
            }

            fn source_residue<'a>(
                &'a self,
                pass: &'a Pass<'_, class::Sources>,
                source: &'a SourceId,
                probes: &'a [SourceProbe],
                now: Timestamp,
            ) -> Fut<'a, Result<SourceResidue, Error>> {
                self.inner.source_residue(pass, source, probes, now)
            }
        }
    };
}

passed_on!(Stage);
passed_on!(Broken);
