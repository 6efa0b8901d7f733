//! Searching: which records take part, and in which order they come.

use merkwelt_authz::action;
use merkwelt_domain::Timestamp;
use merkwelt_domain::conversation::Retention;
use merkwelt_domain::memory::Kind;

use super::actor::{Actor, actor, app, group, second_tenant, tenant_admin, texts};
use super::failure::{ensure, refused, same, there};
use super::note::{ask, near, note, top};
use super::subject::{START, Subject};
use super::{Failure, block};
use crate::analysis::analyse;
use crate::change::NewOwner;
use crate::error::Error;
use crate::query::{KindSet, ModelId, Turns};
use crate::ranking::{Place, QueryTerms, Scorer, VisibleStats};
use crate::record::{Ranking, Record, RecordId};

/// Memories of others, of other times and of other kinds, all of which match better than one's own.
fn crowd(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let other_key = second_tenant(s)?;
    let stranger = actor(s, &other_key, Some("anna"));
    for n in 0..25 {
        bob.keep(note(&format!("violin violin concert {n}")))?;
        stranger.keep(note(&format!("violin concert {n}")))?;
        stranger.keep(note(&format!("concert for all {n}")).owner(NewOwner::Tenant))?;
    }
    for n in 0..5 {
        let over = note(&format!("violin concert over {n}")).kind(Kind::ProjectState);
        anna.keep(over.until(START + 1))?;
        let to_come = note(&format!("violin concert to come {n}"));
        anna.keep(to_come.from(START + Timestamp::DAY_MILLIS))?;
        anna.keep(note(&format!("violin concert rule {n}")).kind(Kind::Feedback))?;
        let retracted = anna.keep(note(&format!("violin concert withdrawn {n}")))?;
        anna.retract(&retracted)?;
        anna.keep(note(&format!("violin concert first {n}")).slot(&format!("slot:{n}")))?;
        anna.keep(note(&format!("something else {n}")).slot(&format!("slot:{n}")))?;
    }
    Ok(())
}

/// k hits, whenever the visible holds k, whatever else there is.
pub fn r_007_k_hits_come_from_the_visible_whenever_it_holds_k(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    crowd(s)?;
    for n in 0..7 {
        anna.keep(note(&format!("a violin of mine {n}")))?;
    }
    s.env().advance(10);
    // Seven of this kind and five that took the place of others.
    for (k, expected) in [(1, 1), (5, 5), (10, 10), (12, 12), (13, 12), (200, 12)] {
        let mut query = ask(s, "violin concert")?;
        query.k = top(k)?;
        let found = anna.recall(&query)?;
        same(found.candidates.len(), expected, &format!("hits for k = {k}"))?;
        same(found.considered, 12, "records considered")?;
    }
    let mut query = ask(s, "violin concert")?;
    query.k = top(7)?;
    let found = texts(&anna.recall(&query)?);
    ensure(found.iter().all(|text| text.starts_with("a violin of mine")), "the best are not first")
}

/// Ids, order and scores are those of a plain index over nothing but the visible texts.
pub fn r_023_ranking_equals_an_index_that_holds_only_the_visible(s: &dyn Subject) -> Result<(), Failure> {
    let (admin, anna) = (tenant_admin(s), app(s, "anna"));
    crowd(s)?;
    admin.create_group("orchestra")?;
    admin.add("orchestra", "anna")?;
    let orchestra = NewOwner::Group(group("orchestra")?);
    let visible: Vec<(&str, NewOwner)> = vec![
        ("the violin concert is on Friday", NewOwner::Subject),
        ("Rechnung R-4711 ist bezahlt", NewOwner::Subject),
        ("Die Lieferung der Geigen kommt am Donnerstag", orchestra.clone()),
        ("concert tickets cost 40 euros, concert hall is new", orchestra),
        ("office hours are nine to five", NewOwner::Tenant),
        ("deliveries are accepted until noon", NewOwner::Tenant),
    ];
    let mut rows = Vec::new();
    for (text, owner) in visible {
        s.env().advance(1000);
        let id = anna.keep(note(text).owner(owner))?;
        rows.push((RecordId::Memory(id), text.to_owned(), s.env_now()));
    }
    for n in 0..5 {
        let text = format!("something else {n}");
        let found = anna.texts(&text)?;
        ensure(found.contains(&text), "a visible record is not found")?;
    }
    for question in ["violin concert", "Wann kommt die Lieferung?", "R-4711", "deliveries at noon", "zzz"] {
        let mut query = ask(s, question)?;
        query.k = top(200)?;
        let found = anna.recall(&query)?;
        let others = found.candidates.iter().filter_map(|c| match &c.record {
            Record::Memory(m) if m.statement.slot().is_some() => {
                Some((c.record.id(), m.statement.text().expose().to_owned(), m.written_at))
            }
            Record::Memory(_) | Record::Turn(_) | Record::Passage(_) => None,
        });
        let all: Vec<_> = rows.iter().cloned().chain(others).collect();
        same(all.len(), 11, "visible records")?;
        let expected = plain_index(question, &all);
        let found: Vec<(RecordId, f32, f32)> =
            found.candidates.iter().map(|c| (c.record.id(), c.scores.lexical, c.scores.total)).collect();
        same(found, expected, question)?;
    }
    Ok(())
}

/// A search that knows nothing but these texts.
fn plain_index(question: &str, rows: &[(RecordId, String, Timestamp)]) -> Vec<(RecordId, f32, f32)> {
    let mut terms = QueryTerms::of(question);
    let mut stats = VisibleStats::default();
    let mut counted = Vec::new();
    for (id, text, at) in rows {
        let own = analyse(text);
        let (counts, length) = (terms.frequencies_in(&own), u32::try_from(own.len()).unwrap_or(0));
        terms.observe(&counts);
        stats.observe(length);
        counted.push((id, counts, length, *at));
    }
    let scorer = Scorer::new(stats, &terms);
    let mut places: Vec<Place> = counted
        .into_iter()
        .map(|(id, counts, length, written_at)| Place {
            total: scorer.lexical(&counts, length),
            written_at,
            id: id.clone(),
        })
        .collect();
    places.sort_by(Place::order);
    places.into_iter().map(|place| (place.id, place.total, place.total)).collect()
}

/// Rules are delivered and never ranked.
pub fn r_008_rules_are_never_ranked(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    anna.keep(note("always answer in German").kind(Kind::Feedback))?;
    anna.keep(note("speaks German"))?;
    same(anna.texts("answer in German")?, vec!["speaks German".to_owned()], "hits")?;
    let mut query = ask(s, "answer in German")?;
    query.kinds = KindSet::of([Kind::Feedback]);
    let found = anna.recall(&query)?;
    same((found.candidates.len(), found.considered), (0, 0), "hits among the rules")?;
    query.kinds = KindSet::of([]);
    same(anna.recall(&query)?.candidates.len(), 0, "hits among no kinds")
}

/// Kinds, origin and metadata narrow, each alone and together (R-007, I-6).
pub fn r_007_every_filter_narrows(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    anna.keep(note("note one").metadata("place", "Bonn").metadata("year", "2026"))?;
    anna.keep(note("note two").metadata("place", "Bonn").said_in(&conversation))?;
    anna.keep(note("note three").kind(Kind::Reference).metadata("place", "Kiel"))?;
    anna.say(&conversation, "note in a turn")?;
    let found = |change: &dyn Fn(&mut crate::query::RecallQuery)| -> Result<Vec<String>, Failure> {
        let mut query = ask(s, "note")?;
        change(&mut query);
        let recalled = anna.recall(&query)?;
        same(u64::try_from(recalled.candidates.len()).unwrap_or(0), recalled.considered, "considered")?;
        let mut texts = texts(&recalled);
        texts.sort();
        Ok(texts)
    };
    let is = |name: &str, value: &str| (name.to_owned(), serde_json::Value::from(value));
    same(found(&|q| q.kinds = KindSet::of([Kind::Reference]))?, vec!["note three".to_owned()], "by kind")?;
    same(
        found(&|q| q.metadata = vec![is("place", "Bonn")])?,
        vec!["note one".to_owned(), "note two".to_owned()],
        "by metadata",
    )?;
    same(
        found(&|q| q.metadata = vec![is("place", "Bonn"), is("year", "2026")])?,
        vec!["note one".to_owned()],
        "by two metadata",
    )?;
    same(found(&|q| q.metadata = vec![is("place", "bonn")])?.len(), 0, "by metadata in another spelling")?;
    same(found(&|q| q.conversation = Some(conversation.clone()))?, vec!["note two".to_owned()], "by origin")?;
    same(
        found(&|q| {
            q.turns = Turns::All;
            q.metadata = vec![is("place", "Kiel")];
        })?,
        vec!["note three".to_owned()],
        "by metadata, with turns that have none",
    )
}

/// Turns take part as the query says, and only kept ones of the subject.
pub fn r_004_turns_are_found_where_they_were_asked_for(s: &dyn Subject) -> Result<(), Failure> {
    let (anna, bob) = (app(s, "anna"), app(s, "bob"));
    let (first, second, of_bob) = (anna.open()?, anna.open()?, bob.open()?);
    anna.open_as(Retention::Session)?;
    anna.say(&first, "violins in the first")?;
    anna.say(&second, "violins in the second")?;
    bob.say(&of_bob, "violins of bob")?;
    anna.keep(note("violins in a memory"))?;
    let found = |turns: Turns| -> Result<usize, Failure> {
        let mut query = ask(s, "violins")?;
        query.turns = turns;
        Ok(anna.recall(&query)?.candidates.len())
    };
    same(found(Turns::None)?, 1, "hits without turns")?;
    same(found(Turns::Of(first))?, 2, "hits with those of one conversation")?;
    same(found(Turns::All)?, 3, "hits with all turns")?;
    same(found(Turns::Of(of_bob))?, 1, "hits with those of somebody else's conversation")
}

/// "On Thursday" is found by the question before it.
pub fn a_turn_is_found_by_the_turn_that_it_answers(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let conversation = anna.open()?;
    for text in ["When does the delivery arrive?", "On Thursday.", "Thanks.", "Something else?", "Nothing."] {
        s.env().advance(1000);
        anna.say(&conversation, text)?;
    }
    let mut query = ask(s, "delivery")?;
    query.turns = Turns::All;
    query.k = top(2)?;
    let mut found = texts(&anna.recall(&query)?);
    found.sort();
    same(found, vec!["On Thursday.".to_owned(), "When does the delivery arrive?".to_owned()], "hits")
}

/// With a vector the ranking is hybrid, and says why each hit is where it is.
pub fn a_vector_finds_what_no_word_does(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    anna.keep(note("Geige").vector([1.0, 0.0, 0.0]))?;
    anna.keep(note("trumpet").vector([0.0, 1.0, 0.0]))?;
    anna.keep(note("no vector yet"))?;
    app(s, "bob").keep(note("violin").vector([0.9, 0.1, 0.0]))?;
    let mut query = ask(s, "violin")?;
    same(anna.recall(&query)?.ranking, Ranking::Lexical, "ranking without a vector")?;
    query.vector = Some(near(s, [0.8, 0.6, 0.0]));
    let found = anna.recall(&query)?;
    same(found.ranking, Ranking::Hybrid, "ranking")?;
    same(texts(&found), ["Geige", "trumpet", "no vector yet"].map(str::to_owned).into(), "hits")?;
    let scores = there(found.candidates.first(), "hit")?.scores;
    let cosine = there(scores.cosine, "cosine")?;
    ensure((cosine - 0.8).abs() < 1e-4, "the cosine is wrong")?;
    ensure((scores.total - 0.6).abs() < 1e-3, "the score is not (cosine - floor) / span")?;
    let last = there(found.candidates.last(), "hit")?.scores;
    ensure(last.cosine.is_none() && last.total == 0.0, "a record without a vector has a cosine")
}

/// Vectors of two models are never mixed (I-14).
pub fn i_014_vectors_of_another_model_are_refused(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    anna.keep(note("Geige").vector([1.0, 0.0, 0.0]))?;
    let mut query = ask(s, "violin")?;
    let (mut vector, fusion) = near(s, [1.0, 0.0, 0.0]);
    vector.model = ModelId::new("another", "1", 3);
    query.vector = Some((vector.clone(), fusion));
    refused(anna.recall(&query), Error::ModelMismatch)?;
    let mut new = note("Bratsche").build(s)?;
    new.vector = Some(vector);
    let written = anna.commit(vec![crate::change::Write::Remember(new)], None);
    refused(written, Error::ModelMismatch)
}

/// A tenant's model is told, so that a question can be embedded with it (I-14).
pub fn i_014_the_model_of_a_tenants_vectors_is_told(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    let told = || anna.act::<action::Recall, _>(|pass| block::on(s.backend().vector_model(pass.scope())));
    anna.keep(note("no vector yet"))?;
    // A backend may be bound to a model before the first vector.
    ensure(told()?.is_none_or(|model| model == s.model()), "another model is told")?;
    anna.keep(note("Geige").vector([1.0, 0.0, 0.0]))?;
    same(told()?, Some(s.model()), "model")
}

/// The rest is ranked by recency, and equal times have a fixed order.
pub fn without_words_in_common_the_newest_comes_first(s: &dyn Subject) -> Result<(), Failure> {
    let anna = app(s, "anna");
    for text in ["first", "second", "third"] {
        s.env().advance(1000);
        anna.keep(note(text))?;
    }
    same(anna.texts("zzz")?, ["third", "second", "first"].map(str::to_owned).into(), "hits")?;
    let ids = |who: Actor<'_>| -> Result<Vec<RecordId>, Failure> {
        let query = ask(s, "zzz")?;
        let found = who.act::<action::Recall, _>(|pass| block::on(s.backend().recall(pass, &query)))?;
        Ok(found.candidates.iter().map(|c| c.record.id()).collect())
    };
    for n in 0..5 {
        anna.keep(note(&format!("at once {n}")))?;
    }
    let all = ids(anna)?;
    let mut at_once: Vec<RecordId> = all.iter().take(6).cloned().collect();
    let found = at_once.clone();
    at_once.sort();
    same(found, at_once, "order of equal times")
}
