//! Ways that are slow while something else slows the job.
use super::sending::ranks;
use super::*;
use mycroft_record::Rank;

/// Rows of a ring of which the NIC of host 0 makes both its ways take so long, milliseconds, in iterations of which the last rank to issue
/// makes its device idle for so long.
fn row(iteration_ms: f64, nic_ms: f64, latest_ms: f64) -> Row {
    let sent_ms = |from: usize| if from.is_multiple_of(3) { nic_ms } else { 100.0 };
    let way = |from: usize| ((name(from), name(from + 1)), Way { sent_ms: sent_ms(from), mb: 100.0, ..Way::default() });
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

/// A NIC gets slow while a device still is: once the device is not, it accounts for what iterations are longer than before both, though
/// they are no longer than with the device, and though the device's case is open.
#[test]
fn a_nic_is_told_after_a_device_that_is_well_again() {
    let told = |device_ms: f64| {
        let mut ring = Ring::default();
        let computes = |more_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation if rank == 9 => 200.0 + more_ms,
                Component::Computation => 200.0,
                _ => 0.0,
            }
        };
        let device = || vec![Some((Component::Computation, Subject::Rank(9)))];
        ring.of_ranks(20, &row(300.0, 100.0, 0.0), computes(0.0));
        ring.evidence.tell(Some(at(20)), device());
        ring.of_ranks(10, &row(600.0, 100.0, 0.0), computes(300.0));
        ring.evidence.tell(Some(at(20)), device());
        ring.of_ranks(12, &row(600.0, 400.0, 0.0), computes(device_ms));
        causes_of(&ring).into_iter().map(|(category, _)| category).collect::<Vec<_>>()
    };
    assert_eq!(told(0.0), [Category::NetworkSend]);
    assert_eq!(told(300.0), [Category::Gpu], "no iteration waits for the NIC");
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

/// A host is told as slower than its peers, and one that has a stage of the pipeline for itself as slower than before.
#[test]
fn beside_whom_a_host_is_slow_is_told() {
    let told = |stages: u32| {
        let mut ring =
            Ring { roles: std::array::from_fn(|rank| Role::number(rank as u32 / 4 % stages)), ..Ring::default() };
        let takes = |ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation if rank < 4 => ms,
                Component::Computation => 200.0,
                _ => 0.0,
            }
        };
        ring.of_ranks(20, &Row { iteration_ms: 300.0, ..Row::default() }, takes(200.0));
        ring.of_ranks(10, &Row { iteration_ms: 360.0, ..Row::default() }, takes(260.0));
        ring.because()
    };
    let more = "host0 computes 60 ms an iteration longer than";
    assert_eq!(told(1), format!("{more} all but the slowest of its peers, in 10 looks of about a second"));
    assert_eq!(told(4), format!("{more} before, in 10 looks of about a second"));
}

/// Of two communicators on a host one takes 40 ms longer for what its ranks do together: the host is named, or the rank of it whose
/// copies into the transport's slots take longer too.
#[test]
fn slow_copies_inside_a_host_are_the_hosts_or_the_ranks_that_copies_slowly() {
    let told = |copy_ms: f64| {
        let mut ring = Ring::default();
        let takes = |local_ms: f64, copy_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation => 200.0,
                Component::Local if (4..6).contains(&rank) => local_ms,
                Component::Local => 10.0,
                Component::Copy if rank == 5 => copy_ms,
                _ => 0.0,
            }
        };
        ring.of_ranks(20, &Row { iteration_ms: 300.0, ..Row::default() }, takes(10.0, 0.0));
        ring.of_ranks(10, &Row { iteration_ms: 340.0, ..Row::default() }, takes(50.0, copy_ms));
        let rule = causes(&ranks(), &Config::default(), &ring.evidence)[0].because[0].rule;
        (rule, causes_of(&ring))
    };
    let of_rank = vec![(Category::GpuCopy, Place::Rank { rank: Rank(5), host: name(1) })];
    assert_eq!(told(0.0), ("peers.local", vec![(Category::GpuCopy, host(1))]));
    assert_eq!(told(25.0), ("peers.copy", of_rank), "it costs less than what waits for it");
}

/// A rank that has its operations issued in time computes while others wait for theirs, and begins the next one with them.
#[test]
fn who_computes_while_others_wait_for_their_host_is_not_slow() {
    let told = |issue_ms: f64| {
        let mut ring = Ring::default();
        let takes = move |rank: usize, component| match component {
            Component::Computation => {
                if rank == 9 {
                    240.0
                } else {
                    200.0
                }
            }
            Component::Issue => {
                if rank == 9 {
                    issue_ms
                } else {
                    40.0
                }
            }
            _ => 0.0,
        };
        ring.of_ranks(20, &Row { iteration_ms: 300.0, ..Row::default() }, takes);
        causes_of(&ring)
    };
    assert_eq!(told(0.0), []);
    assert_eq!(told(40.0), [(Category::Gpu, Place::Rank { rank: Rank(9), host: name(2) })]);
}

/// A NIC that was slow before anybody looked is told beside others that carry the same, since the first row, and in these words.
#[test]
fn a_nic_that_is_slow_from_the_first_second_is_told_by_what_others_take() {
    let mut slow = row(600.0, 300.0, 0.0);
    for way in slow.ways.values_mut() {
        *way = Way { messages: 10.0, links: 1, alone_ms: way.sent_ms, fastest_ms: way.sent_ms / way.mb, ..*way };
    }
    let mut ring = Ring::default();
    ring.of_ranks(30, &slow, |_, _| 0.0);
    let causes = causes(&ranks(), &Config::default(), &ring.evidence);
    let [cause] = &causes[..] else { panic!("{causes:?}") };
    assert_eq!((cause.category, &cause.suspects[0].place, cause.since), (Category::NetworkSend, &host(0), at(0)));
    let told = &cause.because[0].text;
    assert!(told.contains("take longer than others that carry as much") && !told.contains("before"), "{told}");
}
