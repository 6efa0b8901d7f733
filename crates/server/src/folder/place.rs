//! One file and its source: which steps bring the register to the state of the folder, in an order in which a
//! sudden end leaves the old state, the new one, or nothing to be shown.

use merkwelt_domain::source::SourceState;
use merkwelt_store::source::NewAudience;

use super::Refusal;
use super::shelf::{Failure, Known, NewEntry, Prepared, Put, Shelf};

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing had to change.
    Unchanged,
    /// It is current for the first time.
    Published(Put),
    /// It took the place of another revision.
    Replaced(Put),
    /// It is current again.
    Restored,
    /// Others may read it now.
    RightsChanged,
    /// Its source was taken back.
    Withdrawn,
    /// Its source is deleted.
    Deleted,
    /// It is not published.
    Refused {
        /// Why.
        why: Refusal,
        /// Whether a former revision of it was taken back.
        withdrawn: bool,
    },
}

impl Outcome {
    /// One word for it.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Published(_) => "published",
            Self::Replaced(_) => "replaced",
            Self::Restored => "restored",
            Self::RightsChanged => "rights",
            Self::Withdrawn => "withdrawn",
            Self::Deleted => "deleted",
            Self::Refused { .. } => "refused",
        }
    }
}

/// Whether a source that was taken back may be shown again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restore {
    /// Yes: whoever took it back was the folder itself.
    Always,
    /// If the file is another than the one that was taken back.
    IfChanged,
    /// No.
    Never,
}

/// A file and what it should become.
pub(super) struct Wanted<'w> {
    /// Its source, if it has to be registered.
    pub(super) entry: NewEntry<'w>,
    /// SHA-256 of the file.
    pub(super) digest: [u8; 32],
    /// Whether its audience is the one the source has; `None` if that cannot be told.
    pub(super) same_audience: Option<bool>,
    /// If it was taken back.
    pub(super) restore: Restore,
}

/// Brings the source of one file to its state. `read` reads the document; it is asked only for a new one.
pub(super) fn place(
    shelf: &dyn Shelf,
    wanted: &Wanted<'_>,
    known: Option<&Known>,
    read: impl FnOnce() -> Result<Prepared, Refusal>,
) -> Result<(String, Outcome), Failure> {
    let Some(known) = known else {
        return first(shelf, wanted, &read()?);
    };
    let is_current = known.current.as_ref().is_some_and(|current| current.digest == wanted.digest);
    let outcome = match known.state {
        SourceState::Active if is_current => {
            // INVARIANT: R-056, asked of the register also where nothing seems to have changed.
            let changed =
                wanted.same_audience != Some(true) && shelf.admit(&known.id, wanted.entry.audience)?;
            if changed { Outcome::RightsChanged } else { Outcome::Unchanged }
        }
        SourceState::Active => Outcome::Replaced(replace(shelf, wanted, known, &read()?)?),
        SourceState::Draft | SourceState::Withdrawn => again(shelf, wanted, known, read)?,
        SourceState::Deleted => return Err(Refusal::TakenBack(KEPT_AS_EVIDENCE).into()),
    };
    Ok((known.id.clone(), outcome))
}

const KEPT_AS_EVIDENCE: &str =
    "its source was deleted and is kept as evidence under this path; give the file another name";
const TAKEN_BACK: &str = "its source was withdrawn and stays so; if it is to be shown again, restore it with `merkwelt import sources` and --restore, or with POST /v1/sources/{id}/restore";

fn first(shelf: &dyn Shelf, wanted: &Wanted<'_>, document: &Prepared) -> Result<(String, Outcome), Failure> {
    let id = shelf.register(&wanted.entry)?;
    match shelf.put(&id, document, true) {
        Ok(put) => Ok((id, Outcome::Published(put))),
        Err(failure) => {
            // Nothing of it was shown; a source without a revision is not left behind either.
            let _ = shelf.delete(&id);
            Err(failure)
        }
    }
}

/// Another document. If others may read it too, nothing is shown while both change: neither may the former
/// readers see the new document nor the new readers the former.
fn replace(
    shelf: &dyn Shelf,
    wanted: &Wanted<'_>,
    known: &Known,
    document: &Prepared,
) -> Result<Put, Failure> {
    if wanted.same_audience == Some(true) {
        let put = shelf.put(&known.id, document, true)?;
        discard_other_drafts(shelf, known, &put.revision)?;
        return Ok(put);
    }
    let put = shelf.put(&known.id, document, false)?;
    let changed = shelf.withdraw(&known.id).and_then(|_| shelf.admit(&known.id, wanted.entry.audience));
    if let Err(failure) = changed {
        let _ = shelf.discard(&known.id, &put.revision);
        return Err(failure);
    }
    shelf.publish(&known.id, &put.revision)?;
    discard_other_drafts(shelf, known, &put.revision)?;
    Ok(Put { indexed: put.passages, ..put })
}

/// A source of which nothing is shown now.
fn again(
    shelf: &dyn Shelf,
    wanted: &Wanted<'_>,
    known: &Known,
    read: impl FnOnce() -> Result<Prepared, Refusal>,
) -> Result<Outcome, Failure> {
    let past = known.approved.as_ref();
    let is_past = past.is_some_and(|past| past.digest == wanted.digest);
    let allowed = match wanted.restore {
        Restore::Always => true,
        Restore::IfChanged => !is_past,
        Restore::Never => false,
    };
    if known.state == SourceState::Withdrawn && !allowed {
        return Err(Refusal::TakenBack(TAKEN_BACK).into());
    }
    shelf.admit(&known.id, wanted.entry.audience)?;
    if let Some(past) = past.filter(|past| is_past && past.kept) {
        shelf.restore(&known.id, &past.revision)?;
        discard_other_drafts(shelf, known, &past.revision)?;
        return Ok(Outcome::Restored);
    }
    // An end between taking in and publishing leaves a draft; it is finished here.
    let last = known.drafts.last().filter(|draft| draft.digest == wanted.digest && draft.kept);
    let put = match last {
        Some(draft) => {
            shelf.publish(&known.id, &draft.revision)?;
            Put { revision: draft.revision.clone(), ..Put::default() }
        }
        None => shelf.put(&known.id, &read()?, true)?,
    };
    discard_other_drafts(shelf, known, &put.revision)?;
    Ok(if past.is_some() { Outcome::Replaced(put) } else { Outcome::Published(put) })
}

fn discard_other_drafts(shelf: &dyn Shelf, known: &Known, kept: &str) -> Result<(), Failure> {
    for draft in known.drafts.iter().filter(|draft| draft.revision != kept) {
        shelf.discard(&known.id, &draft.revision)?;
    }
    Ok(())
}

/// Whether `audience` is what a source has already, as far as names and ids can tell.
pub(super) fn same_audience(
    known: &Known,
    audience: &NewAudience,
    ids: Option<&[String]>,
    before: Option<(&NewAudience, &[String])>,
) -> Option<bool> {
    match (audience, &known.groups) {
        (NewAudience::Tenant, None) => Some(true),
        (NewAudience::Tenant, Some(_)) | (NewAudience::Groups(_), None) => Some(false),
        (NewAudience::Groups(_), Some(has)) => match ids {
            Some(ids) => Some(ids == has.as_slice()),
            None => before.map(|(names, ids)| names == audience && ids == has.as_slice()),
        },
    }
}
