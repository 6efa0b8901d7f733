//! The main job: one call per turn returns a context pack within a token budget. Authorise → search →
//! prefix → last turns → fit → record → release.

use merkwelt_authz::{Pass, Request, action, class};
use merkwelt_domain::budget::TokenBudget;
use merkwelt_domain::conversation::{Conversation, Retention, Turn};
use merkwelt_domain::freshness::{Fresh, admit};
use merkwelt_domain::memory::Kind;
use merkwelt_domain::routing::{StateChoice, StateRoute, route};
use merkwelt_domain::{Content, ConversationId, Interval, PackId, ReadId, Timestamp};
use merkwelt_ledger::read::ReadKind;
use merkwelt_store::query::{KindSet, Listing, PageSize, RecallQuery, ScanQuery, TopK, Turns};
use merkwelt_store::record::{FlatCost, Found, Pack, Recalled, Record};

use crate::App;
use crate::conversation::listed_turn;
use crate::error::{Attempt, Error, until_settled};
use crate::footing::{Footings, is_summary, rested_on, turns};
use crate::pack::fit::{Fitted, Line, Offer, Room, Why, facts_room, fit};
use crate::pack::prefix::Prefix;
use crate::pack::rebuild::compose;
use crate::pack::render::Section;
use crate::pack::select::Selection;
use crate::pack::view::{LeftOutView, PackItemView, PackView, RoutingView, SystemView, TokensView};
use crate::recall::{admit_all, encode};
use crate::record::{Delivered, Outgoing, Reading, RunContext};
use crate::release::Released;
use crate::summary::holds;
use crate::view::{self, BasisView, SummaryView};

/// A call for context, parsed.
#[derive(Debug, Clone)]
pub struct ContextRequest {
    /// The present question.
    pub question: Content,
    /// The conversation it belongs to.
    pub conversation: Option<ConversationId>,
    /// The most tokens.
    pub budget: TokenBudget,
    /// The most of the last turns.
    pub n_turns_max: u16,
    /// How `project_state` is treated.
    pub state: StateChoice,
    /// Only states that hold during this interval.
    pub interval: Option<Interval>,
    /// The caller's own run.
    pub run: RunContext,
}

/// What was found for one turn, before it is fitted.
struct Findings {
    prefix: std::sync::Arc<Prefix>,
    reused: bool,
    recalled: Recalled,
    selection: Selection,
    last_turns: Vec<Turn>,
    /// Whether the last turns are of the present sitting and not kept.
    sitting: bool,
    /// Wanted turns that are no hits themselves.
    neighbours: Vec<Turn>,
    flat: FlatCost,
    route: StateRoute,
    footings: Footings,
    /// The newest summary of the conversation.
    summary: Option<Turn>,
}

impl Findings {
    /// Whether a turn may be told among the turns: a summary stands in its own place.
    fn tells(&self, turn: &Turn) -> bool {
        turn.summary.is_none() && !self.footings.withhold(turn)
    }

    /// The summary, if all that it rests on is current.
    fn summary_told(&self) -> Option<&Turn> {
        self.summary.as_ref().filter(|summary| holds(summary, &self.footings))
    }
}

/// One hit is asked for per so many tokens of the budget. There are more than fit, because the weakest say what
/// is weak.
const TOKENS_PER_HIT: u32 = 20;
/// No more turns are wanted than would fit if each had so many tokens.
const TOKENS_PER_TURN_MIN: u32 = 8;
/// Without a match, this many of the newest live states are delivered all the same (R-007: recency).
const RECENT_STATES: usize = 3;

impl App {
    /// Assembles the context of one turn.
    ///
    /// # Errors
    /// [`Error::BudgetTooSmall`] if the rules alone exceed the budget; [`Error::NotFound`] for an unknown
    /// or foreign conversation.
    pub async fn context(&self, request: &Request, wanted: &ContextRequest) -> Result<Released, Error> {
        until_settled!(self.try_context(request, wanted))
    }

    async fn try_context(&self, request: &Request, wanted: &ContextRequest) -> Result<Released, Attempt> {
        let allowed = self.allow::<action::Assemble>(request).await?;
        let now = self.env.now();
        let findings = self.find(&allowed, wanted, now).await?;
        let offer = self.offer(&findings, wanted, now);
        let fitted = fit(wanted.budget.tokens(), offer, (now, self.counter))
            .map_err(|needed| Error::BudgetTooSmall { needed })?;
        let (fitted, reranking) =
            self.rerank_pack(&wanted.question, wanted.budget.tokens(), fitted, now).await;
        let unmatched = unmatched(&findings, &fitted);
        let (pack_id, read_id) = (PackId::random(&*self.env), ReadId::random(&*self.env));
        let ids = (&pack_id, &read_id, now);
        let answer =
            PackView { reranking, ..self.answer(&allowed, wanted, &findings, &fitted, unmatched, ids) };
        let body = encode(&answer)?;
        let outgoing: Vec<Outgoing> = fitted.lines.iter().map(|line| line.out.clone()).collect();
        let pack = Pack {
            id: pack_id,
            read_id: read_id.clone(),
            at: now,
            composition: compose(answer, &fitted, &body)?,
            expires_at: now.plus_days(self.settings.evidence_days),
        };
        let reading = Reading {
            id: read_id,
            kind: ReadKind::Retrieval,
            run: &wanted.run,
            index: findings.recalled.index.clone(),
            top_k: u32::try_from(top_k(wanted.budget).get()).unwrap_or(u32::MAX),
            request: wanted.question.expose().as_bytes(),
            tokens: fitted.tokens,
            content_kept: "pack",
            knowledge: findings.footings.knowledge(),
        };
        self.release(&allowed, reading, &outgoing, body, Some(pack)).await
    }

    async fn find(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &ContextRequest,
        now: Timestamp,
    ) -> Result<Findings, Attempt> {
        let conversation = self.check_conversation(pass, wanted, now).await?;
        let is_kept = |found: &&Conversation| found.retention != Retention::Session;
        let kept = conversation.as_ref().filter(is_kept).map(|found| found.id.clone());
        let summary = match &conversation {
            Some(conversation) => self.newest_summary(pass, conversation, false, now).await?,
            None => None,
        };
        let route = route(wanted.question.expose(), wanted.state);
        let query = turn_query(wanted, kept.as_ref(), route, now);
        let recalled = self.search(pass, query).await?;
        let (prefix, reused) =
            self.prefix(pass, recalled.epochs, now, facts_room(wanted.budget.tokens())).await?;
        let last_turns = self.last_turns(pass, wanted, kept.as_ref(), now).await?;
        let n_turns_max = usize::try_from(wanted.budget.tokens() / TOKENS_PER_TURN_MIN).unwrap_or(usize::MAX);
        let selection = Selection::of(&recalled.candidates, n_turns_max);
        let neighbours = self.neighbours(pass, &selection, &recalled, now).await?;
        let mut flat = self.backend.flat_cost(pass, kept.as_ref(), now).await?;
        if kept.is_none() {
            flat.items += last_turns.len() as u64;
            flat.tokens += last_turns.iter().map(|turn| u64::from(turn.tokens)).sum::<u64>();
        }
        let sitting = kept.is_none();
        let recalled_turns = turns(recalled.candidates.iter().map(|candidate| &candidate.record));
        let all_turns = recalled_turns.chain(&last_turns).chain(&neighbours).chain(&summary);
        let footings = self.footings(pass, rested_on(all_turns), now).await?;
        let found = Findings {
            prefix,
            reused,
            recalled,
            selection,
            last_turns,
            sitting,
            neighbours,
            flat,
            route,
            footings,
            summary,
        };
        Ok(found)
    }

    /// The named conversation; an error if it is not the subject's.
    async fn check_conversation(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &ContextRequest,
        now: Timestamp,
    ) -> Result<Option<Conversation>, Attempt> {
        let Some(id) = &wanted.conversation else { return Ok(None) };
        let (conversation, _) = self.conversation_of(pass, id, now).await?;
        Ok(Some(conversation))
    }

    async fn last_turns(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &ContextRequest,
        kept: Option<&ConversationId>,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Attempt> {
        let Some(id) = &wanted.conversation else { return Ok(Vec::new()) };
        let Ok(limit) = PageSize::new(wanted.n_turns_max.min(PageSize::MAX)) else { return Ok(Vec::new()) };
        if kept.is_none() {
            let mut turns = self.sitting(pass.scope().tenant(), id, now);
            turns.reverse();
            turns.truncate(limit.get());
            return Ok(turns);
        }
        let listing = Listing::TurnsBackwards(id.clone());
        let query = ScanQuery { listing, after: None, limit, interval: None, now };
        let page = self.backend.scan(pass, &query).await?;
        Ok(page.records.into_iter().filter_map(listed_turn).collect())
    }

    /// The wanted turns around the recalled ones.
    async fn neighbours(
        &self,
        pass: &Pass<'_, class::Read>,
        selection: &Selection,
        recalled: &Recalled,
        now: Timestamp,
    ) -> Result<Vec<Turn>, Attempt> {
        let keys = selection.missing(&recalled.candidates);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.backend.fetch(pass, &keys, now).await?;
        let turn = |found| match found {
            Some(Found::Turn(turn)) => Some(turn),
            Some(
                Found::Memory(_)
                | Found::Conversation(..)
                | Found::Pack(_)
                | Found::Passage(_)
                | Found::Source(_),
            )
            | None => None,
        };
        Ok(found.into_iter().filter_map(turn).collect())
    }

    fn offer(&self, findings: &Findings, wanted: &ContextRequest, now: Timestamp) -> Offer {
        let current = |record: Record, interval| admit(record, now, interval).ok().map(Delivered::Current);
        let line = |section, why, record, scores| {
            Line::new(section, why, record, scores, &findings.footings, (now, self.counter))
        };
        let rules = findings.prefix.rules.iter().filter_map(|m| current(Record::Memory(m.clone()), None));
        let (facts, n_more_facts) = self.facts(findings, wanted.budget, now);
        let of_turn = if findings.sitting { Delivered::Sitting } else { Delivered::Current };
        let told = findings.last_turns.iter().filter(|turn| findings.tells(turn));
        let last_turns = told.filter_map(|turn| {
            let record = admit(Record::Turn(turn.clone()), now, None).ok().map(of_turn)?;
            Some(line(Section::Conversation, Why::LastTurn, record, None))
        });
        Offer {
            rules: rules.map(|record| line(Section::Rules, Why::Rule, record, None)).collect(),
            facts,
            n_more_facts,
            summary: findings.summary_told().and_then(|turn| {
                let record = admit(Record::Turn(turn.clone()), now, None).ok().map(of_turn)?;
                Some(line(Section::Summary, Why::Summary, record, None))
            }),
            last_turns: last_turns.collect(),
            ranked: self.ranked(findings, wanted, now),
        }
    }

    /// The newest facts, as many as can go in, and how many there are beside: to write and count thousands would cost
    /// far more than all the rest of a pack.
    fn facts(&self, findings: &Findings, budget: TokenBudget, now: Timestamp) -> (Vec<Line>, usize) {
        let mut room = Room::of(facts_room(budget.tokens()));
        let (mut lines, mut n_seen) = (Vec::new(), 0);
        for memory in &findings.prefix.facts {
            if room.is_full() {
                break;
            }
            n_seen += 1;
            let Ok(fresh) = admit(Record::Memory(memory.clone()), now, None) else { continue };
            let record = Delivered::Current(fresh);
            let line =
                Line::new(Section::Facts, Why::Fact, record, None, &findings.footings, (now, self.counter));
            room.take(line.cost);
            lines.push(line);
        }
        (lines, usize::try_from(findings.flat.facts.saturating_sub(n_seen)).unwrap_or(usize::MAX))
    }

    /// What is worth its tokens, best first: hits, the turns they support, and the newest states if no state
    /// matches.
    fn ranked(&self, findings: &Findings, wanted: &ContextRequest, now: Timestamp) -> Vec<Line> {
        let line = |why, fresh: Fresh<Record>, scores| {
            let section = section_of(fresh.get());
            let record = Delivered::Current(fresh);
            Line::new(section, why, record, scores, &findings.footings, (now, self.counter))
        };
        let mut weighed = Vec::new();
        let mut recent = Vec::new();
        for (fresh, scores) in admit_all(findings.recalled.candidates.clone(), now, wanted.interval) {
            if turns([fresh.get()]).any(|turn| !findings.tells(turn)) {
                continue;
            }
            if let Some(weight) = findings.selection.wants(fresh.get(), scores.total) {
                weighed.push((weight, line(Why::Ranked, fresh, Some(scores))));
            } else if scores.total <= 0.0 && section_of(fresh.get()) == Section::ProjectState {
                recent.push(line(Why::Recent, fresh, Some(scores)));
            }
        }
        let neighbours = findings.neighbours.iter().filter(|turn| findings.tells(turn));
        let neighbours = neighbours.filter_map(|turn| admit(Record::Turn(turn.clone()), now, None).ok());
        for fresh in neighbours {
            if let Some(weight) = findings.selection.wants(fresh.get(), 0.0) {
                weighed.push((weight, line(Why::Neighbour, fresh, None)));
            }
        }
        // Stable, so equal weights keep the order of the search.
        weighed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let mut lines: Vec<Line> = weighed.into_iter().map(|(_, line)| line).collect();
        if !lines.iter().any(|line| line.section == Section::ProjectState) {
            lines.extend(recent.into_iter().take(RECENT_STATES));
        }
        lines
    }

    fn answer(
        &self,
        pass: &Pass<'_, class::Read>,
        wanted: &ContextRequest,
        findings: &Findings,
        fitted: &Fitted,
        unmatched: Vec<LeftOutView>,
        (pack_id, read_id, now): (&PackId, &ReadId, Timestamp),
    ) -> PackView {
        let saved = findings.flat.tokens.saturating_sub(u64::from(fitted.tokens));
        let [rules, facts, turn] = fitted.parts;
        let tokens = TokensView {
            total: fitted.tokens,
            rules,
            facts,
            turn,
            flat: findings.flat.tokens,
            saved,
            saved_percent: percent(saved, findings.flat.tokens),
        };
        let no_room = fitted.n_left_out().into_iter();
        let no_room = no_room.map(|((section, why), n)| LeftOutView::of(section, why, n));
        PackView {
            pack_id: pack_id.to_string(),
            read_id: read_id.to_string(),
            as_of: now.to_string(),
            retrieval: findings.recalled.ranking.name().to_owned(),
            reranking: None,
            budget: wanted.budget.tokens(),
            tokenizer: self.counter.id().to_owned(),
            scope: view::scope(pass.scope()),
            system: SystemView {
                etag: etag(&fitted.rules, &fitted.facts),
                reused: findings.reused,
                rules: fitted.rules.clone(),
                facts: fitted.facts.clone(),
            },
            turn: fitted.turn.clone(),
            tokens,
            routing: RoutingView {
                project_state: route_name(findings.route).to_owned(),
                reason: findings.route.reason().to_owned(),
            },
            items: fitted.lines.iter().map(|line| pack_item(line, pass)).collect(),
            left_out: no_room.chain(unmatched).collect(),
        }
    }
}

/// Two stages: kinds and time are part of the query; a conceptual question has no `project_state` in
/// it at all. Turns come from the named conversation only.
fn turn_query(
    wanted: &ContextRequest,
    kept: Option<&ConversationId>,
    route: StateRoute,
    now: Timestamp,
) -> RecallQuery {
    let state = route.looks().then_some(Kind::ProjectState);
    RecallQuery {
        question: wanted.question.clone(),
        vector: None,
        k: top_k(wanted.budget),
        kinds: KindSet::of([Kind::UserFact, Kind::Reference].into_iter().chain(state)),
        turns: kept.map_or(Turns::None, |id| Turns::Of(id.clone())),
        documents: true,
        conversation: None,
        metadata: Vec::new(),
        interval: wanted.interval,
        now,
    }
}

fn top_k(budget: TokenBudget) -> TopK {
    let k = u16::try_from(budget.tokens() / TOKENS_PER_HIT).unwrap_or(TopK::MAX).clamp(20, TopK::MAX);
    TopK::new(k).unwrap_or_default()
}

fn section_of(record: &Record) -> Section {
    match record {
        Record::Turn(_) => Section::EarlierTurns,
        Record::Passage(_) => Section::Documents,
        Record::Memory(memory) => match memory.statement.kind() {
            Kind::UserFact => Section::RelatedFacts,
            Kind::ProjectState => Section::ProjectState,
            Kind::Reference => Section::References,
            Kind::Feedback => Section::Rules,
        },
    }
}

fn pack_item(line: &Line, pass: &Pass<'_, class::Read>) -> PackItemView {
    let scope = pass.scope();
    let item = view::item(line.out.record.record(), line.scores.as_ref(), scope);
    PackItemView {
        section: line.section.name().to_owned(),
        id: item.id,
        revision: item.revision,
        layer: item.layer,
        kind: item.kind,
        why: line.why.name().to_owned(),
        owner: item.owner,
        origin: item.origin,
        valid_from: item.valid_from,
        expires_at: item.expires_at,
        no_expiry_reason: item.no_expiry_reason,
        score: view::reranked(item.score, line.given),
        citation: item.citation,
        basis: BasisView::of(&line.footings),
        summary: summary_of(line.out.record.record()),
        tokens: line.tokens,
    }
}

fn summary_of(record: &Record) -> Option<SummaryView> {
    turns([record]).find_map(|turn| turn.summary.as_ref()).map(SummaryView::of)
}

/// What the search found and what is neither in nor left out for want of room: it does not match, or far less
/// than the best.
fn unmatched(findings: &Findings, fitted: &Fitted) -> Vec<LeftOutView> {
    let is_told = |record: &Record| {
        // A fact stands in the prefix or was left out of it.
        section_of(record) == Section::RelatedFacts
            || fitted.lines.iter().chain(&fitted.left_out).any(|line| line.shows(record))
    };
    let mut counts = std::collections::BTreeMap::new();
    for candidate in findings.recalled.candidates.iter().filter(|candidate| !is_told(&candidate.record)) {
        let reason = match candidate.scores.total > 0.0 {
            _ if is_summary(&candidate.record) => continue,
            _ if findings.footings.withhold_record(&candidate.record) => "source_gone",
            true => "weak_match",
            false => "no_match",
        };
        *counts.entry((section_of(&candidate.record), reason)).or_insert(0usize) += 1;
    }
    if findings.summary.is_some() && findings.summary_told().is_none() {
        counts.insert((Section::Summary, "source_changed"), 1);
    }
    counts.into_iter().map(|((section, reason), n)| LeftOutView::of(section, reason, n)).collect()
}

fn route_name(route: StateRoute) -> &'static str {
    match route {
        StateRoute::NeededByQuestion => "needed_by_question",
        StateRoute::IncludedByCaller => "included_by_caller",
        StateRoute::SkippedConceptual => "skipped_conceptual",
        StateRoute::ExcludedByCaller => "excluded_by_caller",
    }
}

fn percent(part: u64, whole: u64) -> u32 {
    let percent = part.saturating_mul(100).checked_div(whole).unwrap_or(0);
    u32::try_from(percent).unwrap_or(100)
}

fn etag(rules: &str, facts: &str) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(rules.as_bytes());
    context.update(&[0]);
    context.update(facts.as_bytes());
    let digest = context.finish();
    digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}
