//! After a fault: what the register says now, held against what was before and what would have been.

use std::collections::BTreeSet;

use merkwelt_domain::source::{Audience, SourceState};
use merkwelt_domain::{GroupId, SourceId};
use merkwelt_store::source::SourceRecord;

use super::paper::{Paper, Sheet};
use super::{GROUPS, PERSONS, Run, broken, group, person};
use crate::audit::members;
use crate::failure::{Found, Property, holds};
use crate::marker::Serial;
use crate::plan::text_of;
use crate::world::{at_once, request};

/// The place of each group, and its id.
type Places = Vec<(usize, GroupId)>;

impl Run {
    /// The register as it stands, with the place of each group.
    pub(super) fn register(&self) -> Result<(Vec<SourceRecord>, Places), Found> {
        let app = self.instance.app()?;
        let read = at_once(async {
            let own = request(&app, &self.app, None).await?;
            let admin = request(&app, &self.admin, None).await?;
            let records = app.list_sources(&own, None, 500).await.ok()?;
            Some((records, app.list_groups(&admin).await.ok()?))
        });
        let (records, groups) = read.flatten().ok_or_else(|| broken("the register cannot be read"))?;
        let place =
            |name: &merkwelt_domain::GroupName| (0..GROUPS).find(|place| group(*place).as_ref() == Ok(name));
        let groups = groups.into_iter().filter_map(|group| Some((place(&group.name)?, group.id)));
        Ok((records, groups.collect()))
    }

    /// Takes over what the register says, once it is shown that a failed change happened completely or not at all.
    pub(super) fn settle(&mut self) -> Result<(), Found> {
        let (records, groups) = self.register()?;
        for record in &records {
            let known = self.shelf.papers.iter().position(|paper| paper.id == record.id);
            let before = known.and_then(|place| self.shelf.papers.get(place)).cloned();
            let now = self.paper_of(record, &groups, before.as_ref())?;
            if let Some(before) = &before {
                one_change(before, &now)?;
            }
            match known.and_then(|place| self.shelf.papers.get_mut(place)) {
                Some(paper) => *paper = now,
                None => self.shelf.papers.push(now),
            }
        }
        let listed: BTreeSet<&SourceId> = records.iter().map(|record| &record.id).collect();
        let lost = self.shelf.papers.iter().find(|paper| !listed.contains(&paper.id));
        holds(lost.is_none(), Property::Durable, || "a registered source is lost".to_owned())?;
        self.settle_members()
    }

    fn settle_members(&mut self) -> Result<(), Found> {
        let app = self.instance.app()?;
        for place in 0..GROUPS {
            let names = members(&app, &self.admin, &group(place)?);
            let names = names.ok_or_else(|| broken("the members cannot be read"))?;
            let mut now = BTreeSet::new();
            for member in 0..PERSONS {
                if names.iter().any(|name| {
                    name == person(member).map(|p| p.expose().to_owned()).as_deref().unwrap_or_default()
                }) {
                    now.insert(member);
                }
            }
            let before = self.shelf.members.entry(place).or_default();
            holds(before.symmetric_difference(&now).count() <= 1, Property::Durable, || {
                "one change of a group changed more".to_owned()
            })?;
            *before = now;
        }
        Ok(())
    }

    fn paper_of(
        &self,
        record: &SourceRecord,
        groups: &[(usize, GroupId)],
        before: Option<&Paper>,
    ) -> Result<Paper, Found> {
        let group = match &record.audience {
            Audience::Tenant => None,
            Audience::Groups(ids) => groups.iter().find(|(_, id)| ids.contains(id)).map(|(place, _)| *place),
        };
        let known = before.map(|paper| paper.sheets.clone()).unwrap_or_default();
        let mut sheets = Vec::new();
        for revision in &record.revisions {
            // A draft that was never published is no sheet: nothing asks for it.
            if revision.published_at.is_none() {
                continue;
            }
            let old = known.iter().find(|sheet| sheet.id == revision.id).cloned();
            let serial = (1..=self.serial).find(|serial| digest_of(*serial) == revision.digest);
            let new = serial.map(|serial| Sheet {
                id: revision.id.clone(),
                number: revision.number.number(),
                serial,
            });
            sheets.push(old.or(new).ok_or((Property::Durable, "a revision that nobody sent".to_owned()))?);
        }
        let current = record.current.as_ref().and_then(|id| sheets.iter().position(|sheet| sheet.id == *id));
        let copied = record.terms.evidence == merkwelt_domain::source::EvidencePolicy::DigestWithCopy;
        Ok(Paper { id: record.id.clone(), group, copied, state: record.state, sheets, current })
    }
}

fn digest_of(serial: Serial) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text_of(serial).as_bytes());
    digest.as_ref().try_into().unwrap_or_default()
}

/// Between two moments a paper changes at most in one of its sides, and never into something between.
fn one_change(before: &Paper, now: &Paper) -> Result<(), Found> {
    let published = now.sheets.len() - before.sheets.len().min(now.sheets.len());
    let moved = before.state != now.state || before.current != now.current;
    let sides = usize::from(before.group != now.group) + usize::from(moved);
    let kept = now.sheets.len() >= before.sheets.len();
    let whole = (now.state == SourceState::Active) == now.current.is_some();
    holds(published <= 1 && sides <= 1 && kept && whole, Property::Durable, || {
        format!("{before:?} became {now:?}")
    })
}
