//! Where answers are kept: in memory only, gone at a restart, under addresses that hold no content. It is
//! no authority: what it finds is checked source by source before anything leaves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use merkwelt_authz::Scope;
use merkwelt_domain::basis::Basis;
use merkwelt_domain::{Content, ConversationId, Env, KnowledgeEpoch, SubjectId, TenantId, Timestamp};
use merkwelt_store::query::Vector;
use merkwelt_store::ranking::cosine;
use ring::hmac;

use crate::answers::Maker;
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
    conversation: Option<ConversationId>,
    maker: Maker,
}

impl Address {
    /// Whether others may be given what is kept there.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }
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

    /// The address of answers for everybody whose sources pass.
    pub(crate) fn shared_address(&self, scope: &Scope, maker: &Maker) -> Address {
        let (tenant, maker) = (scope.tenant().clone(), maker.clone());
        Address { tenant, subject: None, shared: true, conversation: None, maker }
    }

    /// The address of answers for the subject alone, of one conversation or of none in particular. That the
    /// conversation is the subject's was shown before.
    pub(crate) fn own_address(
        &self,
        scope: &Scope,
        conversation: Option<&ConversationId>,
        maker: &Maker,
    ) -> Address {
        Address {
            tenant: scope.tenant().clone(),
            subject: scope.subject().cloned(),
            shared: false,
            conversation: conversation.cloned(),
            maker: maker.clone(),
        }
    }

    /// Forgets the answers of a conversation that was deleted.
    pub(crate) fn forget_conversation(&self, tenant: &TenantId, id: &ConversationId) {
        self.lock()
            .retain(|address, _| address.tenant != *tenant || address.conversation.as_ref() != Some(id));
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

#[cfg(test)]
mod tests {
    use merkwelt_domain::env::fixed::FixedEnv;
    use merkwelt_store::query::ModelId;

    use super::*;

    fn content(text: &str) -> Content {
        Content::question(text, 1000).unwrap()
    }

    fn vector(model: &str, values: [f32; 2]) -> Vector {
        Vector { model: ModelId::recorded(model), values: values.to_vec() }
    }

    fn kept(answer: &str, at: i64) -> Kept {
        Kept {
            answer: content(answer),
            sources: Vec::new(),
            knowledge: KnowledgeEpoch::default(),
            at: Timestamp::from_millis(at),
            vector: Some(vector("a", [1.0, 0.0])),
        }
    }

    fn address(env: &FixedEnv, model: &str) -> Address {
        let maker = Maker {
            model: merkwelt_store::evidence::token(model).unwrap(),
            prompt: merkwelt_store::evidence::token("1").unwrap(),
        };
        Address { tenant: TenantId::random(env), subject: None, shared: true, conversation: None, maker }
    }

    #[test]
    fn r_043_an_answer_is_found_under_its_own_address_only() {
        let env = FixedEnv::at(0);
        let answers = Answers::new(AnswerLimits::default(), &env);
        let (one, other) = (address(&env, "m"), address(&env, "m"));
        let talk = Address { conversation: Some(ConversationId::random(&env)), ..one.clone() };
        let now = Timestamp::from_millis(0);
        answers.put(one.clone(), &content("How  long?"), kept("thirty", 0), now);
        assert_eq!(answers.exact(&one, &content("how long?")).map(|k| k.answer), Some(content("thirty")));
        assert!(answers.exact(&other, &content("how long?")).is_none());
        assert!(
            answers.exact(&talk, &content("how long?")).is_none(),
            "a conversation is part of the address"
        );
        answers.put(talk.clone(), &content("How long?"), kept("seven", 0), now);
        answers.forget_conversation(&one.tenant, talk.conversation.as_ref().unwrap());
        assert!(answers.exact(&talk, &content("how long?")).is_none());
        assert!(answers.exact(&one, &content("how long?")).is_some());
        assert!(answers.exact(&one, &content("how wide?")).is_none());
    }

    #[test]
    fn near_questions_count_only_of_one_model_and_only_if_near_enough() {
        let env = FixedEnv::at(0);
        let answers = Answers::new(AnswerLimits::default(), &env);
        let one = address(&env, "m");
        answers.put(one.clone(), &content("How long?"), kept("thirty", 0), Timestamp::from_millis(0));
        assert!(answers.near(&one, &vector("a", [1.0, 0.1]), 0.97).is_some());
        assert!(answers.near(&one, &vector("a", [1.0, 1.0]), 0.97).is_none());
        assert!(answers.near(&one, &vector("b", [1.0, 0.0]), 0.97).is_none());
    }

    #[test]
    fn the_oldest_answers_make_room_and_old_ones_go() {
        let env = FixedEnv::at(0);
        let limits = AnswerLimits { n_per_scope_max: 2, n_answers_max: 3, ..AnswerLimits::default() };
        let answers = Answers::new(limits, &env);
        let (one, two) = (address(&env, "m"), address(&env, "n"));
        for (at, question) in ["a", "b", "c"].into_iter().enumerate() {
            let at = i64::try_from(at).unwrap();
            answers.put(one.clone(), &content(question), kept(question, at), Timestamp::from_millis(at));
        }
        assert!(answers.exact(&one, &content("a")).is_none() && answers.exact(&one, &content("b")).is_some());
        answers.put(two.clone(), &content("d"), kept("d", 3), Timestamp::from_millis(3));
        answers.put(two.clone(), &content("e"), kept("e", 4), Timestamp::from_millis(4));
        assert!(answers.exact(&one, &content("b")).is_none() && answers.exact(&two, &content("d")).is_some());
        let late = limits.age_ms_max + 5;
        answers.put(two.clone(), &content("f"), kept("f", late), Timestamp::from_millis(late));
        assert!(answers.exact(&two, &content("e")).is_none());
    }
}
