//! What a test answers: times of repetitions, the shortest and the middle one of each thing that was done.
use mycroft_ring::gate::task::{Answer, Ending, Times};
use mycroft_ring::gate::words::TASK_VALUES;

/// Repetitions that count; one before them does not, for what is done only once (connections, pages, caches).
pub(crate) const REPETITIONS: usize = 5;

/// Times of the repetitions of one thing.
pub(crate) type Repeated = [u64; REPETITIONS];

/// An answer without values.
pub(crate) fn ended(ending: Ending) -> Answer {
    Answer { ending, values: [Times::default(); TASK_VALUES] }
}

/// An answer with these values.
pub(crate) fn done(times: &[Repeated]) -> Answer {
    let mut answer = ended(Ending::Done);
    for (value, times) in answer.values.iter_mut().zip(times) {
        *value = middle(*times);
    }
    answer
}

/// The shortest and the middle one.
fn middle(mut times: Repeated) -> Times {
    times.sort_unstable();
    let ns = |time: u64| u32::try_from(time).unwrap_or(u32::MAX);
    Times { fastest_ns: ns(times[0]), median_ns: ns(times[REPETITIONS / 2]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_shortest_and_the_middle_time() {
        let answer = done(&[[5, 1, 4, 2, 3], [u64::MAX, 9, 9, 9, 9]]);
        assert_eq!(answer.ending, Ending::Done);
        assert_eq!(answer.values[0], Times { fastest_ns: 1, median_ns: 3 });
        assert_eq!(answer.values[1], Times { fastest_ns: 9, median_ns: 9 });
        assert_eq!(answer.values[2], Times::default());
    }
}
