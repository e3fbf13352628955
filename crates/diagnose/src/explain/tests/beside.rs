//! Ways that are slow while something else slows the job.
use super::sending::ranks;
use super::*;

/// Rows of a ring of which the NIC of host 0 makes both its ways take so long, milliseconds, in iterations of which the last rank to issue
/// makes its device idle for so long.
fn row(iteration_ms: f64, nic_ms: f64, latest_ms: f64) -> Row {
    let sent_ms = |from: usize| if from.is_multiple_of(3) { nic_ms } else { 100.0 };
    let way = |from: usize| ((name(from), name(from + 1)), Way { sent_ms: sent_ms(from), mb: 100.0 });
    Row { iteration_ms, latest_ms, ways: (0..4).map(way).collect(), ..Row::default() }
}

fn causes_of(ring: &Ring) -> Vec<(Category, Place)> {
    let causes = causes(&ranks(), &Config::default(), &ring.evidence);
    causes.into_iter().map(|cause| (cause.category, cause.suspects[0].place.clone())).collect()
}

/// All wait for whichever rank issues last: that data is longer on its way then is not why.
#[test]
fn late_issue_that_accounts_for_what_iterations_grew_accuses_no_nic() {
    let told = |latest_ms: f64| {
        let mut ring = Ring::default();
        ring.of_ranks(20, &row(300.0, 100.0, 5.0), |_, _| 0.0);
        ring.of_ranks(8, &row(600.0, 400.0, latest_ms), |_, _| 0.0);
        causes_of(&ring)
    };
    assert_eq!(told(5.0), [(Category::NetworkSend, host(0))]);
    assert_eq!(told(290.0), []);
}

/// A NIC that gets slow later than a device, and makes iterations longer by it, has its own case; what gets slow with the device may wait for it.
#[test]
fn a_nic_is_told_beside_a_device_only_where_iterations_got_longer_with_it() {
    let told = |seconds_before: u64, longer_ms: f64| {
        let mut ring = Ring::default();
        let computes = |more_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation if rank == 9 => 200.0 + more_ms,
                Component::Computation => 200.0,
                _ => 0.0,
            }
        };
        ring.of_ranks(20, &row(300.0, 100.0, 0.0), computes(0.0));
        ring.of_ranks(seconds_before, &row(600.0, 100.0, 0.0), computes(300.0));
        ring.of_ranks(12, &row(600.0 + longer_ms, 300.0, 0.0), computes(300.0));
        causes_of(&ring).into_iter().map(|(category, _)| category).collect::<Vec<_>>()
    };
    assert_eq!(told(10, 150.0), [Category::Gpu, Category::NetworkSend]);
    assert_eq!(told(10, 0.0), [Category::Gpu], "no iteration waits for it");
    assert_eq!(told(0, 150.0), [Category::Gpu], "they began together");
}

/// A rank keeps data for most of what iterations grew. Ways that are several times as slow, and cost far less, are no reason for that.
#[test]
fn ways_that_cost_little_do_not_hide_a_thread_that_keeps_data() {
    let told = |nic_ms: f64| {
        let mut ring = Ring::default();
        let holds = |ms: f64| {
            move |rank: usize, component| if component == Component::Handover && rank == 9 { ms } else { 0.0 }
        };
        ring.of_ranks(20, &row(300.0, 8.0, 0.0), holds(0.0));
        ring.of_ranks(12, &row(400.0, nic_ms, 0.0), holds(100.0));
        let causes = causes(&ranks(), &Config::default(), &ring.evidence);
        causes.into_iter().map(|cause| cause.category).collect::<Vec<_>>()
    };
    assert_eq!(told(8.0), [Category::HostThread]);
    assert_eq!(told(40.0), [Category::HostThread], "five times as slow, for a third of it");
    assert!(!told(100.0).contains(&Category::HostThread), "it accounts for as much");
}
