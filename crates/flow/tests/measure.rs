//! The measurement against a plain model: exact bytes of each flow and epoch in ordered maps. Nothing that is put in is lost:
//! it is in an epoch, carried, or told with its reason.
use mycroft_flow::limits::{CHUNK_EPOCHS, Grain, PAGE_ENTRIES, UNIT_BYTES_MIN};
use mycroft_flow::{Counters, FlowId, FlowReport, Meter, NicMeter};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a meter told of a flow, over all polls.
#[derive(Default)]
struct Told {
    epochs: BTreeMap<u64, u64>,
    counters: Counters,
    carried_bytes: u64,
}

impl Told {
    fn take(&mut self, report: &FlowReport<'_>) {
        for (epoch, bytes) in report.epochs() {
            assert!(bytes > 0, "epochs without bytes are not told");
            assert!(self.epochs.insert(epoch, bytes).is_none(), "epoch {epoch} is told twice");
        }
        self.counters.add(&report.counters);
        // A flow that ended keeps nothing; one that comes again begins anew.
        self.carried_bytes = report.carried_bytes;
    }

    fn in_epochs(&self) -> u64 {
        self.epochs.values().sum()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Send { flow: usize, after_ns: i64, bytes: u32 },
    Poll,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let steps = prop_oneof![4 => -200_000i64..400_000, 1 => -40_000_000i64..60_000_000, 1 => 0i64..3_000_000_000];
    let bytes = prop_oneof![3 => 0u32..9_000, 1 => Just(4096), 1 => 0u32..3_000_000];
    let send = (0usize..5, steps, bytes).prop_map(|(flow, after_ns, bytes)| Act::Send { flow, after_ns, bytes });
    prop::collection::vec(prop_oneof![12 => send, 1 => Just(Act::Poll)], 1..400)
}

/// The model: where each amount belongs, by the rules of docs/formats/flow.md, in exact bytes.
struct Model {
    grain: Grain,
    amount: u64,
    carried: BTreeMap<usize, u64>,
    epochs: BTreeMap<(usize, u64), u64>,
    put_in: BTreeMap<usize, u64>,
}

impl Model {
    fn send(&mut self, flow: usize, time_ns: u64, bytes: u32) {
        *self.put_in.entry(flow).or_default() += u64::from(bytes);
        let carried = self.carried.entry(flow).or_default();
        *carried += u64::from(bytes);
        let amount = *carried / self.amount * self.amount;
        *carried -= amount;
        if amount > 0 {
            *self.epochs.entry((flow, self.grain.epoch(time_ns))).or_default() += amount;
        }
    }
}

fn play(epoch_ns: u64, amount: u32, acts: &[Act], polls: bool) -> (Model, BTreeMap<usize, Told>) {
    let grain = Grain::new(epoch_ns).expect("a length within the limits");
    let mut meter = Meter::with_amount(grain, amount);
    let flows: Vec<FlowId> = (0..5).map(|_| meter.open().expect("room")).collect();
    let amount = u64::from(amount).max(grain.unit_bytes());
    let mut model = Model { grain, amount, carried: BTreeMap::new(), epochs: BTreeMap::new(), put_in: BTreeMap::new() };
    let mut told: BTreeMap<usize, Told> = BTreeMap::new();
    let mut ended = [false; 5];
    let mut now = 10_000_000_000u64;
    for act in acts {
        match act {
            Act::Send { flow, after_ns, bytes } => {
                now = now.saturating_add_signed(*after_ns);
                if !ended[*flow] {
                    model.send(*flow, now, *bytes);
                    meter.record(flows[*flow], now, *bytes);
                }
            }
            Act::Poll if polls => meter.poll(now, |report| {
                let flow = flows.iter().position(|flow| *flow == report.flow).expect("a known flow");
                told.entry(flow).or_default().take(report);
                ended[flow] |= report.has_ended;
            }),
            Act::Poll => {}
        }
    }
    meter.finish(|report| {
        assert!(report.has_ended);
        let flow = flows.iter().position(|flow| *flow == report.flow).expect("a known flow");
        told.entry(flow).or_default().take(report);
    });
    assert_eq!(meter.flows(), 0);
    (model, told)
}

proptest! {
    #[test]
    fn nothing_that_is_put_in_is_lost(
        acts in acts(),
        epoch_ns in prop_oneof![Just(8_000u64), Just(32_000), Just(1_024_000)],
        amount in prop_oneof![Just(0u32), Just(4096)],
    ) {
        let (model, told) = play(epoch_ns, amount, &acts, true);
        for (flow, put_in) in &model.put_in {
            let told = &told[flow];
            prop_assert_eq!(told.counters.bytes, *put_in);
            let found = told.in_epochs() + told.counters.outside_bytes() + told.carried_bytes;
            prop_assert_eq!(found, *put_in, "flow {}: {:?}", flow, told.counters);
        }
    }

    #[test]
    fn each_epoch_holds_what_the_model_says_or_less_with_the_rest_told(
        acts in acts(),
        epoch_ns in prop_oneof![Just(8_000u64), Just(32_000), Just(1_024_000)],
        amount in prop_oneof![Just(0u32), Just(4096)],
        polls in any::<bool>(),
    ) {
        let (model, told) = play(epoch_ns, amount, &acts, polls);
        for (flow, told) in &told {
            let mut short = 0;
            for ((_, epoch), exact) in model.epochs.range((*flow, 0)..=(*flow, u64::MAX)) {
                let seen = told.epochs.get(epoch).copied().unwrap_or(0);
                prop_assert!(seen <= *exact, "flow {flow}, epoch {epoch}: {seen} of {exact}");
                short += exact - seen;
            }
            prop_assert_eq!(short, told.counters.outside_bytes());
            let foreign = told.epochs.keys().any(|epoch| !model.epochs.contains_key(&(*flow, *epoch)));
            prop_assert!(!foreign, "bytes in an epoch in which none were sent");
        }
    }
}

#[test]
fn what_an_epoch_cannot_hold_is_told() {
    let mut meter = Meter::new(Grain::default());
    let flow = meter.open().expect("room");
    let full = u32::from(u16::MAX) * 32;
    meter.record(flow, 0, full);
    meter.record(flow, 1, 64);
    meter.finish(|report| {
        assert_eq!(report.epochs().collect::<Vec<_>>(), [(0, u64::from(full))]);
        assert_eq!(report.counters.overflow_bytes, 64);
    });
}

#[test]
fn late_reordered_and_early_events_are_told_apart() {
    let chunk_ns = Grain::default().epoch_ns() * CHUNK_EPOCHS as u64;
    let mut meter = Meter::new(Grain::default());
    let flow = meter.open().expect("room");
    meter.record(flow, 10 * chunk_ns, 32);
    meter.record(flow, 10 * chunk_ns - 1, 32);
    meter.record(flow, 8 * chunk_ns, 32);
    meter.record(flow, (9 + 64) * chunk_ns, 32);
    let mut seen = Counters::default();
    meter.poll(11 * chunk_ns, |report| seen = report.counters);
    assert_eq!((seen.events, seen.reordered_events, seen.late_bytes, seen.beyond_bytes), (4, 2, 32, 32));
    meter.record(flow, 10 * chunk_ns + 1, 32);
    meter.poll(12 * chunk_ns, |report| assert_eq!(report.counters.late_bytes, 32, "it was collected"));
}

#[test]
fn a_poll_is_due_before_an_event_is_beyond_the_window() {
    let chunk_ns = Grain::default().epoch_ns() * CHUNK_EPOCHS as u64;
    let mut meter = Meter::new(Grain::default());
    let flow = meter.open().expect("room");
    for step in 0..1000 {
        let time = step * chunk_ns / 2;
        if let Some(until) = meter.due(time) {
            meter.poll(until, |report| assert_eq!(report.counters.outside_bytes(), 0));
        }
        meter.record(flow, time, 4096);
    }
    meter.finish(|report| assert_eq!(report.counters.outside_bytes(), 0));
}

#[test]
fn a_silent_flow_ends_and_its_memory_goes_back() {
    let mut meter = NicMeter::new(Grain::default());
    let bare = meter.memory_bytes();
    let second = 1_000_000_000;
    for queue_pair in 0..300u32 {
        meter.event(queue_pair * PAGE_ENTRIES as u32, 0, 4096);
    }
    meter.event(1 << 24, 0, 4096);
    assert_eq!(meter.unplaced_bytes(), 4096, "no such queue pair");
    let held = meter.memory_bytes();
    let mut ends = 0;
    meter.poll(second, |_, report| ends += u32::from(report.has_ended));
    assert_eq!(ends, 0, "they sent since the last poll");
    meter.event(77 * PAGE_ENTRIES as u32, second, 4096);
    meter.poll(2 * second, |queue_pair, report| {
        assert_eq!(report.has_ended, queue_pair != 77 * PAGE_ENTRIES as u32);
        ends += u32::from(report.has_ended);
    });
    assert_eq!(ends, 299);
    assert!(meter.memory_bytes() - bare < (held - bare) / 4, "{} of {}", meter.memory_bytes() - bare, held - bare);
    meter.event(5, 2 * second, UNIT_BYTES_MIN as u32);
    let mut seen = Vec::new();
    meter.finish(|queue_pair, report| seen.push((queue_pair, report.epochs().count())));
    seen.sort_unstable();
    assert_eq!(seen, [(5, 1), (77 * PAGE_ENTRIES as u32, 0)], "a number is used again");
}
