//! What an engine is asked before it is believed: three plain German sentences, of which two mean the same. A
//! wrong pooling or prefix gives vectors of the right shape and the wrong meaning, and nothing else notices.

use merkwelt_inference::embed::Embedding;

/// A question, a sentence that answers it in other words, and one about something else.
pub(crate) const QUESTION: &str = "Wann endet der Vertrag?";
/// The answer. Its vector is kept, so that another model behind the same name is noticed later.
pub(crate) const ANSWER: &str = "Die Vereinbarung läuft am Jahresende aus.";
/// Something else.
pub(crate) const ELSE: &str = "Im Garten blühen im Mai die Rosen.";

/// By how much the answer must be nearer to the question than something else.
const MARGIN: f32 = 0.01;
/// How much two vectors of the same sentence and the same model may differ: rounding of another processor.
const SAME: f32 = 0.99;

/// Why an engine is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is not there now.
    #[error("{0}")]
    Away(String),
    /// Waiting does not help: the operator has to change something.
    #[error("{0}")]
    Wrong(String),
}

/// Judges the vectors of [`QUESTION`], [`ANSWER`] and [`ELSE`].
pub(super) fn judge(
    question: &Embedding,
    answer: &Embedding,
    other: &Embedding,
    kept: Option<&[f32]>,
) -> Result<(), Unfit> {
    let cosine = |a: &Embedding, b: &Embedding| a.cosine(b).unwrap_or(-1.0);
    let (near, far) = (cosine(question, answer), cosine(question, other));
    if near < far + MARGIN {
        return Err(Unfit::Wrong(format!(
            "a German question is no nearer to its answer ({near:.2}) than to an unrelated sentence ({far:.2}): the \
             model knows no German, or its pooling or prefixes are wrong"
        )));
    }
    let same = kept.is_none_or(|kept| {
        let product: f32 = kept.iter().zip(answer.as_slice()).map(|(a, b)| a * b).sum();
        kept.len() == answer.dimension() && product >= SAME
    });
    if same {
        return Ok(());
    }
    Err(Unfit::Wrong(
        "it answers with other vectors than when the index was made: another model stands behind the same name. \
         Bring the former back, or give embedding.revision another value and run `merkwelt reembed`"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f32, y: f32) -> Embedding {
        Embedding::new(2, vec![x, y], false).unwrap()
    }

    #[test]
    fn a_model_that_knows_german_passes_and_the_same_model_with_the_wrong_texts_does_not() {
        use merkwelt_inference::native::E5;
        use merkwelt_inference::{Embedder as _, Role, models};
        let places = crate::config::ModelPlaces::default();
        #[expect(clippy::disallowed_methods, reason = "a test reads where the machine keeps its models")]
        let given = std::env::var("MERKWELT_MODEL_DIR").ok().map(Into::into);
        let dirs = crate::config::ModelPlaces { model_dir: given, ..places }.dirs();
        let Some(path) = models::find(&dirs) else {
            println!("skipped: no {} in {dirs:?}", models::FILE_NAME);
            return;
        };
        let model = E5::open(models::verify_file(&path).unwrap()).unwrap();
        let one = |role, text| model.embed(role, &[text]).unwrap().remove(0);
        let (question, answer) = (one(Role::Query, QUESTION), one(Role::Passage, ANSWER));
        let other = one(Role::Passage, ELSE);
        println!("answer {:?}, something else {:?}", question.cosine(&answer), question.cosine(&other));
        assert_eq!(judge(&question, &answer, &other, Some(answer.as_slice())), Ok(()));
        assert!(judge(&question, &other, &answer, None).is_err());
    }

    #[test]
    fn vectors_without_meaning_and_vectors_of_another_model_are_noticed() {
        let (question, answer, other) = (at(1.0, 0.0), at(1.0, 0.2), at(0.0, 1.0));
        assert_eq!(judge(&question, &answer, &other, None), Ok(()));
        assert_eq!(judge(&question, &answer, &other, Some(answer.as_slice())), Ok(()));
        let said = judge(&question, &other, &answer, None).unwrap_err().to_string();
        assert!(said.contains("pooling or prefixes"), "{said}");
        assert!(judge(&question, &answer, &answer, None).is_err(), "everything is the same");
        let said = judge(&question, &answer, &other, Some(other.as_slice())).unwrap_err().to_string();
        assert!(said.contains("merkwelt reembed"), "{said}");
        assert!(judge(&question, &answer, &other, Some(&[1.0])).is_err());
    }
}
