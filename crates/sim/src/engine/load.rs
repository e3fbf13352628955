//! How busy the processors of a host are, and how long the job's threads wait for one, as its agent reads them
//! (`/proc/stat`, `/proc/PID/task/TID/schedstat`).
use crate::collective::{mix, unit};
use crate::effects::{CpuTaken, HostEffects};
use crate::scenario::Scenario;
use mycroft_record::NANOS_PER_SEC;

/// Share of a host's processors that a training job keeps busy, at least: input, launches, proxy threads.
const OWN: f64 = 0.1;
/// How much more some hosts are asked for than others.
const OWN_SPREAD: f64 = 0.2;
/// From second to second it differs by this share.
const WOBBLE: f64 = 0.25;
/// Share of their time that threads wait for a processor that is free, at most: interrupts, wake-ups, migrations.
const WAITS: f64 = 0.04;
/// One host in so many has work of the lowest priority to do at some time (checksums, indexing, backups): it fills all
/// cores and takes none from the job's threads.
const WITH_BACKGROUND: f64 = 32.0;
/// How long that takes, seconds, and how much longer at most.
const BACKGROUND_S: (f64, f64) = (5.0, 35.0);
/// One host in so many runs something short of an ordinary priority once: threads of the job wait, too little to be felt.
const WITH_CHORE: f64 = 16.0;
/// How long that takes, seconds, and how much longer at most.
const CHORE_S: (f64, f64) = (1.0, 1.5);
/// Share of their time that threads wait meanwhile, and how much more at most.
const CHORE_WAITS: (f64, f64) = (0.1, 0.1);
/// Streams of a seed, beside those of the collectives.
const STREAM: u64 = 0xB057_0000;

/// What an agent tells of its host's processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    /// Thousandths of all cores that were busy.
    pub busy_milli: u32,
    /// Thousandths of the time in which the job's threads were ready to run that they waited.
    pub wait_milli: u32,
}

/// The load around `at`.
pub(super) fn at(scenario: &Scenario, host: u32, effects: Option<&HostEffects>, at: u64) -> Load {
    let of_host = mix(scenario.seed, STREAM + u64::from(host));
    let of_second = mix(of_host, 1 + at / NANOS_PER_SEC);
    let slower = effects.map_or(&[][..], |host| &host.cpu_slower);
    let slower: f64 = slower.iter().filter(|held| (held.0..held.1).contains(&at)).map(|held| held.2).product();
    let taken = effects.map_or(&[][..], |host| &host.cpu_taken);
    let taken = || taken.iter().filter(|taken| (taken.from..taken.until).contains(&at));
    let own = (OWN + OWN_SPREAD * unit(of_host)) * (1.0 + WOBBLE * (2.0 * unit(of_second) - 1.0)) * slower;
    let background = is_once(scenario, of_host, at, 0, (WITH_BACKGROUND, BACKGROUND_S));
    let asked = if background { 1.0 } else { taken().map(|taken: &CpuTaken| taken.asked).sum() };
    let chore = is_once(scenario, of_host, at, 1, (WITH_CHORE, CHORE_S));
    let chore = if chore { CHORE_WAITS.0 + CHORE_WAITS.1 * unit(of_host) } else { 0.0 };
    let waits = WAITS * unit(mix(of_second, 1)) + chore + taken().map(|taken| taken.waits).sum::<f64>();
    Load { busy_milli: milli(own + asked), wait_milli: milli(waits) }
}

fn milli(share: f64) -> u32 {
    (1e3 * share.min(1.0)) as u32
}

/// Whether `at` is in the one stretch of something that one host in `of` has, as long as told.
fn is_once(scenario: &Scenario, of_host: u64, at: u64, stream: u64, (of, long_s): (f64, (f64, f64))) -> bool {
    let chance = |number: u64| unit(mix(of_host, (3 * stream + number + 1) << 32));
    let from_s = chance(0) * scenario.duration_s;
    let until_s = from_s + long_s.0 + long_s.1 * chance(1);
    let at_s = at as f64 / 1e9;
    chance(2) * of < 1.0 && at_s >= from_s && at_s < until_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Effects;
    use crate::fault::Fault;

    const S: u64 = NANOS_PER_SEC;

    fn load(fault: &str, at_s: u64) -> Load {
        let fault = Fault { after_s: 10.0, ..fault.parse().unwrap() };
        let scenario = Scenario { fault: Some(fault), duration_s: 100.0, ..Scenario::default() };
        let effects = Effects::of(&scenario);
        at(&scenario, 1, effects.hosts.get(&1), at_s * S)
    }

    #[test]
    fn contended_processors_are_busy_and_waited_for() {
        let usual = load("cpu-contention@host1,severity=100", 9);
        assert!((75..=375).contains(&usual.busy_milli) && usual.wait_milli <= 40, "{usual:?}");
        let contended = load("cpu-contention@host1,severity=100", 11);
        assert_eq!(contended.busy_milli, 1000);
        assert!((500..=540).contains(&contended.wait_milli), "{contended:?}");
    }

    #[test]
    fn slow_processors_are_busier_and_nobody_waits_for_them() {
        let (slow, usual) = (load("cpu-throttling@host1,severity=2", 50), load("gpu-power@host1:rank4", 50));
        assert!(slow.busy_milli.abs_diff(2 * usual.busy_milli) <= 1, "{slow:?} {usual:?}");
        assert_eq!(slow.wait_milli, usual.wait_milli);
    }

    /// Work that takes nothing from the job shows too.
    #[test]
    fn some_hosts_are_busy_without_a_fault() {
        let scenario = Scenario { duration_s: 100.0, ..Scenario::default() };
        let full = |host: &u32| {
            let loads = (0..100).map(|at_s| at(&scenario, *host, None, at_s * S));
            let (busiest, longest) =
                loads.fold((0, 0), |(a, b), load| (a.max(load.busy_milli), b.max(load.wait_milli)));
            assert!(longest <= 240);
            busiest == 1000
        };
        let count = (0..3200).filter(full).count();
        assert!((60..=140).contains(&count), "{count} of 3200");
    }
}
