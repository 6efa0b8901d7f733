//! The public conformance suite. A backend's whole test file is a constructor of a fresh [`Subject`] and
//! [`crate::conformance_tests!`]; a found bug becomes a check here, then a fix. Capabilities are minted by
//! the real `authenticate` and `authorize`, and futures are polled without a runtime.
//!
//! ```no_run
//! use std::sync::Arc;
//! use merkwelt_domain::env::fixed::FixedEnv;
//! use merkwelt_store::conformance::{Instance, Subject, START, founding};
//! use merkwelt_store::reference::Reference;
//!
//! fn fresh() -> Box<dyn Subject> {
//!     let env = Arc::new(FixedEnv::at(START));
//!     let (founding, keys) = founding(&env);
//!     match Reference::found(founding, env.clone()) {
//!         Ok(backend) => Box::new(Instance::new(backend, env, keys)),
//!         Err(error) => panic!("{error}"),
//!     }
//! }
//! merkwelt_store::conformance_tests!(fresh);
//! ```

mod actor;
pub mod agreement;
pub mod block;
pub mod conversation;
pub mod erasure;
pub mod evidence;
pub mod expiry;
mod failure;
pub mod idempotency;
pub mod isolation;
mod library;
mod note;
pub mod paging;
pub mod races;
pub mod recall;
pub mod revocation;
pub mod source;
mod subject;
pub mod supersession;

pub use failure::Failure;
pub use subject::{Instance, Keys, START, Subject, founding};

/// One check. It gets an instance of its own.
pub type Check = fn(&dyn Subject) -> Result<(), Failure>;

/// The list of checks; the one place where a check is entered.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_checks {
    (@list $fresh:tt $($module:ident { $($name:ident)* })*) => {
        &[$($((stringify!($name), $crate::conformance::$module::$name as $crate::conformance::Check),)*)*]
    };
    (@tests ($fresh:expr) $($module:ident { $($name:ident)* })*) => {$($(
        #[test]
        fn $name() -> ::std::result::Result<(), $crate::conformance::Failure> {
            let subject = ($fresh)();
            $crate::conformance::$module::$name(&*subject)
        }
    )*)*};
    ($mode:ident $fresh:tt) => {
        $crate::conformance_checks! { @$mode $fresh
            isolation {
                r_022_a_memory_is_seen_by_its_owners_circle_and_nobody_else
                r_023_equal_texts_of_two_tenants_stay_apart
                r_023_scores_do_not_depend_on_what_others_write
                r_028_knowing_the_id_of_a_conversation_grants_nothing
                r_031_a_role_that_may_not_share_changes_nothing_shared
                r_034_twenty_unknown_and_foreign_ids_are_refused_alike
                r_034_an_unknown_group_and_a_group_of_others_are_alike
                r_036_keys_of_another_tenant_are_out_of_reach
            }
            revocation {
                i_002_groups_that_a_capability_claims_open_nothing
                r_029_a_capability_from_before_a_change_of_grants_opens_nothing
                r_029_a_membership_counts_from_the_next_request_on
                r_029_the_grants_of_one_tenant_do_not_move_another_s
                r_029_a_revoked_key_and_its_capabilities_are_worth_nothing
                r_036_the_last_key_that_makes_keys_is_not_revoked
                r_033_the_rule_for_a_change_of_the_organisation_is_the_tenants_own
                r_035_a_deleted_group_takes_its_memories_out_of_sight
                r_035_the_directory_tells_what_it_holds
            }
            expiry {
                r_011_a_memory_is_served_inside_its_window_only
                r_011_a_narrower_interval_excludes_what_does_not_touch_it
                r_071_turns_and_packs_end_at_their_time
                r_071_what_is_over_can_be_neither_corrected_nor_retracted
                r_010_the_facts_of_a_flat_list_are_counted
                r_010_the_prefix_holds_until_a_rule_begins_or_ends
            }
            recall {
                r_007_k_hits_come_from_the_visible_whenever_it_holds_k
                r_023_ranking_equals_an_index_that_holds_only_the_visible
                r_008_rules_are_never_ranked
                r_007_every_filter_narrows
                r_004_turns_are_found_where_they_were_asked_for
                a_turn_is_found_by_the_turn_that_it_answers
                a_vector_finds_what_no_word_does
                i_014_vectors_of_another_model_are_refused
                i_014_the_model_of_a_tenants_vectors_is_told
                without_words_in_common_the_newest_comes_first
            }
            supersession {
                r_017_a_slot_delivers_its_last_value_only
                r_017_a_change_back_to_an_old_value_makes_it_current
                r_017_a_correction_takes_the_place_of_the_old_revision
                r_017_a_correction_cannot_take_the_slot_of_another_memory
                r_017_what_is_retracted_is_gone_from_every_path
                r_017_past_revisions_are_found_by_number_only
                the_same_text_is_kept_once
                a_slot_belongs_to_its_owner
                r_010_only_rules_and_facts_raise_the_prefix
            }
            conversation {
                r_026_deleting_a_conversation_leaves_everything_else
                r_026_a_correction_does_not_wash_off_the_origin
                r_027_a_turn_needs_a_recorded_conversation
                r_002_turns_of_a_session_are_not_kept
                turns_are_numbered_from_one
                r_058_a_turn_keeps_what_it_rests_on
                r_018_the_newest_summary_of_a_conversation_is_found
            }
            paging {
                paging_visits_each_record_once_while_others_are_written
                turns_are_listed_in_both_directions
                a_cursor_belongs_to_its_listing
                r_028_conversations_are_listed_for_their_subject_only
            }
            races {
                r_036_administrators_who_end_each_other_at_once_leave_one
                r_017_of_two_corrections_of_one_revision_one_wins
                racing_appends_are_numbered_without_a_gap
                i_007_what_changed_after_the_search_is_not_released
                i_007_what_is_gone_is_released_neither_as_a_turn_nor_as_past
                i_011_a_batch_is_kept_as_a_whole_or_not_at_all
            }
            idempotency {
                a_repeated_request_gets_the_first_answer
                a_key_with_another_request_is_a_conflict
                r_034_a_remembered_answer_is_not_given_to_another_subject
                a_remembered_answer_ends_at_its_time
            }
            erasure {
                r_064_an_erasure_leaves_nothing_of_the_subject_and_all_of_the_others
                r_067_an_erased_person_who_comes_back_is_somebody_new
                r_069_an_erasure_can_be_repeated
                l_16_nothing_is_written_or_opened_after_an_erasure_was_accepted
                l_16_a_denial_after_an_erasure_makes_no_key
            }
            source {
                r_048_a_draft_is_served_to_nobody_until_it_is_published
                r_049_a_manifest_names_every_passage_and_where_it_is
                r_051_a_replaced_revision_is_not_current_on_any_path
                r_051_a_withdrawn_source_is_not_served_until_it_is_restored
                r_053_after_a_deletion_nothing_is_found_by_id_filter_or_similarity
                r_063_a_deleted_source_with_a_copy_can_be_restored
                r_062_unchanged_passages_take_over_their_vectors
                r_056_a_source_is_shown_to_present_members_of_its_groups_only
                r_056_a_source_of_a_deleted_group_is_shown_to_nobody
                r_056_a_passage_is_checked_again_when_it_is_released
                r_054_changes_of_sources_and_rights_raise_the_knowledge_epoch
                r_055_what_rests_on_an_older_generation_is_not_released
                r_071_a_source_is_served_inside_its_window_only
                r_034_sources_of_another_tenant_are_unknown
                r_023_passages_of_others_change_no_score
            }
            agreement {
                r_119_a_random_history_is_answered_as_the_reference_does
            }
            evidence {
                r_080_each_recorded_read_is_one_entry
                r_099_the_ledger_verifies_after_everything
                l_28_a_denial_is_recorded
                l_22_an_entry_is_proven_on_its_own
                r_097_no_word_and_no_name_stands_in_the_ledger
                each_change_is_one_entry
            }
        }
    };
}

/// All checks with their names.
pub const CHECKS: &[(&str, Check)] = crate::conformance_checks!(list());

/// One `#[test]` per check for a backend: pass a function that returns a fresh `Box<dyn Subject>`.
#[macro_export]
macro_rules! conformance_tests {
    ($fresh:expr) => {
        $crate::conformance_checks! { tests ($fresh) }
    };
}

/// Runs every check on an instance of its own and names those that failed.
///
/// # Errors
/// The failures, if there are any.
pub fn run(fresh: &dyn Fn() -> Box<dyn Subject>) -> Result<(), Vec<(&'static str, Failure)>> {
    let failures: Vec<_> = CHECKS
        .iter()
        .filter_map(|(name, check)| check(&*fresh()).err().map(|failure| (*name, failure)))
        .collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}
