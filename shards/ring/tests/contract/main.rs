//! The contract of [`warmpath_ring::Ring`], checked on both kernel drivers by the same tests.

#![allow(clippy::unwrap_used)]

mod chaos;
mod closing;
mod flow;
mod harness;
mod scarcity;

/// Runs each named function once on each driver.
macro_rules! on_both_drivers {
    ($($module:ident :: $name:ident),* $(,)?) => {
        mod uring {
            $(#[test]
            fn $name() {
                if let Some((fault, cure)) = warmpath_ring::why_not_uring() {
                    return eprintln!("not_run: {fault} {cure}");
                }
                crate::$module::$name(&|sizes| warmpath_ring::Uring::new(sizes).unwrap());
            })*
        }
        mod epoll {
            $(#[test]
            fn $name() {
                crate::$module::$name(&|sizes| warmpath_ring::Epoll::new(sizes).unwrap());
            })*
        }
    };
}

on_both_drivers!(
    chaos::survives_any_order_of_events,
    flow::echoes_every_size,
    flow::echoes_to_a_slow_reader,
    flow::sends_two_parts_whole,
    flow::joins_a_head_and_received_bytes,
    flow::tells_the_end_after_all_bytes,
    flow::tells_a_reset,
    flow::tells_a_refused_connection,
    flow::connects_and_talks,
    flow::ends_its_side_after_the_send_in_flight,
    flow::pauses_and_goes_on,
    flow::times_out,
    flow::is_woken_by_another_thread,
    closing::closes_with_operations_in_flight,
    closing::never_names_a_closed_socket,
    closing::reuses_slots_under_new_generations,
    closing::accepts_what_the_queue_holds_before_closing,
    closing::gives_a_listener_handle_back,
    scarcity::works_with_eight_completions,
    scarcity::fills_nearly_all_buffers_at_once,
    scarcity::serves_all_with_four_buffers,
    scarcity::does_not_spin_without_buffers,
    scarcity::wakes_the_starved_when_a_buffer_returns,
);
