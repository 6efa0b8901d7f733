//! The suite notices a broken engine, and a broken engine leaks nothing (I-3).

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::sync::Arc;

use merkwelt_domain::env::fixed::FixedEnv;
use merkwelt_store::broken::unfiltered;
use merkwelt_store::conformance::{Instance, START, Subject, founding, run};

fn fresh() -> Box<dyn Subject> {
    let env = Arc::new(FixedEnv::at(START));
    let (founding, keys) = founding(&env);
    let backend = unfiltered(founding, env.clone()).unwrap();
    Box::new(Instance::new(backend, env, keys))
}

#[test]
fn i_003_an_engine_without_filters_costs_hits_and_leaks_nothing() {
    let failures = run(&fresh).expect_err("the suite did not notice an engine without filters");
    let names: Vec<&str> = failures.iter().map(|(name, _)| *name).collect();
    // Every check of isolation, time and evidence passes; what is lost is hits and the order of the rest.
    let expected = [
        "r_023_scores_do_not_depend_on_what_others_write",
        "r_007_k_hits_come_from_the_visible_whenever_it_holds_k",
        "r_023_ranking_equals_an_index_that_holds_only_the_visible",
        "r_023_passages_of_others_change_no_score",
        "r_119_a_random_history_is_answered_as_the_reference_does",
    ];
    assert_eq!(names, expected, "{failures:#?}");
}
