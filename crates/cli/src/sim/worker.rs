//! Several seeds at a time, results in the order of seeds whatever the order of completion.
use super::args::Seeds;
use crate::stop::Stop;
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// How many at a time when the user does not say: one for each processor.
pub(crate) fn jobs(asked: Option<u64>) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    asked.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(available).max(1)
}

/// What came of one seed.
pub(crate) enum Ended<T> {
    /// It was played to its end.
    Done(T),
    /// It made the simulation or the diagnosis fail, which said this.
    Failed(String),
}

/// Plays each seed with `work` (`None`: it was interrupted) on `jobs` threads and gives the results to `take` in seed
/// order. `false`: somebody asked to stop before the end.
///
/// # Errors
/// The first of `work` or `take`; nothing is begun after it.
pub(crate) fn each<T: Send>(
    seeds: Seeds,
    jobs: usize,
    stop: &Stop,
    work: impl Fn(u64) -> Result<Option<T>> + Sync,
    mut take: impl FnMut(u64, Ended<T>) -> Result<()>,
) -> Result<bool> {
    let (next, over) = (AtomicU64::new(seeds.first), AtomicBool::new(false));
    let (sender, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (sender, next, over, work) = (sender.clone(), &next, &over, &work);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) && !stop.asked() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // A seed that makes anything fail is a result; nobody looks at what it left behind.
                    if seed >= seeds.end || sender.send((seed, guarded(|| work(seed)))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let taken = in_order(seeds, &results, &mut take);
        over.store(true, Ordering::Relaxed);
        taken
    })
}

/// Runs `work`; a panic is a failed seed.
fn guarded<T>(work: impl FnOnce() -> Result<Option<T>>) -> Result<Option<Ended<T>>> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map(|done| done.map(Ended::Done)),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Ok(Some(Ended::Failed(text.unwrap_or_else(|| "it failed and did not say why".to_owned()))))
        }
    }
}

type Results<T> = mpsc::Receiver<(u64, Result<Option<Ended<T>>>)>;

fn in_order<T>(seeds: Seeds, results: &Results<T>, take: &mut impl FnMut(u64, Ended<T>) -> Result<()>) -> Result<bool> {
    let (mut due, mut early) = (seeds.first, BTreeMap::new());
    for (seed, result) in results {
        let result = result.map_err(|error| anyhow!("seed {seed}: {error:#}"))?;
        let Some(ended) = result else { return Ok(false) };
        early.insert(seed, ended);
        while let Some(ended) = early.remove(&due) {
            take(due, ended)?;
            due += 1;
        }
    }
    Ok(due == seeds.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    const SEEDS: Seeds = Seeds { first: 5, end: 45 };

    #[test]
    fn results_come_in_seed_order() {
        for jobs in [1, 2, 7] {
            let mut taken = Vec::new();
            let work = |seed| {
                // Early seeds take longest.
                let mut sum = 0_u64;
                for round in 0..(50 - seed) * 20_000 {
                    sum = sum.wrapping_mul(31).wrapping_add(round);
                }
                if seed == 20 {
                    panic!("seed 20 is unlucky");
                }
                Ok(Some((seed, std::hint::black_box(sum))))
            };
            let whole = each(SEEDS, jobs, &Stop::never(), work, |seed, ended| {
                taken.push(match ended {
                    Ended::Done((of, _)) => (seed, of == seed, String::new()),
                    Ended::Failed(why) => (seed, false, why),
                });
                Ok(())
            });
            assert!(whole.unwrap());
            let wanted = |seed| match seed {
                20 => (seed, false, "seed 20 is unlucky".to_owned()),
                _ => (seed, true, String::new()),
            };
            assert_eq!(taken, (5..45).map(wanted).collect::<Vec<_>>(), "{jobs} jobs");
        }
    }

    #[test]
    fn the_first_error_ends_it_and_so_does_an_interruption() {
        let odd = |seed: u64| if seed == 9 { bail!("no disk") } else { Ok(Some(seed)) };
        let error = each(SEEDS, 2, &Stop::never(), odd, |_, _| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "seed 9: no disk");
        let mut taken = 0;
        let full = each(
            SEEDS,
            2,
            &Stop::never(),
            |seed| Ok(Some(seed)),
            |_, _| {
                taken += 1;
                if taken == 3 { bail!("enough") } else { Ok(()) }
            },
        );
        assert_eq!((full.unwrap_err().to_string().as_str(), taken), ("enough", 3));
        let cut = each(SEEDS, 2, &Stop::never(), |seed| Ok((seed < 30).then_some(seed)), |_, _| Ok(()));
        assert!(!cut.unwrap());
    }
}
