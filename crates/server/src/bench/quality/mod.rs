//! How well questions find their evidence: recall at k and at token budgets, on sets that lie outside of the
//! project. Everything runs through the product's own paths: the embedded store, the use cases, the native
//! embedder. Nothing here ranks or packs by itself; only rank fusion, which the product does not use, is
//! computed from two of its rankings.

mod beam;
mod cache;
mod locomo;
mod place;
mod policy;
mod rows;
mod sheet;
mod stage;
mod xquad;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use serde::Serialize;

pub use cache::Cached;
pub use place::Place;
pub use sheet::Sheet;

use crate::model::Loaded;
use stage::Stage;

/// A set of questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// Long dialogues: which turns hold the answer.
    Locomo,
    /// German and English questions to sentences and passages of both languages.
    Xquad,
    /// Histories of laws and policies: the current value and no old one.
    Policy,
    /// Project chats as memories: typed against flat.
    Beam,
}

/// What is measured.
#[derive(Debug)]
pub struct Options {
    /// The directory with the sets.
    pub data: PathBuf,
    /// Which of them.
    pub sets: Vec<Set>,
    /// At most this many questions per set.
    pub limit: Option<usize>,
    /// Where vectors are kept from one run to the next.
    pub cache: PathBuf,
    /// The embedding model; without it only ranking by words is measured.
    pub model: Option<Loaded>,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name of the vector space, if a model was at work.
    pub model: Option<String>,
    /// The tokeniser that counted.
    pub tokenizer: String,
    /// Texts that had to be embedded because the cache did not have them.
    pub embedded: u64,
    /// The tables.
    pub sheets: Vec<Sheet>,
}

impl Report {
    /// The report as lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let model = self.model.as_deref().unwrap_or("none: by words only");
        let head = format!("model {model}; tokens by {}; {} texts embedded", self.tokenizer, self.embedded);
        std::iter::once(head).chain(self.sheets.iter().flat_map(Sheet::lines)).collect()
    }
}

/// Measures.
///
/// # Errors
/// A set is missing or cannot be read, or the product fails.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    if !options.data.is_dir() {
        bail!("there is no directory {} with the sets; name one with --data", options.data.display());
    }
    let cached = match &options.model {
        Some(model) => Some(Arc::new(Cached::open(model.engine.clone(), &options.cache)?)),
        None => None,
    };
    let stage = Stage::set(cached.clone())?;
    let mut sheets = Vec::new();
    for set in &options.sets {
        say(&format!("measuring {set:?}"));
        let measured = match set {
            Set::Locomo => locomo::measure(&stage, options, say)?,
            Set::Xquad => xquad::measure(&stage, options, say)?,
            Set::Policy => policy::measure(&stage, options, say)?,
            Set::Beam => beam::measure(&stage, options, say)?,
        };
        sheets.extend(measured);
    }
    Ok(Report {
        model: options.model.as_ref().map(|model| model.id.as_str().to_owned()),
        tokenizer: stage.tokenizer().to_owned(),
        embedded: cached.map_or(0, |cached| cached.missed()),
        sheets,
    })
}
