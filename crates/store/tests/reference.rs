//! The reference backend passes the suite.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::sync::Arc;

use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_store::conformance::{Instance, START, Subject, founding};
use merkwelt_store::reference::Reference;

fn fresh() -> Box<dyn Subject> {
    let env = Arc::new(FixedEnv::at(START));
    let (founding, keys) = founding(&env);
    let backend = Reference::found(founding, env.clone()).unwrap();
    Box::new(Instance::new(backend, env, keys))
}

merkwelt_store::conformance_tests!(fresh);

#[test]
fn r_119_two_references_agree_on_many_histories() {
    for seed in 2..6 {
        merkwelt_store::conformance::agreement::history(&*fresh(), seed, 100).unwrap();
    }
}
