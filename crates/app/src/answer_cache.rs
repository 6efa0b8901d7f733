//! Where answers are kept: in memory only, gone at a restart, under addresses that hold no content. It is
//! no authority: what it finds is checked source by source before anything leaves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use merkwelt_authz::Scope;
use merkwelt_domain::{Content, Env, KnowledgeEpoch, SubjectId, TenantId, Timestamp};
use merkwelt_store::query::Vector;
use merkwelt_store::ranking::cosine;
use ring::hmac;

use crate::answers::{Basis, Maker};
use crate::settings::AnswerLimits;

/// A kept answer with everything it is bound to.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) answer: Content,
    pub(crate) sources: Vec<Basis>,
    pub(crate) knowledge: KnowledgeEpoch,
    pub(crate) at: Timestamp,
    /// Of the question, if an embedder is at work.
    pub(crate) vector: Option<Vector>,
}

/// For whom, and made by what. Without a subject it is for everybody for whom the sources pass.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    tenant: TenantId,
    subject: Option<SubjectId>,
    shared: bool,
    maker: Maker,
}

struct Entry {
    tag: [u8; 32],
    kept: Kept,
}

/// All kept answers of this process.
pub(crate) struct Answers {
    limits: AnswerLimits,
    /// Drawn at start: a tag says nothing about its question to whoever reads memory without it.
    key: hmac::Key,
    kept: Mutex<BTreeMap<Address, VecDeque<Entry>>>,
}

impl Answers {
    pub(crate) fn new(limits: AnswerLimits, env: &dyn Env) -> Self {
        let mut secret = [0; 32];
        env.fill(&mut secret);
        Self { limits, key: hmac::Key::new(hmac::HMAC_SHA256, &secret), kept: Mutex::new(BTreeMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Address, VecDeque<Entry>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tag(&self, question: &Content) -> [u8; 32] {
        let folded = question.folded().to_lowercase();
        let mut out = [0; 32];
        for (to, from) in out.iter_mut().zip(hmac::sign(&self.key, folded.as_bytes()).as_ref()) {
            *to = *from;
        }
        out
    }

    pub(crate) fn address(&self, scope: &Scope, shared: bool, maker: &Maker) -> Address {
        Address {
            tenant: scope.tenant().clone(),
            subject: if shared { None } else { scope.subject().cloned() },
            shared,
            maker: maker.clone(),
        }
    }

    /// Keeps an answer in the place of a former one to the same question.
    pub(crate) fn put(&self, address: Address, question: &Content, kept: Kept, now: Timestamp) {
        let tag = self.tag(question);
        let mut all = self.lock();
        let oldest = now.millis().saturating_sub(self.limits.age_ms_max);
        all.retain(|_, entries| {
            entries.retain(|entry| entry.kept.at.millis() >= oldest);
            !entries.is_empty()
        });
        let entries = all.entry(address).or_default();
        entries.retain(|entry| entry.tag != tag);
        entries.push_back(Entry { tag, kept });
        while entries.len() > self.limits.n_per_scope_max {
            entries.pop_front();
        }
        while all.values().map(VecDeque::len).sum::<usize>() > self.limits.n_answers_max {
            drop_oldest(&mut all);
        }
    }

    /// The answer to exactly this question, white space and case folded.
    pub(crate) fn exact(&self, address: &Address, question: &Content) -> Option<Kept> {
        let tag = self.tag(question);
        let all = self.lock();
        all.get(address)?.iter().find(|entry| entry.tag == tag).map(|entry| entry.kept.clone())
    }

    /// The answer to the nearest question, if it is near enough.
    pub(crate) fn near(&self, address: &Address, vector: &Vector, least: f32) -> Option<Kept> {
        let all = self.lock();
        let scored = all.get(address)?.iter().filter_map(|entry| {
            let own = entry.kept.vector.as_ref().filter(|own| own.model == vector.model)?;
            Some((cosine(&own.values, &vector.values)?, &entry.kept))
        });
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (best.0 >= least).then(|| best.1.clone())
    }

    /// Drops an answer that was refused.
    pub(crate) fn forget(&self, address: &Address, kept: &Kept) {
        if let Some(entries) = self.lock().get_mut(address) {
            entries.retain(|entry| entry.kept.at != kept.at || entry.kept.answer != kept.answer);
        }
    }
}

fn drop_oldest(all: &mut BTreeMap<Address, VecDeque<Entry>>) {
    let age = |entries: &VecDeque<Entry>| entries.front().map(|entry| entry.kept.at);
    let oldest = all.iter().min_by_key(|(_, entries)| age(entries)).map(|(address, _)| address.clone());
    let Some(oldest) = oldest else { return };
    if let Some(entries) = all.get_mut(&oldest) {
        entries.pop_front();
    }
    all.retain(|_, entries| !entries.is_empty());
}
