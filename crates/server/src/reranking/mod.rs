//! A reranker, if the operator names one in `[reranker]`: a server that reads question and texts together and
//! says in which order they answer it. Off by default. It is sent only what is delivered to the caller anyway,
//! and whatever it does wrong leaves the order of the search as it was.

mod remote;
mod settings;
mod wire;

pub use remote::Remote;
pub use settings::{Protocol, RawReranker, Settings};
pub use wire::scores;

use std::sync::Arc;

use anyhow::bail;
use merkwelt_app::RerankingModel;
use merkwelt_domain::Env;

use crate::config::Config;
use crate::embedding::Unfit;
use crate::model::BlockingThreads;

/// The reranker of the configuration, tried out; none if none is configured. One that is away is tried again
/// later. Blocks.
///
/// # Errors
/// Its key is missing, or it cannot be used as it is configured.
pub fn tried(config: &Config, env: &Arc<dyn Env>) -> anyhow::Result<Option<RerankingModel>> {
    let Some(settings) = &config.reranker else { return Ok(None) };
    let remote = Remote::to(settings.clone(), Arc::clone(env))?;
    match remote.try_out() {
        Ok(()) => tracing::info!("the reranker is there"),
        Err(Unfit::Away(why)) => tracing::warn!("results are not reranked: {why}"),
        Err(Unfit::Wrong(why)) => bail!("{why}; without the part [reranker] the service starts without"),
    }
    let offload = BlockingThreads::waiting(settings.concurrency, settings.timeout);
    Ok(Some(RerankingModel { reranker: Arc::new(remote), offload: Arc::new(offload) }))
}
