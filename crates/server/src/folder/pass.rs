//! One run over a folder: each file is read, its rights are read, and its source is brought to its state. A
//! file that is refused stops no other.

use std::collections::BTreeMap;

use merkwelt_domain::source::{SourceState, Terms};
use merkwelt_intake::Limits;
use merkwelt_store::source::NewAudience;

use super::acl;
use super::place::{Outcome, Restore, Wanted, place, same_audience};
use super::shelf::{Failure, Known, NewEntry, Prepared, Removal, Shelf};
use super::walk::{Found, Governed, Root};
use super::{Bounds, Label, Refusal, Rights};
use crate::intake;

/// What happens to the source of a file that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It stays as it is.
    Keep,
    /// It is taken back.
    Withdraw,
    /// It is deleted.
    Delete,
}

/// What is known of a file from before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'b> {
    /// Who was to read it when it was last looked at, and which groups these were in the register.
    pub(crate) audience: Option<(&'b NewAudience, &'b [String])>,
    /// Whether it may be shown again if it was taken back.
    pub(crate) restore: Restore,
}

/// What became of a file.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Its source, if it has one.
    pub(crate) source: Option<String>,
    /// Who may read it, if it is current.
    pub(crate) audience: Option<NewAudience>,
    /// The rest.
    pub(crate) outcome: Outcome,
}

/// One run.
pub(crate) struct Pass<'p> {
    /// The register.
    pub(crate) shelf: &'p dyn Shelf,
    /// The name of the folder.
    pub(crate) label: &'p Label,
    /// What is recorded beside each source.
    pub(crate) terms: &'p Terms,
    /// Who may read what nothing in the folder speaks of.
    pub(crate) rights: Option<&'p Rights>,
    /// How much a folder may cost.
    pub(crate) bounds: Bounds,
    /// Ids of groups by name, if they may be seen.
    pub(crate) groups: Option<BTreeMap<String, String>>,
}

impl Pass<'_> {
    /// Takes in one file.
    ///
    /// # Errors
    /// The register cannot be used at all.
    pub(crate) fn file(
        &self,
        root: &Root,
        path: &str,
        found: &Found,
        known: Option<&Known>,
        before: Before<'_>,
    ) -> anyhow::Result<Seen> {
        let audience = match self.audience(root, found) {
            Ok(audience) => audience,
            Err(why) => return self.unfit(why, known),
        };
        match self.take_in(root, path, found, known, before, &audience) {
            Ok((source, outcome)) => Ok(Seen { source: Some(source), audience: Some(audience), outcome }),
            Err(Failure::Refused(why)) => self.unfit(why, known),
            Err(Failure::Stop(error)) => Err(error),
        }
    }

    fn take_in(
        &self,
        root: &Root,
        path: &str,
        found: &Found,
        known: Option<&Known>,
        before: Before<'_>,
        audience: &NewAudience,
    ) -> Result<(String, Outcome), Failure> {
        let ids = self.ids(audience)?;
        let bytes = root.read(path, &found.stat, self.bounds.bytes_max)?;
        let origin = self.label.origin(path)?;
        let digest = intake::sha256(&bytes);
        let entry = NewEntry { title: &found.title, origin: &origin, audience, terms: self.terms };
        let same = known.and_then(|known| same_audience(known, audience, ids.as_deref(), before.audience));
        let wanted = Wanted { entry, digest, same_audience: same, restore: before.restore };
        let limits = Limits { bytes_max: self.bounds.bytes_max, ..Limits::default() };
        let media = found.media;
        place(self.shelf, &wanted, known, move || {
            let passages = intake::passages(&bytes, media, &limits)?;
            Ok(Prepared { media, bytes, passages })
        })
    }

    /// Who may read a file, from the nearest word about it.
    fn audience(&self, root: &Root, found: &Found) -> Result<NewAudience, Refusal> {
        match &found.governed {
            Governed::Unsaid => self.rights.map(|rights| rights.0.clone()).ok_or(Refusal::NoRights),
            Governed::Unfit(reason) => Err(Refusal::BadRights((*reason).to_owned())),
            Governed::By { path, stat } => {
                let bytes = root.read(path, stat, acl::BYTES_MAX).map_err(|why| {
                    let too_large = matches!(why, Refusal::TooLarge(_));
                    if too_large { Refusal::BadRights("its .acl is too large".to_owned()) } else { why }
                })?;
                Rights::parse(&bytes).map(|rights| rights.0)
            }
        }
    }

    /// Ids of the groups of an audience in the order of the register, if groups may be seen.
    fn ids(&self, audience: &NewAudience) -> Result<Option<Vec<String>>, Refusal> {
        let (NewAudience::Groups(names), Some(groups)) = (audience, &self.groups) else { return Ok(None) };
        let id = |name: &merkwelt_domain::GroupName| {
            groups
                .get(name.as_str())
                .cloned()
                .ok_or_else(|| Refusal::UnknownGroup(format!(": {}", name.as_str())))
        };
        let mut ids = names.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        ids.sort();
        Ok(Some(ids))
    }

    /// A file that is not taken in. What was shown of it is taken back if it is no longer what lies there:
    /// current, or nothing.
    ///
    /// # Errors
    /// The register cannot be used at all.
    pub(crate) fn unfit(&self, why: Refusal, known: Option<&Known>) -> anyhow::Result<Seen> {
        let source = known.map(|known| known.id.clone());
        let shown = known.filter(|known| known.state == SourceState::Active && why.is_about_the_file());
        let Some(known) = shown else {
            return Ok(Seen { source, audience: None, outcome: Outcome::Refused { why, withdrawn: false } });
        };
        let why = match self.shelf.withdraw(&known.id) {
            Ok(removal) if removal.done => why,
            Ok(_) => Refusal::Service(STILL_FOUND.to_owned()),
            Err(Failure::Refused(why)) => why,
            Err(Failure::Stop(error)) => return Err(error),
        };
        Ok(Seen { source, audience: None, outcome: Outcome::Refused { why, withdrawn: true } })
    }

    /// A source whose file is gone.
    ///
    /// # Errors
    /// The register cannot be used at all.
    pub(crate) fn missing(&self, known: &Known, then: Missing) -> anyhow::Result<Seen> {
        let removed = match (then, known.state) {
            (Missing::Keep, _) | (_, SourceState::Deleted) | (Missing::Withdraw, SourceState::Withdrawn) => {
                None
            }
            (Missing::Withdraw, SourceState::Active) => {
                Some((self.shelf.withdraw(&known.id), Outcome::Withdrawn))
            }
            // Of a draft nothing was ever shown; there is nothing to keep it for.
            (Missing::Withdraw, SourceState::Draft) | (Missing::Delete, _) => {
                Some((self.shelf.delete(&known.id), Outcome::Deleted))
            }
        };
        let outcome = match removed {
            None => Outcome::Unchanged,
            Some((Ok(Removal { done: true }), outcome)) => outcome,
            Some((Ok(_), _)) => {
                Outcome::Refused { why: Refusal::Service(STILL_FOUND.to_owned()), withdrawn: true }
            }
            Some((Err(Failure::Refused(why)), _)) => Outcome::Refused { why, withdrawn: false },
            Some((Err(Failure::Stop(error)), _)) => return Err(error),
        };
        Ok(Seen { source: Some(known.id.clone()), audience: None, outcome })
    }
}

/// What a removal says whose proof failed.
const STILL_FOUND: &str = "it was removed, but something of it is still found; run `merkwelt doctor`";
