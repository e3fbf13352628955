//! Ranks that compute longer for a moment: every large job has some in every few iterations, each time others (FALCON's
//! stragglers that come and go). The iteration is long, links hold data for whoever comes late, and nobody is at fault.
use crate::blame::slow;
use crate::median::median;
use crate::timeline::{Iteration, RankState, Timeline};
use mycroft_record::HostTime;

/// Iterations before a slowdown from which it is told how long a rank computes.
const BASE_ITERATIONS: usize = 16;
/// A rank is why an iteration was long when it computed longer by this share of it.
const REASON: f64 = 0.7;
/// It was no moment when the rank computes longer by this share of that in half of the other iterations that are as long or
/// longer.
const AGAIN: f64 = 0.5;
/// As long as another is an iteration that is longer than usual by this share of what the other is.
const ALIKE: f64 = 0.5;

/// A long iteration of the job.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Long {
    pub start: HostTime,
    pub end: HostTime,
    /// How much longer than usual, milliseconds.
    pub over_ms: f64,
}

/// Which of `laps` are long only because a rank computed longer that does not in most of the others. `before`: the job was
/// as usual until then, where an iteration took `usual_ns_max` nanoseconds at most.
pub(crate) fn are_moments(timeline: &Timeline, laps: &[Long], before: HostTime, usual_ns_max: u64) -> Vec<bool> {
    let whole: Vec<&RankState> = timeline.ranks.values().filter(|state| !timeline.has_fresh_gap(state)).collect();
    let over_ms = whole.iter().map(|state| computed_longer(state, laps, before)).collect();
    told_by(laps, over_ms, usual_moment_ms(&whole, before, usual_ns_max))
}

/// How much longer than usual the rank that does so by most computed in the usual iteration: large jobs have such a moment in
/// every one, and one as long makes no iteration longer than that.
fn usual_moment_ms(ranks: &[&RankState], before: HostTime, usual_ns_max: u64) -> f64 {
    let Some(first) = ranks.first() else { return 0.0 };
    let list = first.iterations.list();
    let is_usual = |it: &&Iteration| it.end <= before && it.ns() <= usual_ns_max;
    let usual = list.iter().rev().filter(is_usual).take(BASE_ITERATIONS);
    let laps: Vec<Long> = usual.map(|it| Long { start: it.start, end: it.end, over_ms: 0.0 }).collect();
    let mut most = vec![0.0_f64; laps.len()];
    for state in ranks {
        let longer = computed_longer(state, &laps, before);
        most.iter_mut().zip(longer).for_each(|(most, over_ms)| *most = most.max(over_ms));
    }
    median(most).unwrap_or(0.0)
}

/// The same from how many milliseconds longer each rank computed in each of them. What most ranks have in common
/// (evaluation, long sequences) is no reason of one.
fn told_by(laps: &[Long], mut ranks: Vec<Vec<f64>>, usual_ms: f64) -> Vec<bool> {
    let judges: Vec<Vec<usize>> = (0..laps.len()).map(|at| judges(laps, at)).collect();
    let of_all = |at| median(ranks.iter().map(|over_ms| over_ms[at]).collect()).unwrap_or(0.0).max(0.0);
    let common: Vec<f64> = (0..laps.len()).map(of_all).collect();
    let mut reasons = vec![Reason::Unknown; laps.len()];
    for over_ms in &mut ranks {
        over_ms.iter_mut().zip(&common).for_each(|(over_ms, common)| *over_ms -= common);
        let mut next_lasts = false;
        for (at, lap) in laps.iter().enumerate().rev() {
            let is_usual = usual_ms >= REASON * over_ms[at];
            let explains_ms = over_ms[at] - if is_usual { usual_ms } else { 0.0 };
            if explains_ms < REASON * (lap.over_ms - common[at]).max(0.0) || explains_ms <= 0.0 {
                next_lasts = false;
                continue;
            }
            // One that is much longer is another matter: what made it long is no reason of a short one. But what lasts
            // began within an iteration.
            let again = |other: usize| over_ms[other] >= AGAIN * over_ms[at] && is_as_long(*lap, laps[other]);
            let begins = next_lasts && laps[at + 1].start.since_ns(lap.end) <= slow::SLACK_NS;
            next_lasts = begins || 2 * judges[at].iter().filter(|other| again(**other)).count() >= judges[at].len();
            let lasts = next_lasts || reasons[at] == Reason::Lasting;
            reasons[at] = if lasts { Reason::Lasting } else { Reason::Moment };
        }
    }
    reasons.into_iter().map(|reason| reason == Reason::Moment).collect()
}

/// The others that a lap is judged by: those as long as it or longer, so that short moments before a fault do not hide it;
/// all where none is.
fn judges(laps: &[Long], at: usize) -> Vec<usize> {
    let others = (0..laps.len()).filter(|other| *other != at);
    let as_long: Vec<usize> = others.clone().filter(|other| is_as_long(laps[*other], laps[at])).collect();
    if as_long.is_empty() { others.collect() } else { as_long }
}

fn is_as_long(lap: Long, as_lap: Long) -> bool {
    lap.over_ms >= ALIKE * as_lap.over_ms
}

/// Why an iteration was long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    Unknown,
    Moment,
    Lasting,
}

/// How many milliseconds longer a rank computed in each of `laps` than before.
fn computed_longer(state: &RankState, laps: &[Long], before: HostTime) -> Vec<f64> {
    let list = state.iterations.list();
    let usual = list.iter().rev().filter(|it| it.end <= before).take(BASE_ITERATIONS).map(|it| it.compute_us);
    let Some(usual_us) = median(usual.collect()) else { return vec![0.0; laps.len()] };
    let over_ms = |lap: &Long| {
        let middle = lap.start + lap.end.since_ns(lap.start) / 2;
        slow::at(list, middle).map_or(0.0, |it| (it.compute_us - usual_us) / 1e3)
    };
    laps.iter().map(over_ms).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ranks: &[[f64; 4]]) -> Vec<bool> {
        told_of([200.0; 4], ranks)
    }

    /// Of these ranks, among as many that are as fast as ever.
    fn told_of<const N: usize>(over_ms: [f64; N], ranks: &[[f64; N]]) -> Vec<bool> {
        told_by_all(over_ms, &[ranks, &vec![[0.0; N]; ranks.len()]].concat())
    }

    fn told_by_all<const N: usize>(over_ms: [f64; N], ranks: &[[f64; N]]) -> Vec<bool> {
        told_beside(over_ms, ranks, 0.0)
    }

    /// Where in the usual iteration some rank computes so much longer.
    fn told_beside<const N: usize>(over_ms: [f64; N], ranks: &[[f64; N]], usual_ms: f64) -> Vec<bool> {
        let long = |(at, over_ms)| Long { start: HostTime(at), end: HostTime(at + 1), over_ms };
        let laps: Vec<Long> = (0..).zip(over_ms).map(long).collect();
        told_by(&laps, ranks.iter().map(|rank| rank.to_vec()).collect(), usual_ms)
    }

    #[test]
    fn a_rank_that_is_slow_once_is_a_moment() {
        assert_eq!(told(&[[190.0, 0.0, 0.0, 0.0], [0.0, 0.0, 150.0, 3.0]]), [true, false, true, false]);
        assert_eq!(told(&[[120.0, 0.0, 0.0, 0.0]]), [false; 4], "something else made it as long");
        assert_eq!(told(&[[190.0, 10.0, 120.0, 5.0]]), [true, false, false, false], "once more, less: still a moment");
    }

    #[test]
    fn a_moment_like_that_of_the_usual_iteration_makes_none_longer() {
        let ranks = [[190.0, 0.0, 5.0, 0.0], [0.0, 185.0, 0.0, 188.0], [0.0; 4], [0.0; 4], [0.0; 4]];
        assert_eq!(told_by_all([210.0; 4], &ranks), [true, true, false, true]);
        assert_eq!(told_beside([210.0; 4], &ranks, 180.0), [false; 4]);
        assert_eq!(told_beside([210.0; 4], &ranks, 70.0), [true, true, false, true], "that one is much longer");
    }

    #[test]
    fn a_rank_that_is_slow_again_and_again_is_not() {
        assert_eq!(told(&[[190.0, 200.0, 180.0, 210.0]]), [false; 4]);
        assert_eq!(told(&[[190.0, 0.0, 180.0, 170.0]]), [false; 4], "most of the time");
        let all = [[210.0, 150.0, 190.0, 150.0], [150.0, 210.0, 150.0, 190.0]];
        assert_eq!(told(&all), [false; 4], "a host whose ranks take turns at being the slowest");
        let beside = [[300.0, 0.0, 0.0, 0.0], [190.0, 200.0, 180.0, 210.0]];
        assert_eq!(told(&beside), [false; 4], "a moment beside what lasts");
    }

    #[test]
    fn moments_before_a_fault_do_not_make_it_one() {
        let over_ms = [56.0, 69.0, 54.0, 216.0, 396.0];
        let slow = [0.0, 0.0, 0.0, 210.0, 390.0];
        let others = [[55.0, 0.0, 0.0, 0.0, 0.0], [0.0, 68.0, 0.0, 0.0, 0.0], [0.0, 0.0, 53.0, 0.0, 0.0]];
        let told = told_of(over_ms, &[slow, others[0], others[1], others[2]]);
        assert_eq!(told, [true, true, true, false, false]);
        assert_eq!(told_of([56.0, 69.0, 400.0], &[[0.0, 0.0, 390.0]]), [false, false, true], "one long one, alone");
        // The rank whose device becomes slow made a short one as well: that one is no part of it.
        let before = [20.0, 1.0, 2.0, 165.0, 383.0, 380.0];
        let told = told_of([24.0, 22.0, 20.0, 216.0, 396.0, 382.0], &[before, [0.0, 21.0, 0.0, 0.0, 0.0, 0.0]]);
        assert!(told[0]);
        assert_eq!(told_of([138.0, 384.0, 380.0], &[[130.0, 380.0, 378.0]]), [false; 3], "it began within the first");
        assert_eq!(told[3..], [false; 3]);
    }

    #[test]
    fn what_all_have_in_common_is_nobodys() {
        // An evaluation in the second iteration, and three ranks that are slow once each.
        let over_ms = [144.0, 329.0, 142.0, 139.0];
        let slow = [[141.0, 75.0, -5.0, 2.0], [17.0, 83.0, 140.0, 77.0], [5.0, 85.0, -1.0, 138.0]];
        let others = [[0.0, 80.0, 0.0, 0.0]; 8];
        assert_eq!(told_by_all(over_ms, &[&slow[..], &others[..]].concat()), [true, false, true, true]);
        // Those of a host that are slow alike, among others.
        let host = [[140.0, 150.0, 141.0, 139.0]; 3];
        assert_eq!(told_by_all([144.0, 150.0, 142.0, 139.0], &[&host[..], &others[..]].concat()), [false; 4]);
    }
}
