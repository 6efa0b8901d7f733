//! Search: authorise → search → freshness → record → release, on one screen (I-4).

use merkwelt_authz::{Pass, Request, action, class};
use merkwelt_domain::freshness::{Fresh, admit};
use merkwelt_domain::{Content, ConversationId, Interval, ReadId, Timestamp};
use merkwelt_inference::rerank::Score;
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::{KindSet, RecallQuery, TopK, Turns};
use merkwelt_store::record::{Candidate, Recalled, Record, Scores};

use crate::App;
use crate::error::{Attempt, Error, until_settled};
use crate::footing::{is_summary, rested_on, turns};
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;
use crate::view::{self, BasisView, ItemView, RecallView};

/// A search, parsed. Nothing in it names a tenant or a subject.
#[derive(Debug, Clone)]
pub struct RecallRequest {
    /// The question.
    pub question: Content,
    /// How many hits.
    pub k: TopK,
    /// Which kinds; rules are never among hits.
    pub kinds: KindSet,
    /// Which turns.
    pub turns: Turns,
    /// Whether passages of current sources take part.
    pub documents: bool,
    /// Only memories that came from this conversation.
    pub conversation: Option<ConversationId>,
    /// Metadata that must be equal.
    pub metadata: Vec<(String, serde_json::Value)>,
    /// Only what holds during this interval.
    pub interval: Option<Interval>,
    /// The caller's own run.
    pub run: RunContext,
}

/// How often a question is embedded, before it is answered by words alone.
const EMBEDDINGS_MAX: u32 = 3;

impl App {
    /// Searches what the scope may see.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn recall(&self, request: &Request, search: &RecallRequest) -> Result<Released, Error> {
        until_settled!(self.try_recall(request, search))
    }

    async fn try_recall(&self, request: &Request, search: &RecallRequest) -> Result<Released, Attempt> {
        let allowed = self.allow::<action::Recall>(request).await?;
        let now = self.env.now();
        let mut recalled = self.search(&allowed, query(search, now)).await?;
        let mut admitted = admit_all(std::mem::take(&mut recalled.candidates), now, search.interval);
        let footings =
            self.footings(&allowed, rested_on(turns(admitted.iter().map(|(f, _)| f.get()))), now).await?;
        // A summary is derived from what is found itself.
        admitted.retain(|(fresh, _)| !is_summary(fresh.get()) && !footings.withhold_record(fresh.get()));
        let (admitted, reranking) =
            self.rerank_hits(&search.question, admitted, |(fresh, _)| fresh.get()).await;
        let read_id = ReadId::random(&*self.env);
        let hit = |((fresh, scores), given): &Hit| {
            let item = view::item(fresh.get(), Some(scores), allowed.scope());
            let basis = BasisView::of(&footings.of_record(fresh.get()));
            ItemView { basis, score: view::reranked(item.score.clone(), *given), ..item }
        };
        let hits = admitted.iter().map(hit).collect();
        let answer = RecallView {
            read_id: read_id.to_string(),
            as_of: now.to_string(),
            retrieval: recalled.ranking.name().to_owned(),
            reranking,
            scope: view::scope(allowed.scope()),
            considered: recalled.considered,
            hits,
        };
        let body = encode(&answer)?;
        let outgoing = outgoing(admitted);
        let mut reading = self.retrieval_reading(read_id, search, &recalled, &outgoing);
        reading.knowledge = footings.knowledge();
        self.release(&allowed, reading, &outgoing, body, None).await
    }

    /// Searches by words, and by meaning where the tenant's model has an engine. A question whose vector comes too
    /// late, because the tenant changed its model meanwhile, is embedded again (I-14).
    pub(crate) async fn search(
        &self,
        pass: &Pass<'_, class::Read>,
        mut query: RecallQuery,
    ) -> Result<Recalled, merkwelt_store::Error> {
        for _ in 0..EMBEDDINGS_MAX {
            query.vector = self.question_vector(pass.scope(), &query.question).await;
            match self.backend.recall(pass, &query).await {
                Err(merkwelt_store::Error::ModelMismatch) if query.vector.is_some() => {}
                answer => return answer,
            }
        }
        self.backend.recall(pass, &RecallQuery { vector: None, ..query }).await
    }

    fn retrieval_reading<'a>(
        &self,
        id: ReadId,
        search: &'a RecallRequest,
        recalled: &Recalled,
        outgoing: &[Outgoing],
    ) -> Reading<'a> {
        Reading {
            id,
            kind: ReadKind::Retrieval,
            run: &search.run,
            index: recalled.index.clone(),
            top_k: u32::try_from(search.k.get()).unwrap_or(u32::MAX),
            request: search.question.expose().as_bytes(),
            tokens: outgoing.iter().map(|out| tokens(out.record.record())).fold(0, u32::saturating_add),
            content_kept: "source",
            knowledge: None,
        }
    }
}

fn query(search: &RecallRequest, now: Timestamp) -> RecallQuery {
    RecallQuery {
        question: search.question.clone(),
        vector: None,
        k: search.k,
        kinds: search.kinds.clone().rankable(),
        turns: search.turns.clone(),
        documents: search.documents,
        conversation: search.conversation.clone(),
        metadata: search.metadata.clone(),
        interval: search.interval,
        now,
    }
}

/// Admits what is current. The store has applied the same rule inside the query; this is the receipt.
pub(crate) fn admit_all(
    candidates: Vec<Candidate>,
    now: Timestamp,
    interval: Option<Interval>,
) -> Vec<(Fresh<Record>, Scores)> {
    let admit_one = |c: Candidate| admit(c.record, now, interval).ok().map(|fresh| (fresh, c.scores));
    candidates.into_iter().filter_map(admit_one).collect()
}

/// A hit with its scores and that of the reranker.
type Hit = ((Fresh<Record>, Scores), Option<Score>);

fn outgoing(admitted: Vec<Hit>) -> Vec<Outgoing> {
    let out =
        |((fresh, scores), _): Hit| Outgoing { record: Delivered::Current(fresh), score: Some(scores.total) };
    admitted.into_iter().map(out).collect()
}

pub(crate) fn tokens(record: &Record) -> u32 {
    match record {
        Record::Memory(memory) => memory.tokens,
        Record::Turn(turn) => turn.tokens,
        Record::Passage(passage) => passage.tokens,
    }
}

pub(crate) fn encode(answer: &impl serde::Serialize) -> Result<Vec<u8>, Attempt> {
    serde_json::to_vec(answer).map_err(|_| Attempt::Failed(Error::Unavailable))
}
