//! What is told of the whole job, by rows made by hand.
use super::*;

/// Seconds of ranks that all compute so many times as long in each, and of which iterations are as much longer.
fn of_loads(ring: &mut Ring, loads: &[f64]) {
    for load in loads {
        let like = Row { iteration_ms: 100.0 + 200.0 * load, ..Row::default() };
        ring.of_ranks(1, &like, |rank, component| match component {
            Component::Computation => (200.0 + (rank % 3) as f64) * load,
            Component::Rest => 100.0 * load,
            _ => 0.0,
        });
    }
}

/// Sequences are long or short: a few long ones are no slower devices, however far they are from the short ones.
#[test]
fn long_sequences_that_come_by_turns_are_no_slow_devices() {
    let mut ring = Ring::default();
    of_loads(&mut ring, &[1.0; 12]);
    for long in [3, 5, 4, 6, 3, 5] {
        of_loads(&mut ring, &vec![1.5; long]);
        assert_eq!(ring.causes(), [], "{long} in a row");
        of_loads(&mut ring, &[1.0; 2]);
    }
}

/// Slower devices make every iteration longer.
#[test]
fn all_devices_are_told_once_no_iteration_is_as_short_as_before() {
    let mut ring = Ring::default();
    of_loads(&mut ring, &[1.0; 20]);
    of_loads(&mut ring, &[1.5; 8]);
    assert_eq!(ring.causes(), []);
    of_loads(&mut ring, &[1.5; 8]);
    assert_eq!(ring.causes(), [(Category::Gpu, Subject::Job)]);
}

/// Without kernel events all that seem to compute longer may wait.
#[test]
fn no_device_is_told_of_where_computation_is_not_known_for_sure() {
    let mut ring = Ring::default();
    of_loads(&mut ring, &[1.0; 20]);
    of_loads(&mut ring, &[1.5; 16]);
    let told = |kernel_events: bool| {
        let causes = causes(&sending::ranks_with(kernel_events), &Config::default(), &ring.evidence);
        causes.into_iter().map(|cause| cause.category).collect::<Vec<_>>()
    };
    assert_eq!(told(true), [Category::Gpu]);
    assert_eq!(told(false), []);
}

/// A few iterations that were a little longer just before do not make what follows as short as before.
#[test]
fn all_devices_are_told_although_the_last_iterations_before_were_odd() {
    let mut ring = Ring::default();
    of_loads(&mut ring, &[1.0; 9]);
    of_loads(&mut ring, &[1.045, 1.045]);
    of_loads(&mut ring, &[2.5; 12]);
    assert_eq!(ring.causes(), [(Category::Gpu, Subject::Job)]);
}

/// What a case was told of is not what iterations were like before the next fault.
#[test]
fn all_devices_are_told_again_after_a_case_that_is_over() {
    let mut ring = Ring::default();
    of_loads(&mut ring, &[1.0; 20]);
    ring.evidence.tell(Some(at(20)), Vec::new());
    of_loads(&mut ring, &[1.5; 40]);
    ring.evidence.tell(Some(at(20)), Vec::new());
    of_loads(&mut ring, &[1.0; 20]);
    of_loads(&mut ring, &[1.5; 16]);
    assert_eq!(ring.causes(), [(Category::Gpu, Subject::Job)]);
}

/// A row of iterations that wait for whoever issues last.
fn late(iteration_ms: f64, latest_ms: f64) -> Row {
    Row { iteration_ms, latest_ms, ..Row::default() }
}

/// What a rank takes that issues for so long.
fn issues(issue_ms: f64) -> impl Fn(usize, Component) -> f64 {
    move |_, component| match component {
        Component::Computation => 200.0,
        Component::Rest => 100.0,
        Component::Issue => issue_ms,
        _ => 0.0,
    }
}

#[test]
fn all_ranks_that_wait_for_storage_are_told_and_nobody_is_named() {
    let mut ring = Ring::default();
    ring.of_ranks(30, &late(300.0, 5.0), issues(5.0));
    ring.of_ranks(20, &late(360.0, 65.0), issues(65.0));
    assert_eq!(ring.causes(), [(Category::DataLoading, Subject::Job)]);
}

/// In each iteration another of 16 ranks stands still for 64 ms: each rank is 4 ms later on average, and all wait for 64.
#[test]
fn pauses_that_wander_over_the_ranks_are_told_and_nobody_is_named() {
    let mut ring = Ring::default();
    ring.of_ranks(30, &late(300.0, 5.0), issues(5.0));
    ring.of_ranks(20, &late(364.0, 69.0), issues(9.0));
    assert_eq!(ring.causes(), [(Category::NotStarted, Subject::Job)]);
}

/// More micro-batches are issued and computed: no fault.
#[test]
fn ranks_that_issue_more_since_they_compute_more_are_no_fault() {
    let mut ring = Ring::default();
    ring.of_ranks(30, &late(300.0, 50.0), issues(50.0));
    let more = |_: usize, component| match component {
        Component::Computation => 300.0,
        Component::Rest => 100.0,
        Component::Issue => 150.0,
        _ => 0.0,
    };
    ring.of_ranks(20, &late(420.0, 150.0), more);
    assert_eq!(ring.causes(), []);
}

/// A pause of one rank in two of three iterations: the third is as long as before, and it is a fault all the same.
#[test]
fn pauses_in_some_iterations_are_told() {
    let mut ring = Ring::default();
    ring.of_ranks(30, &late(300.0, 5.0), issues(5.0));
    for nth in 0..36 {
        let pause_ms = if nth % 3 == 0 { 0.0 } else { 64.0 };
        ring.of_ranks(1, &late(300.0 + pause_ms, 5.0 + pause_ms), issues(9.0));
    }
    assert_eq!(ring.causes(), [(Category::NotStarted, Subject::Job)]);
}

/// Where two of five iterations have a pause of some rank anyway, a run of them is no news.
#[test]
fn a_run_of_pauses_that_come_anyway_is_no_fault() {
    let mut ring = Ring::default();
    let pauses = (0..30).map(|nth| if nth % 5 == 1 || nth % 5 == 3 { 64.0 } else { 0.0 });
    for pause_ms in pauses.chain([64.0; 14]) {
        ring.of_ranks(1, &late(300.0 + pause_ms, 5.0 + pause_ms), issues(9.0));
    }
    assert_eq!(ring.causes(), []);
}
