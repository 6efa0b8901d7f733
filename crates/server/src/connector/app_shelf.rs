//! The register of sources for a connector: the use cases, asked with its own key. It may do what the key may,
//! and every change is authorised and recorded like anybody's.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use merkwelt_app::{App, Conflict, Error, RemovalReceipt, RevisionRequest, SourceRequest};
use merkwelt_authz::{ActionName, Request};
use merkwelt_domain::source::{Approval, Audience, SourceState};
use merkwelt_domain::{RevisionId, SourceId};
use merkwelt_store::source::{NewAudience, RevisionRecord, SourceRecord};
use tokio::runtime::Handle;

use super::report::Journal;
use crate::folder::{
    Failure, Known, Label, NewEntry, Past, Prepared, Put, Refusal, Removal, Shelf, Standing,
};
use crate::intake;

/// Sources of one page of the register.
const PAGE: usize = 500;
/// How often something is tried that others are changing, and how long to wait in between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The register, asked as one caller. It blocks, so it is used on threads that may.
pub(super) struct AppShelf<'a> {
    pub(super) app: &'a App,
    pub(super) request: Request,
    pub(super) runtime: Handle,
    pub(super) journal: &'a Journal,
}

impl AppShelf<'_> {
    /// Asks until the answer is another than that others change the same at the moment.
    fn ask<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut n_left = ATTEMPTS;
        loop {
            n_left -= 1;
            match self.runtime.block_on(ask()) {
                Err(Error::Busy) if n_left > 0 => std::thread::sleep(PAUSE),
                answer => return answer,
            }
        }
    }

    fn wait<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ask(ask).map_err(failure)
    }
}

/// What ends one file, and what ends the whole look.
fn failure(error: Error) -> Failure {
    let refused = |text: &str| Failure::Refused(Refusal::Service(text.to_owned()));
    match error {
        Error::NotFound => refused("its source is gone; it is looked at again later"),
        Error::Conflict(Conflict::Exists) => {
            refused("a deleted source is kept as evidence under this path; give the file another name")
        }
        Error::Conflict(_) | Error::NotRetained => {
            refused("its source was changed by somebody else meanwhile")
        }
        Error::Invalid { .. } | Error::BudgetTooSmall { .. } | Error::Erasing => {
            refused("the service refused it")
        }
        Error::Denied => Failure::Stop(anyhow!("the key may not manage sources")),
        Error::KeyEnded => Failure::Stop(anyhow!("the key is not valid any more")),
        Error::Busy | Error::Damaged | Error::Full | Error::Unavailable => Failure::Stop(anyhow!("{error}")),
    }
}

fn source(id: &str) -> Result<SourceId, Failure> {
    id.parse().map_err(|_| Failure::Stop(anyhow!("a source has no id")))
}

fn revision(id: &str) -> Result<RevisionId, Failure> {
    id.parse().map_err(|_| Failure::Stop(anyhow!("a revision has no id")))
}

/// Where groups are named, what is not found is one of them.
fn group_unknown(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(Refusal::Service(_)) => Refusal::UnknownGroup(String::new()).into(),
        failure @ (Failure::Refused(_) | Failure::Stop(_)) => failure,
    }
}

impl Shelf for AppShelf<'_> {
    fn known(&self, label: &Label) -> Result<Vec<Known>, Failure> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.wait(|| self.app.list_sources(&self.request, after.as_ref(), PAGE))?;
            let n_sources = page.len();
            after = page.last().map(|last| last.id.clone());
            found.extend(page.iter().filter_map(|record| known(record, label)));
            if n_sources < PAGE {
                return Ok(found);
            }
        }
    }

    fn standing(&self, id: &str) -> Result<Option<Standing>, Failure> {
        let of = source(id)?;
        match self.ask(|| self.app.read_source(&self.request, &of)) {
            Ok(record) => Ok(Some((record.state, groups_of(&record.audience)))),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    fn groups(&self) -> Result<Option<BTreeMap<String, String>>, Failure> {
        // A key that may not is not tried: each denial is recorded.
        if !self.request.caller().role().may(ActionName::ReadDirectory) {
            return Ok(None);
        }
        let groups = self.wait(|| self.app.list_groups(&self.request))?;
        Ok(Some(groups.iter().map(|group| (group.name.as_str().to_owned(), group.id.to_string())).collect()))
    }

    fn register(&self, new: &NewEntry<'_>) -> Result<String, Failure> {
        let wanted = SourceRequest {
            title: new.title.clone(),
            origin: Some(new.origin.clone()),
            audience: new.audience.clone(),
            terms: new.terms.clone(),
        };
        let made = self.ask(|| self.app.register_source(&self.request, &wanted));
        made.map(|id| id.to_string()).map_err(|error| {
            if error == Error::NotFound {
                Refusal::UnknownGroup(String::new()).into()
            } else {
                failure(error)
            }
        })
    }

    fn put(&self, id: &str, document: &Prepared, publish: bool) -> Result<Put, Failure> {
        let wanted = RevisionRequest {
            digest: intake::sha256(&document.bytes),
            media: document.media.type_name().to_owned(),
            valid_from: None,
            publish,
            passages: document.passages.clone(),
        };
        let source = source(id)?;
        let receipt = self.wait(|| self.app.put_revision(&self.request, &source, &wanted))?;
        Ok(Put {
            revision: receipt.revision.to_string(),
            passages: receipt.passages,
            indexed: receipt.indexed,
            embedded: receipt.embedded,
            reused: receipt.reused,
        })
    }

    fn publish(&self, id: &str, of: &str) -> Result<(), Failure> {
        let (source, revision) = (source(id)?, revision(of)?);
        self.wait(|| self.app.publish_revision(&self.request, &source, &revision)).map(drop)
    }

    fn discard(&self, id: &str, of: &str) -> Result<(), Failure> {
        let (source, revision) = (source(id)?, revision(of)?);
        self.wait(|| self.app.discard_revision(&self.request, &source, &revision)).map(drop)
    }

    fn restore(&self, id: &str, of: &str) -> Result<(), Failure> {
        let (source, revision) = (source(id)?, revision(of)?);
        self.wait(|| self.app.restore_revision(&self.request, &source, &revision)).map(drop)
    }

    fn admit(&self, id: &str, audience: &NewAudience) -> Result<bool, Failure> {
        let source = source(id)?;
        let admitted = self.wait(|| self.app.admit_to_source(&self.request, &source, audience));
        Ok(admitted.map_err(group_unknown)?.entry.is_some())
    }

    fn withdraw(&self, id: &str) -> Result<Removal, Failure> {
        let noted = self.journal.note_withdrawal(id);
        noted.map_err(|error| Failure::Stop(anyhow!("cannot write the report of the connector: {error}")))?;
        let source = source(id)?;
        self.wait(|| self.app.withdraw_source(&self.request, &source)).map(|receipt| removal(&receipt))
    }

    fn delete(&self, id: &str) -> Result<Removal, Failure> {
        let source = source(id)?;
        self.wait(|| self.app.delete_source(&self.request, &source)).map(|receipt| removal(&receipt))
    }
}

fn removal(receipt: &RemovalReceipt) -> Removal {
    Removal { done: receipt.residue.is_none() }
}

fn groups_of(audience: &Audience) -> Option<Vec<String>> {
    match audience {
        Audience::Tenant => None,
        Audience::Groups(groups) => {
            let mut ids: Vec<String> = groups.iter().map(ToString::to_string).collect();
            ids.sort();
            Some(ids)
        }
    }
}

fn known(record: &SourceRecord, label: &Label) -> Option<Known> {
    let key = label.path(record.origin.as_ref()?.expose())?.to_owned();
    let past = |revision: &RevisionRecord| Past {
        revision: revision.id.to_string(),
        digest: revision.digest,
        kept: revision.kept,
    };
    let is_current = |revision: &&RevisionRecord| record.current.as_ref() == Some(&revision.id);
    let is_approved = |revision: &&RevisionRecord| revision.approval == Approval::Approved;
    let mut drafts: Vec<Past> =
        record.revisions.iter().rev().take_while(|revision| !is_approved(revision)).map(past).collect();
    drafts.reverse();
    Some(Known {
        id: record.id.to_string(),
        key,
        state: record.state,
        groups: groups_of(&record.audience),
        current: record
            .revisions
            .iter()
            .find(is_current)
            .filter(|_| record.state == SourceState::Active)
            .map(past),
        approved: record.revisions.iter().rev().find(is_approved).map(past),
        drafts,
    })
}
