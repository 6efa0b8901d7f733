//! Embedding engines other than the built-in one: servers that the operator names, in three protocols. The
//! configured address is the only one that is ever called; while its server is away, searches rank by
//! words.

mod coming;
mod late;
mod probe;
mod progress;
mod remote;
mod settings;
mod standing;
mod tend;
mod transport;
mod wire;

pub use coming::{Coming, come};
pub use late::Late;
pub use probe::Unfit;
pub(crate) use progress::Told;
pub use progress::{Progress, Stage};
pub use remote::Remote;
pub use settings::{KeyPlace, Protocol, RawEmbedding, Settings, Wanted};
pub use tend::{Engine, Tended, for_app, tend};

pub use transport::Way;

// Shared with the reranker, which is a server like these.
pub(crate) use probe::{ANSWER, ELSE, QUESTION};
pub(crate) use remote::start_of;
pub(crate) use settings::base_address;
pub(crate) use standing::Standing;
pub(crate) use transport::{Fault, Transport, tls};

use std::sync::Arc;

use merkwelt_app::embedding::model_id;
use merkwelt_domain::Env;
use merkwelt_inference::embed::Embedding;
use merkwelt_store::query::ModelId;

use crate::config::{Config, ModelPlaces};

/// The vectors of a server's answer to so many texts, none for a text it has no usable one for; nothing if the
/// answer is not what the protocol says. Public for the fuzzer.
#[must_use]
pub fn answered(settings: &Settings, body: &[u8], n_texts: usize) -> Option<Vec<Option<Embedding>>> {
    let vectors = wire::vectors(settings, body, &vec![false; n_texts]).ok()?;
    Some(vectors.into_iter().map(Result::ok).collect())
}

/// The engines that the configuration and the command line ask for, not tried out yet.
#[derive(Debug, Clone)]
pub struct Engines {
    /// Of the model of the data; none if none is wanted.
    pub present: Option<Arc<dyn Engine>>,
    /// Of the model that is to take its place.
    pub next: Option<Arc<dyn Engine>>,
    /// Whether it has: then it is the present one.
    pub changed: bool,
}

impl Engines {
    /// Those that are configured.
    ///
    /// # Errors
    /// The key of a server is missing.
    pub fn of(config: &Config, places: &ModelPlaces, env: &Arc<dyn Env>) -> anyhow::Result<Self> {
        let present = engine(config, places, env)?;
        let next = match &config.next_embedding {
            Some(wanted) if !places.no_model => engine_of(wanted, places, env)?,
            Some(_) | None => None,
        };
        let id = |engine: &Arc<dyn Engine>| model_id(&**engine);
        if next.is_some() && next.as_ref().map(id) == present.as_ref().map(id) {
            tracing::warn!(
                "[next_embedding] is the model of [embedding]: there is nothing to change; remove it"
            );
            return Ok(Self { present, next: None, changed: false });
        }
        Ok(Self { present, next, changed: false })
    }

    /// The same for data of this model: once they are of the next one, the former is not asked any more.
    #[must_use]
    pub fn for_data(self, model: Option<&ModelId>) -> Self {
        match &self.next {
            Some(next) if Some(&model_id(&**next)) == model => {
                Self { present: self.next, next: None, changed: true }
            }
            Some(_) | None => self,
        }
    }
}

/// The engine of the present model, not tried out yet; none if none is wanted.
///
/// # Errors
/// The key of a server is missing.
pub fn engine(
    config: &Config,
    places: &ModelPlaces,
    env: &Arc<dyn Env>,
) -> anyhow::Result<Option<Arc<dyn Engine>>> {
    if places.no_model { Ok(None) } else { engine_of(&config.embedding, places, env) }
}

fn engine_of(
    wanted: &Wanted,
    places: &ModelPlaces,
    env: &Arc<dyn Env>,
) -> anyhow::Result<Option<Arc<dyn Engine>>> {
    Ok(match wanted {
        Wanted::None => None,
        Wanted::Native => Some(Arc::new(Late::new(merkwelt_inference::native::pinned()?, places.clone()))),
        Wanted::Remote(settings) => Some(Arc::new(Remote::to((**settings).clone(), Arc::clone(env))?)),
    })
}
