//! What goes over the wire: requests and answers of the two protocols. An answer is hostile until every place
//! and every number of it was checked.

use merkwelt_inference::rerank::Score;
use serde::Deserialize;
use serde_json::json;

use super::settings::{Protocol, Settings};

/// The body of a call.
pub(super) fn request(settings: &Settings, question: &str, texts: &[&str]) -> Vec<u8> {
    let body = match settings.protocol {
        Protocol::Tei => json!({ "query": question, "texts": texts, "raw_scores": false, "truncate": true }),
        Protocol::Jina => json!({
            "model": settings.model, "query": question, "documents": texts, "top_n": texts.len(),
            "return_documents": false,
        }),
    };
    body.to_string().into_bytes()
}

/// The most bytes of an honest answer: some servers repeat every text, escaped.
pub(super) fn answer_bytes_max(texts: &[&str]) -> u64 {
    let repeated = texts.iter().map(|text| 6 * text.len() + 512).sum::<usize>();
    (64 * 1024_u64).saturating_add(repeated as u64)
}

#[derive(Deserialize)]
struct Place {
    index: usize,
    /// A number that is not finite comes as `null` from some servers.
    #[serde(alias = "relevance_score")]
    score: Option<f64>,
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Place>,
}

/// The scores in the order of the texts; none of a text that the answer does not score. Nothing if the answer is
/// not what the protocol says. Public for the fuzzer.
#[must_use]
pub fn scores(protocol: Protocol, body: &[u8], n_texts: usize) -> Option<Vec<Option<Score>>> {
    let places: Vec<Place> = match protocol {
        Protocol::Tei => serde_json::from_slice(body).ok()?,
        Protocol::Jina => serde_json::from_slice::<Results>(body).ok()?.results,
    };
    let mut scores = vec![None; n_texts];
    let mut seen = vec![false; n_texts];
    for place in places {
        if std::mem::replace(seen.get_mut(place.index)?, true) {
            return None;
        }
        *scores.get_mut(place.index)? = place.score.and_then(narrow);
    }
    Some(scores)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is too large becomes infinite, and that is no score"
)]
fn narrow(score: f64) -> Option<Score> {
    Score::new(score as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(protocol: Protocol, body: &str) -> Option<Vec<Option<f32>>> {
        let scores = scores(protocol, body.as_bytes(), 3)?;
        Some(scores.into_iter().map(|score| score.map(Score::value)).collect())
    }

    #[test]
    fn scores_are_put_in_the_order_of_the_texts() {
        let tei = r#"[{"index":2,"score":0.9},{"index":0,"score":0.5,"text":"a"},{"index":1,"score":-1}]"#;
        assert_eq!(values(Protocol::Tei, tei), Some(vec![Some(0.5), Some(-1.0), Some(0.9)]));
        let jina = r#"{"model":"m","results":[{"index":1,"relevance_score":2.5,"document":{"text":"b"}}]}"#;
        assert_eq!(values(Protocol::Jina, jina), Some(vec![None, Some(2.5), None]));
    }

    #[test]
    fn a_number_that_is_none_scores_nothing_and_spoils_no_other() {
        let one = r#"[{"index":0,"score":null},{"index":1,"score":0.5},{"index":2,"score":1e39}]"#;
        assert_eq!(values(Protocol::Tei, one), Some(vec![None, Some(0.5), None]));
    }

    #[test]
    fn a_place_that_is_none_or_twice_there_makes_the_answer_unreadable() {
        for body in [
            r#"[{"index":3,"score":0.5}]"#,
            r#"[{"index":0,"score":0.5},{"index":0,"score":0.6}]"#,
            r#"[{"index":-1,"score":0.5}]"#,
            r#"[{"score":0.5}]"#,
            r#"{"error":"no"}"#,
            "",
        ] {
            assert_eq!(values(Protocol::Tei, body), None, "{body}");
            assert_eq!(values(Protocol::Jina, &format!(r#"{{"results":{body}}}"#)), None, "{body}");
        }
    }
}
