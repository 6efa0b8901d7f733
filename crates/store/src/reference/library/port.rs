//! The port itself: each verb takes the lock and asks the room beside it.

use merkwelt_authz::{Fut, Pass, class};
use merkwelt_domain::{Content, Env, RevisionId, SourceId, Timestamp};

use super::super::Reference;
use super::{Shown, change, manifest, residue};
use crate::error::Error;
use crate::source::{
    Library, ManifestEntry, SourceChange, SourceProbe, SourceReceipt, SourceRecord, SourceResidue,
};

impl Library for Reference {
    fn change_source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        wanted: SourceChange,
        at: Timestamp,
    ) -> Fut<'a, Result<SourceReceipt, Error>> {
        Box::pin(async move { self.write(|state, _: &dyn Env| change(state, pass, wanted, at)) })
    }

    fn sources<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        after: Option<&'a SourceId>,
        limit: usize,
    ) -> Fut<'a, Result<Vec<SourceRecord>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let rows = state.sources_of(&view.tenant).map(|row| row.record.clone());
                let mut records: Vec<SourceRecord> =
                    rows.filter(|record| after.is_none_or(|after| record.id > *after)).collect();
                records.sort_by(|a, b| a.id.cmp(&b.id));
                records.truncate(limit);
                Ok(records)
            })
        })
    }

    fn source<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        id: &'a SourceId,
    ) -> Fut<'a, Result<SourceRecord, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| Ok(state.source_row(&view.tenant, id)?.record.clone()))
        })
    }

    fn source_of_origin<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        origin: &'a Content,
    ) -> Fut<'a, Result<Option<SourceId>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let mut rows = state.sources_of(&view.tenant);
                Ok(rows
                    .find(|row| row.record.origin.as_ref() == Some(origin))
                    .map(|row| row.record.id.clone()))
            })
        })
    }

    fn manifest<'a>(
        &'a self,
        pass: &'a Pass<'_, class::SourcesRead>,
        source: &'a SourceId,
        revision: &'a RevisionId,
    ) -> Fut<'a, Result<Vec<ManifestEntry>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| manifest(state.source_row(&view.tenant, source)?, revision))
        })
    }

    fn probes<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
    ) -> Fut<'a, Result<Vec<SourceProbe>, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| {
                let passages = state.source_row(&view.tenant, source)?.passages();
                let probe = |shown: Shown<'_>| SourceProbe {
                    text: shown.passage.text,
                    vector: shown.vector.cloned(),
                };
                Ok(passages.map(probe).collect())
            })
        })
    }

    fn source_residue<'a>(
        &'a self,
        pass: &'a Pass<'_, class::Sources>,
        source: &'a SourceId,
        probes: &'a [SourceProbe],
        now: Timestamp,
    ) -> Fut<'a, Result<SourceResidue, Error>> {
        Box::pin(async move {
            self.under(pass, |state, view| Ok(residue(state.source_row(&view.tenant, source)?, probes, now)))
        })
    }
}
