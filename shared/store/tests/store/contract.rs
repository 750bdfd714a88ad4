//! What every store promises, one test for each promise.

/// How many steps of history the stores under test keep.
pub(crate) const HISTORY: usize = 10;

/// Tests one store. `$open` is a future of a new and empty one, as `Arc<dyn Store>`; where opening one takes long,
/// `proptest_cases` says how many random walks are enough.
macro_rules! cases {
    ($store:ident, $open:expr) => {
        $crate::contract::cases!($store, $open, proptest_cases = 256);
    };
    ($store:ident, $open:expr, proptest_cases = $proptest_cases:expr) => {
        $crate::contract::cases!(
            $store,
            $open,
            $proptest_cases,
            reading {
                a_subscriber_hears_what_is_published
                updates_of_a_fleet_come_in_order
                a_late_subscriber_gets_everything_and_then_synced
                an_empty_store_is_synced_at_once
                a_slow_reader_gets_the_newest
                a_reader_that_gives_up_waiting_misses_nothing
                a_fleet_that_never_rests_does_not_starve_the_others
                readers_keep_up_with_a_writer_that_never_rests
                a_retired_fleet_is_taken_away_and_may_come_back
                a_late_subscriber_does_not_hear_of_the_retired
                many_fleets_reach_many_subscribers
                a_watch_tells_the_records
                a_watch_tells_each_record_once
                what_did_not_change_is_not_loaded_again
                what_is_not_served_is_kept_with_the_rest
                every_section_comes_back_with_its_marks
            }
            writing {
                a_stale_fence_is_refused
                of_two_writers_the_older_is_fenced
                an_unexpected_head_is_refused
                a_head_that_is_not_newer_is_refused
                a_refused_write_changes_nothing
                a_retired_fleet_leaves_a_tombstone
                a_write_that_is_asked_again_changes_nothing
                a_write_that_is_asked_again_is_recognised_in_the_next_term
                another_write_at_the_same_head_is_refused
                an_inspection_tells_all_heads
                garbage_collection_keeps_what_is_in_use
            }
            terms {
                a_claim_tells_what_there_is
                a_fence_is_above_all_fences_before
                an_older_claim_is_refused
                an_adopted_store_takes_low_fences
                an_adoption_of_another_term_is_refused
            }
            history {
                steps_are_listed_with_time_and_cause
                endpoints_alone_are_no_step
                so_many_steps_are_kept_and_no_more
                a_step_can_be_loaded_and_compared
                a_pin_is_told_until_it_is_released
                the_number_of_the_next_order_is_above_all_before
                a_pinned_snapshot_outlives_the_history
                a_pin_outside_the_history_is_refused
                with_a_fleet_go_its_history_and_its_pin
            }
            acks {
                reports_of_all_replicas_are_read_at_once
            }
            presence {
                replicas_know_of_each_other
            }
        );
    };
    ($store:ident, $open:expr, $proptest_cases:expr, $($group:ident { $($case:ident)* })*) => {
        mod $store {
            use super::*;
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::$group::$case($open.await).await;
                }
            )*)*

            proptest::proptest! {
                #![proptest_config($crate::walk::config($proptest_cases))]
                #[test]
                fn a_random_walk_ends_where_the_model_does(steps in $crate::walk::steps()) {
                    let walk = async { $crate::walk::walk($open.await, steps).await };
                    $crate::walk::runtime().block_on(walk)?;
                }
            }
        }
    };
}

pub(crate) use cases;
