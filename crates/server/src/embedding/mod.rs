//! Embedding engines other than the built-in one: servers that the operator names, in three protocols. The
//! configured address is the only one that is ever called; while its server is away, searches rank by
//! words.

mod late;
mod probe;
mod remote;
mod settings;
mod tend;
mod transport;
mod wire;

pub use late::Late;
pub use probe::Unfit;
pub use remote::Remote;
pub use settings::{KeyPlace, Protocol, RawEmbedding, Settings, Wanted};
pub use tend::{Engine, Tended, for_app, tend};

pub(crate) use transport::tls;

use std::sync::Arc;

use merkwelt_domain::Env;

use crate::config::{Config, ModelPlaces};

/// The engine that the configuration and the command line ask for, not tried out yet; none if none is wanted.
///
/// # Errors
/// The key of a server is missing.
pub fn engine(
    config: &Config,
    places: &ModelPlaces,
    env: &Arc<dyn Env>,
) -> anyhow::Result<Option<Arc<dyn Engine>>> {
    if places.no_model {
        return Ok(None);
    }
    Ok(match &config.embedding {
        Wanted::None => None,
        Wanted::Native => Some(Arc::new(Late::new(merkwelt_inference::native::pinned()?, places.clone()))),
        Wanted::Remote(settings) => Some(Arc::new(Remote::to((**settings).clone(), Arc::clone(env))?)),
    })
}
