//! Defects of searching and listing.

use merkwelt_authz::{Pass, class};
use merkwelt_domain::freshness::Standing;
use merkwelt_domain::memory::{Kind, Memory, Revision};
use merkwelt_domain::{MemoryId, TenantId, Timestamp};
use merkwelt_store::Error;
use merkwelt_store::analysis::analyse;
use merkwelt_store::query::{Key, KindSet, Listing, RecallQuery, ScanQuery};
use merkwelt_store::ranking::{Place, QueryTerms, Scorer, VisibleStats, fuse};
use merkwelt_store::record::{Candidate, Found, Listed, Page, Recalled, Record, Scores};

use super::{Broken, Mutant};

impl Broken {
    /// A search with the defect, if it is one of searching.
    pub(super) async fn searched(
        &self,
        pass: &Pass<'_, class::Read>,
        query: &RecallQuery,
    ) -> Result<Recalled, Error> {
        let mut found = self.inner.recall(pass, query).await?;
        let tenant = pass.scope().tenant();
        match self.mutant {
            Mutant::NoTenantCheck => self.mix_in(tenant, &mut found),
            Mutant::FilterAfterwards => {
                let others = self.others(tenant, query);
                found.candidates.truncate(query.k.get().saturating_sub(others));
            }
            Mutant::SupersededServed => self.go_back(pass, query, &mut found).await?,
            Mutant::SharedWeights => self.weigh(tenant, query, &mut found),
            Mutant::CountLeaks => {
                let others = self.memo().texts.iter().filter(|(of, _)| of != tenant).count();
                found.considered += u64::from(others > 0);
            }
            Mutant::StaleGrants
            | Mutant::RowsBeforeDerived
            | Mutant::LedgerAfterRelease
            | Mutant::ExpiryOffByOne
            | Mutant::TombstoneIgnored
            | Mutant::PrefixOfAnybody
            | Mutant::LostWrite
            | Mutant::DoubleEvent
            | Mutant::HalfABatch
            | Mutant::RevocationLost
            | Mutant::RevokedKeyTaken
            | Mutant::WrongCounters
            | Mutant::NotAskedAgain
            | Mutant::HeadsRemembered => {}
        }
        Ok(found)
    }

    /// A fetch with the defect, if it is one of fetching.
    pub(super) async fn fetched(
        &self,
        pass: &Pass<'_, class::Read>,
        keys: &[Key],
        now: Timestamp,
    ) -> Result<Vec<Option<Found>>, Error> {
        let mut found = self.inner.fetch(pass, keys, now).await?;
        if self.is(Mutant::HeadsRemembered) {
            let mut memo = self.memo();
            for found in &mut found {
                if let Some(Found::Source(head)) = found {
                    *head = memo.heads.entry(head.id.clone()).or_insert_with(|| head.clone()).clone();
                }
            }
        }
        Ok(found)
    }

    /// Remembers what was found, and adds what was found for another tenant.
    fn mix_in(&self, tenant: &TenantId, found: &mut Recalled) {
        let mut memo = self.memo();
        for candidate in &found.candidates {
            if let Record::Memory(memory) = &candidate.record {
                memo.found.push((tenant.clone(), memory.clone()));
            }
        }
        let foreign = memo.found.iter().rev().find(|(of, _)| of != tenant);
        if let Some(memory) = foreign.map(|(_, memory)| memory.clone()) {
            let scores = Scores { lexical: 0.0, cosine: None, total: 0.0 };
            memo.put_in.insert((memory.id.clone(), memory.revision));
            found.candidates.push(Candidate { record: Record::Memory(memory), scores });
        }
    }

    /// How many texts of others compete for a place.
    fn others(&self, tenant: &TenantId, query: &RecallQuery) -> usize {
        let terms = QueryTerms::of(query.question.expose());
        let memo = self.memo();
        let others = memo.texts.iter().filter(|(of, _)| of != tenant);
        others.filter(|(_, text)| terms.frequencies_in(&analyse(text)).iter().any(|n| *n > 0)).count()
    }

    /// Replaces each hit by its former revision.
    async fn go_back(
        &self,
        pass: &Pass<'_, class::Read>,
        query: &RecallQuery,
        found: &mut Recalled,
    ) -> Result<(), Error> {
        for candidate in &mut found.candidates {
            let Record::Memory(memory) = &candidate.record else { continue };
            let Some(former) = memory.revision.number().checked_sub(1).filter(|former| *former > 0) else {
                continue;
            };
            let key = Key::MemoryAt(memory.id.clone(), Revision::from_number(former));
            let past = self.inner.fetch(pass, &[key], query.now).await?.pop().flatten();
            if let Some(Found::Memory(past)) = past {
                self.memo().put_in.insert((past.id.clone(), past.revision));
                candidate.record = Record::Memory(Memory { standing: Standing::Active, ..past });
            }
        }
        Ok(())
    }

    /// Scores the hits anew, with words weighed by what every tenant wrote.
    fn weigh(&self, tenant: &TenantId, query: &RecallQuery, found: &mut Recalled) {
        let mut terms = QueryTerms::of(query.question.expose());
        let mut stats = VisibleStats::default();
        let memo = self.memo();
        let own: Vec<Vec<String>> = found.candidates.iter().map(|c| analyse(text(&c.record))).collect();
        let others = memo.texts.iter().filter(|(of, _)| of != tenant).map(|(_, text)| analyse(text));
        for words in own.iter().cloned().chain(others) {
            let frequencies = terms.frequencies_in(&words);
            terms.observe(&frequencies);
            stats.observe(u32::try_from(words.len()).unwrap_or(u32::MAX));
        }
        let scorer = Scorer::new(stats, &terms);
        for (candidate, words) in found.candidates.iter_mut().zip(&own) {
            let length = u32::try_from(words.len()).unwrap_or(u32::MAX);
            candidate.scores = fuse(scorer.lexical(&terms.frequencies_in(words), length), None, None);
        }
        found.candidates.sort_by(|a, b| place(a).order(&place(b)));
    }

    /// A listing with the defect, if it is one of listing.
    pub(super) async fn listed(
        &self,
        pass: &Pass<'_, class::Read>,
        query: &ScanQuery,
    ) -> Result<Page, Error> {
        let page = self.inner.scan(pass, query).await?;
        // Rules and facts are read each by themselves.
        let of_kind = |kind: &Kind| {
            let only = KindSet::of([*kind]);
            matches!(&query.listing, Listing::Memories { kinds, .. } if *kinds == only)
        };
        let Some(kind) = [Kind::Feedback, Kind::UserFact].into_iter().find(of_kind) else { return Ok(page) };
        if !self.is(Mutant::PrefixOfAnybody) {
            return Ok(page);
        }
        let of = (pass.scope().tenant().clone(), kind);
        let mut memo = self.memo();
        let kept = memo.prefixes.get(&of).filter(|kept| kept.epochs == page.epochs);
        if let Some(kept) = kept.cloned() {
            memo.put_in.extend(kept.records.iter().filter_map(listed_id));
            return Ok(kept);
        }
        memo.prefixes.insert(of, page.clone());
        Ok(page)
    }
}

fn listed_id(listed: &Listed) -> Option<(MemoryId, Revision)> {
    match listed {
        Listed::Memory(memory) => Some((memory.id.clone(), memory.revision)),
        Listed::Turn(_) | Listed::Conversation(..) => None,
    }
}

fn text(record: &Record) -> &str {
    match record {
        Record::Memory(memory) => memory.statement.text().expose(),
        Record::Turn(turn) => turn.text.expose(),
        Record::Passage(passage) => passage.text.expose(),
    }
}

fn place(candidate: &Candidate) -> Place {
    let written_at = match &candidate.record {
        Record::Memory(memory) => memory.written_at,
        Record::Turn(turn) => turn.at,
        Record::Passage(passage) => passage.received_at,
    };
    Place { total: candidate.scores.total, written_at, id: candidate.record.id() }
}
