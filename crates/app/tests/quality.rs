//! A small check of quality on texts of our own: it fails when ranking or packing breaks, long before anybody
//! measures on the large sets (`merkwelt bench quality`).

#![cfg(test)]

mod world;

use std::sync::Arc;

use merkwelt_app::{EmbeddingModel, Offload};
use merkwelt_authz::Fut;
use merkwelt_domain::conversation::{Retention, Speaker};
use merkwelt_domain::memory::Kind;
use merkwelt_inference::descriptor::Fields;
use merkwelt_inference::embed::Error;
use merkwelt_inference::{Descriptor, Embedder, Embedding, Pooling, Role};
use serde_json::Value;
use world::{World, delivered, statement, texts, turn_of};

/// German and English words for the same things.
const CONCEPTS: [[&str; 4]; 14] = [
    ["delivery", "lieferung", "shipment", "geliefert"],
    ["invoice", "rechnung", "bill", "faktura"],
    ["vacation", "urlaub", "holiday", "ferien"],
    ["cancel", "kündig", "terminate", "storn"],
    ["warehouse", "lager", "depot", "halle"],
    ["discount", "rabatt", "rebate", "nachlass"],
    ["allergic", "allergi", "intoleran", "unverträglich"],
    ["meeting", "besprechung", "appointment", "termin"],
    ["password", "passwort", "login", "anmeldung"],
    ["temperature", "temperatur", "cooling", "kühl"],
    ["driver", "fahrer", "courier", "kurier"],
    ["signature", "unterschrift", "signed", "unterzeichn"],
    ["friday", "freitag", "weekend", "wochenende"],
    ["customer", "kunde", "client", "mandant"],
];

/// A statement in both languages and a question for it in both.
const PAIRS: [[&str; 4]; 12] = [
    [
        "Die Lieferung kommt erst am Freitag an",
        "The delivery arrives on Friday only",
        "Wann wird geliefert, vor dem Wochenende?",
        "Is the shipment here before the weekend?",
    ],
    [
        "Die Rechnung R-4711 ist noch offen",
        "Invoice R-4711 is still unpaid",
        "Welche Faktura ist offen?",
        "Which bill is open?",
    ],
    [
        "Frau Weber ist bis Montag im Urlaub",
        "Ms Weber is on vacation until Monday",
        "Wer hat gerade Ferien?",
        "Who is on holiday at present?",
    ],
    [
        "Der Vertrag kann bis März gekündigt werden: Kündigung schriftlich",
        "The contract can be cancelled until March",
        "Bis wann darf man stornieren?",
        "Until when may we terminate?",
    ],
    [
        "Im Lager Rostock fehlt ein Stapler",
        "The warehouse in Rostock lacks a forklift",
        "Was fehlt in der Halle in Rostock?",
        "What does the Rostock depot lack?",
    ],
    [
        "Mehr als zehn Stück bekommen fünf Prozent Rabatt",
        "More than ten pieces get a discount of five per cent",
        "Gibt es einen Nachlass bei großen Mengen?",
        "Is there a rebate on large orders?",
    ],
    [
        "Herr Lang ist allergisch gegen Nüsse",
        "Mr Lang is allergic to nuts",
        "Was ist für Herrn Lang unverträglich?",
        "Which intolerance does Mr Lang have?",
    ],
    [
        "Die Besprechung beginnt um neun",
        "The meeting begins at nine",
        "Um wie viel Uhr ist der Termin?",
        "At what time is the appointment?",
    ],
    [
        "Das Passwort wird alle 90 Tage geändert",
        "The password changes every 90 days",
        "Wie oft wechselt man die Anmeldung?",
        "How often is the login renewed?",
    ],
    [
        "Die Temperatur bleibt unter acht Grad",
        "The temperature stays below eight degrees",
        "Wie kühl muss es sein?",
        "How much cooling is needed?",
    ],
    [
        "Der Fahrer ruft eine Stunde vorher an",
        "The driver calls one hour ahead",
        "Meldet sich der Kurier vorher?",
        "Does the courier call first?",
    ],
    [
        "Die Unterschrift des Kunden fehlt noch",
        "The customer's signature is still missing",
        "Hat der Mandant unterzeichnet?",
        "Has the client signed?",
    ],
];

/// One direction per concept and one that all texts share, so that unrelated texts have a cosine of about .7, as
/// with the real model.
struct Concepts(Descriptor);

impl Concepts {
    fn new() -> Self {
        let fields = Fields {
            id: "test-concepts".to_owned(),
            revision: "00".repeat(32),
            dimension: CONCEPTS.len() + 1,
            max_tokens: 512,
            pooling: Pooling::Mean,
            normalize: true,
            query_prefix: String::new(),
            passage_prefix: String::new(),
            cosine_floor: 0.70,
            cosine_span: 0.25,
            normaliser_version: 1,
        };
        Self(Descriptor::new(fields).unwrap())
    }
}

impl Embedder for Concepts {
    fn descriptor(&self) -> &Descriptor {
        &self.0
    }

    fn embed(&self, _: Role, texts: &[&str]) -> Result<Vec<Embedding>, Error> {
        let one = |text: &&str| {
            let lower = text.to_lowercase();
            let says = |words: &[&str; 4]| f32::from(u8::from(words.iter().any(|word| lower.contains(word))));
            let mut vector: Vec<f32> = CONCEPTS.iter().map(says).collect();
            vector.push(1.5);
            Embedding::new(self.0.dimension(), vector, false)
        };
        texts.iter().map(one).collect()
    }
}

struct Here;

impl Offload for Here {
    fn run(&self, work: Box<dyn FnOnce() + Send>) -> Fut<'_, ()> {
        work();
        Box::pin(std::future::ready(()))
    }
}

fn hybrid() -> World {
    World::with_model(EmbeddingModel { embedder: Arc::new(Concepts::new()), offload: Arc::new(Here) })
}

/// How many of the questions in column `asked` have their statement first among those in columns `kept`.
fn first(world: &World, kept: &[usize], asked: usize, wanted: usize) -> usize {
    let person = world.person(&format!("p{kept:?}{asked}{wanted}"));
    for pair in PAIRS {
        for column in kept {
            world.remember(&person, statement(Kind::UserFact, pair[*column]));
        }
    }
    let is_first = |pair: &&[&str; 4]| {
        let found = texts(&world.recall(&person, pair[asked]));
        found.first().is_some_and(|text| text == pair[wanted])
    };
    PAIRS.iter().filter(is_first).count()
}

#[test]
fn questions_find_statements_of_their_own_and_of_the_other_language() {
    let world = hybrid();
    for (kept, asked, wanted) in [(0, 2, 0), (1, 3, 1), (1, 2, 1), (0, 3, 0)] {
        let n = first(&world, &[kept], asked, wanted);
        assert!(n >= 11, "question {asked} to statement {wanted}: {n} of 12");
    }
    // Both languages in one pool: the statement in either language answers.
    let both = first(&world, &[0, 1], 2, 0) + first(&world, &[0, 1], 2, 1);
    assert!(both >= 11, "mixed pool: {both} of 12");
}

#[test]
fn words_alone_find_what_shares_them() {
    let world = World::new();
    for (kept, question, expected) in [
        (0, "Was ist mit der Lieferung?", PAIRS[0][0]),
        (0, "R 4711?", PAIRS[1][0]),
        (1, "deliveries on Fridays", PAIRS[0][1]),
        (1, "Rostock warehouses", PAIRS[4][1]),
    ] {
        let person = world.person(&format!("w{kept}{}", question.len()));
        for pair in PAIRS {
            world.remember(&person, statement(Kind::UserFact, pair[kept]));
        }
        assert_eq!(texts(&world.recall(&person, question))[0], expected, "{question}");
    }
}

const SMALL_TALK: [&str; 8] = [
    "How was your morning?",
    "Fine, thanks, a little rain on the way.",
    "The coffee machine is loud again.",
    "Yes, somebody should look after it.",
    "Did you see the match?",
    "No, I fell asleep early.",
    "The new chairs are comfortable.",
    "I like the blue ones best.",
];

/// A long conversation in which each answer follows its question, far apart.
const EXCHANGES: [[&str; 3]; 8] = [
    [
        "Where does the violin repair take place?",
        "In Cremona, at Bellini's.",
        "Where is the violin repaired?",
    ],
    ["Who waters the orchids in August?", "Petra said she would.", "Who takes care of the orchids?"],
    ["How much did the kayak cost?", "About nine hundred.", "What was the price of the kayak?"],
    ["What is the cat called now?", "Moustache, after all.", "What name did the cat get?"],
    ["When is the choir rehearsal?", "Tuesdays at seven.", "When does the choir rehearse?"],
    ["Which dentist did you choose?", "The one beside the station.", "Which dentist was chosen?"],
    ["Why was the lighthouse tour moved?", "Because of the storm.", "What moved the lighthouse tour?"],
    ["Who won the chess club's final?", "Old Johansson, again.", "Who won the chess final?"],
];

fn talk(world: &World) -> (merkwelt_authz::Request, merkwelt_domain::ConversationId) {
    let anna = world.person("anna");
    let conversation = world.open(&anna, Retention::KeptDays(90));
    for (day, [question, answer, _]) in EXCHANGES.iter().enumerate() {
        for n in 0..12 {
            world.advance(20_000);
            let who = if n % 2 == 0 { Speaker::Person } else { Speaker::Assistant };
            world.say(&anna, &conversation, who, &format!("{} ({day}.{n})", SMALL_TALK[(day + n) % 8]));
        }
        world.say(&anna, &conversation, Speaker::Person, question);
        world.say(&anna, &conversation, Speaker::Assistant, answer);
        world.advance(world::DAY);
    }
    (anna, conversation)
}

fn ask(
    world: &World,
    who: &merkwelt_authz::Request,
    of: &merkwelt_domain::ConversationId,
    question: &str,
    budget: u32,
) -> Value {
    let mut wanted = turn_of(question, budget);
    wanted.conversation = Some(of.clone());
    wanted.n_turns_max = 0;
    world.context(who, &wanted)
}

#[test]
fn a_pack_of_200_tokens_holds_the_answer_of_a_long_conversation() {
    let world = World::new();
    let (anna, conversation) = talk(&world);
    for [_, answer, question] in EXCHANGES {
        let pack = ask(&world, &anna, &conversation, question, 200);
        assert!(delivered(&pack).contains(answer), "{question} {pack}");
    }
}

#[test]
fn weak_matches_do_not_fill_a_pack() {
    let world = World::new();
    let (anna, conversation) = talk(&world);
    for [_, answer, question] in EXCHANGES {
        let pack = ask(&world, &anna, &conversation, question, 4000);
        assert!(delivered(&pack).contains(answer), "{question}");
        let total = pack["tokens"]["total"].as_u64().unwrap();
        assert!(total < 300, "{question}: {total} tokens of {}", pack["tokens"]["flat"]);
    }
}

#[test]
fn days_are_said_once_and_gaps_are_marked() {
    let world = World::new();
    let (anna, conversation) = talk(&world);
    let pack =
        ask(&world, &anna, &conversation, "Where is the violin repaired and who won the chess final?", 600);
    let text = delivered(&pack);
    assert_eq!(text.matches("[2026-03-02]").count(), 1, "{text}");
    let chess = text.split("[2026-03-09]").nth(1).unwrap();
    assert!(
        chess.contains("person: Who won the chess club's final?\nassistant: Old Johansson, again."),
        "{text}"
    );
}

/// What an answer needs is a state that the question names and a rule that it does not name. A flat list holds
/// the rule only when it holds nearly everything.
#[test]
fn r_014_a_typed_pack_needs_fewer_tokens_than_a_flat_list_that_holds_the_same() {
    let world = World::new();
    let (flat, typed) = (world.person("flat"), world.person("typed"));
    let rule = "Always name prices without tax";
    let states: Vec<String> = (0..50)
        .map(|n| format!("Order {n} of pallets waits in hall {} since week {}", n % 7, n % 9))
        .collect();
    world.remember(&flat, statement(Kind::ProjectState, rule));
    world.remember(&typed, statement(Kind::Feedback, rule));
    for state in &states {
        world.remember(&flat, statement(Kind::ProjectState, state));
        world.remember(&typed, statement(Kind::ProjectState, state));
    }
    let counter = merkwelt_inference::tokens::counter("o200k_base").unwrap();
    for n in [3, 17, 42] {
        let question = format!("Where does order {n} wait?");
        let mut search = world::search(&question);
        search.k = merkwelt_store::query::TopK::new(200).unwrap();
        let found = texts(&world::json(&world::now(world.app.recall(&flat, &search)).unwrap()));
        let needed = [rule, states[n].as_str()];
        let last =
            needed.map(|text| found.iter().position(|hit| hit == text).unwrap()).into_iter().max().unwrap();
        let list: u32 = found.iter().take(last + 1).map(|text| counter.count(&format!("- {text}\n"))).sum();
        let pack = world.context(&typed, &turn_of(&question, 2000));
        assert!(needed.iter().all(|text| delivered(&pack).contains(text)), "{question}");
        let total = pack["tokens"]["total"].as_u64().unwrap();
        assert!(total * 10 <= u64::from(list) * 6, "{question}: {total} against {list}");
    }
}
