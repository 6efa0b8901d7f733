//! Changes of sources and of the rights to them, as the customer's backend makes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use merkwelt_app::{App, Error, GroupRequest, PassageRequest, RevisionRequest, SourceRequest};
use merkwelt_authz::{ApiKey, Request};
use merkwelt_domain::memory::{Expiry, NoExpiryReason};
use merkwelt_domain::source::{EvidencePolicy, Region, RegionUnit, Terms};
use merkwelt_domain::{Content, GroupName, Purpose, RevisionId, SourceId, SubjectRef};
use merkwelt_store::source::NewAudience;

use crate::marker::Serial;
use crate::plan::text_of;

/// One change.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Register { group: Option<GroupName>, copied: bool },
    Publish { source: SourceId, serial: Serial },
    Withdraw { source: SourceId },
    Delete { source: SourceId },
    Restore { source: SourceId, revision: RevisionId },
    Admit { source: SourceId, group: Option<GroupName> },
    Join { group: GroupName, person: SubjectRef },
    Leave { group: GroupName, person: SubjectRef },
}

/// What a change gave.
#[derive(Debug, Clone)]
pub(super) enum Made {
    Source(SourceId),
    Revision(RevisionId),
    /// How much of a removal is left; all zero is the only proof.
    Removed(bool),
    Done,
}

fn audience(group: Option<&GroupName>) -> NewAudience {
    group.map_or(NewAudience::Tenant, |group| NewAudience::Groups(BTreeSet::from([group.clone()])))
}

/// The document of a word: one passage holds it, another is the same in every revision.
fn document(serial: Serial) -> Option<RevisionRequest> {
    let passage = |text: &str, line: u32| {
        Some(PassageRequest {
            text: Content::to_keep(text, 1_000).ok()?,
            headings: Vec::new(),
            region: Region::new(None, RegionUnit::Line, (line, line), None).ok()?,
        })
    };
    let text = text_of(serial);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    Some(RevisionRequest {
        digest: digest.as_ref().try_into().ok()?,
        media: "text/plain".to_owned(),
        valid_from: None,
        publish: true,
        passages: vec![passage(&text, 1)?, passage("delivery order refund, as ever", 2)?],
    })
}

impl Change {
    /// The source it is about.
    pub(super) fn source(&self) -> Option<&SourceId> {
        match self {
            Self::Publish { source, .. }
            | Self::Withdraw { source }
            | Self::Delete { source }
            | Self::Restore { source, .. }
            | Self::Admit { source, .. } => Some(source),
            Self::Register { .. } | Self::Join { .. } | Self::Leave { .. } => None,
        }
    }

    /// Makes it.
    pub(super) async fn make(self, app: Arc<App>, key: ApiKey) -> Result<Made, Error> {
        let caller = app.authenticate(&key).await.map_err(|_| Error::KeyEnded)?;
        let request = Request::new(caller, None, Purpose::default());
        match &self {
            Self::Register { group, copied } => {
                let evidence =
                    if *copied { EvidencePolicy::DigestWithCopy } else { EvidencePolicy::DigestWithVersion };
                let expiry = Expiry::Never(NoExpiryReason::CompanyKnowledge);
                let wanted = SourceRequest {
                    title: "Paper".parse().map_err(|_| Error::Unavailable)?,
                    origin: None,
                    audience: audience(group.as_ref()),
                    terms: Terms { expiry, evidence, purpose: None },
                };
                app.register_source(&request, &wanted).await.map(Made::Source)
            }
            Self::Publish { source, serial } => {
                let wanted = document(*serial).ok_or(Error::Unavailable)?;
                app.put_revision(&request, source, &wanted).await.map(|made| Made::Revision(made.revision))
            }
            Self::Withdraw { source } => {
                let removed = app.withdraw_source(&request, source).await?;
                Ok(Made::Removed(removed.residue.is_none()))
            }
            Self::Delete { source } => {
                let removed = app.delete_source(&request, source).await?;
                Ok(Made::Removed(removed.residue.is_none()))
            }
            Self::Restore { source, revision } => {
                app.restore_revision(&request, source, revision).await.map(|_| Made::Done)
            }
            Self::Admit { source, group } => {
                app.admit_to_source(&request, source, &audience(group.as_ref())).await.map(|_| Made::Done)
            }
            Self::Join { group, person } => {
                let wanted = GroupRequest::Add(group.clone(), person.clone());
                app.change_directory(&request, &wanted).await.map(|()| Made::Done)
            }
            Self::Leave { group, person } => {
                let wanted = GroupRequest::Remove(group.clone(), person.clone());
                app.change_directory(&request, &wanted).await.map(|()| Made::Done)
            }
        }
    }
}
