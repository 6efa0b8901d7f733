//! The register's port over cells: each verb takes what it needs out of the capability and hands the work to
//! the pool.

use merkwelt_authz::{Fut, Pass, class};
use merkwelt_domain::{Content, RevisionId, SourceId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::source::{
    Library, ManifestEntry, SourceChange, SourceProbe, SourceReceipt, SourceRecord, SourceResidue,
};

use crate::instance::Sqlite;
use crate::pool::lock;
use crate::witness::Witness;

impl Library for Sqlite {
    fn change_source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        change: SourceChange,
        at: Timestamp,
    ) -> Fut<'a, Result<SourceReceipt, Error>> {
        let witness = Witness::of(pass);
        Box::pin(self.on_cell(pass, move |inner, cell, viewer| {
            if matches!(change, SourceChange::Delete { .. }) {
                // Marked before it begins, so that the next start knows where to look.
                lock(&inner.control).mark_erasing(&cell.tenant, true)?;
            }
            cell.change_source(viewer, witness, change, at)
        }))
    }

    fn sources<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        after: Option<&'a SourceId>,
        limit: usize,
    ) -> Fut<'a, Result<Vec<SourceRecord>, Error>> {
        let after = after.map(SourceId::as_str).unwrap_or_default().to_owned();
        Box::pin(self.look(pass, move |snapshot| snapshot.sources(&after, limit)))
    }

    fn source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        id: &'a SourceId,
    ) -> Fut<'a, Result<SourceRecord, Error>> {
        let id = id.clone();
        Box::pin(self.look(pass, move |snapshot| snapshot.source(&id)))
    }

    fn source_of_origin<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        origin: &'a Content,
    ) -> Fut<'a, Result<Option<SourceId>, Error>> {
        let origin = origin.clone();
        Box::pin(self.look(pass, move |snapshot| snapshot.source_of_origin(&origin)))
    }

    fn manifest<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        source: &'a SourceId,
        revision: &'a RevisionId,
    ) -> Fut<'a, Result<Vec<ManifestEntry>, Error>> {
        let (source, revision) = (source.clone(), revision.clone());
        Box::pin(self.on_cell(pass, move |_, cell, viewer| cell.manifest(&viewer, &source, &revision)))
    }

    fn probes<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
    ) -> Fut<'a, Result<Vec<SourceProbe>, Error>> {
        let source = source.clone();
        Box::pin(self.look(pass, move |snapshot| snapshot.probes(&source)))
    }

    fn source_residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
        probes: &'a [SourceProbe],
        now: Timestamp,
    ) -> Fut<'a, Result<SourceResidue, Error>> {
        let (source, probes) = (source.clone(), probes.to_vec());
        Box::pin(
            self.on_cell(pass, move |_, cell, viewer| cell.source_residue(&viewer, &source, &probes, now)),
        )
    }
}
