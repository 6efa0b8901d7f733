//! Answers of servers that embed and rerank, which are hostile until they were checked.

use std::path::PathBuf;
use std::sync::LazyLock;

use merkwelt_server::config::{Config, Places};
use merkwelt_server::embedding::{Settings, Wanted, answered};
use merkwelt_server::reranking::{Protocol, scores};

const DIMENSION: usize = 3;

/// One engine of each protocol.
static ENGINES: LazyLock<[Settings; 3]> = LazyLock::new(|| {
    ["openai", "ollama", "tei"].map(|engine| {
        let text = format!(
            "[embedding]\nengine = '{engine}'\nurl = 'http://127.0.0.1:1'\nmodel = 'm'\ndimension = {DIMENSION}\n\
             max_tokens = 64\npooling = 'mean'\ncosine_floor = 0.2\ncosine_span = 0.8\n"
        );
        let places = Places { data_dir: PathBuf::from("data"), instance_key: None, config: None };
        match Config::parse(&text, &places, None).map(|config| config.embedding) {
            Ok(Wanted::Remote(settings)) => *settings,
            other => panic!("the part is not read: {other:?}"),
        }
    })
});

/// An answer is refused, or has a vector of the right length or none for each text, and a finite score or none. The
/// first byte says which protocol it is of and how many texts were sent.
pub(crate) fn engine(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let n_texts = usize::from(first / 5 % 4);
    let protocol = match first % 5 {
        3 => Protocol::Tei,
        4 => Protocol::Jina,
        embeds => return embedded(&ENGINES[usize::from(embeds)], body, n_texts),
    };
    let Some(scores) = scores(protocol, body, n_texts) else { return };
    assert_eq!(scores.len(), n_texts);
    assert!(scores.iter().flatten().all(|score| score.value().is_finite()), "a score that is no number");
}

fn embedded(settings: &Settings, body: &[u8], n_texts: usize) {
    let Some(vectors) = answered(settings, body, n_texts) else { return };
    assert_eq!(vectors.len(), n_texts);
    for vector in vectors.iter().flatten() {
        assert_eq!(vector.as_slice().len(), DIMENSION);
        let length: f32 = vector.as_slice().iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-3, "a vector of length {length}");
    }
}
