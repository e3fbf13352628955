//! What was told of a job, compared with what is true of it.
use crate::methods::Told;
use crate::series::Job;

/// Iterations within which a change is where the truth has one: the issue of a slow iteration is not sharper than its noise,
/// and a window of ten is off by as much.
const NEAR: usize = 20;

/// Sums over jobs.
#[derive(Default)]
pub(crate) struct Score {
    jobs: usize,
    right: usize,
    healthy: usize,
    alarmed: usize,
    onsets: usize,
    missed: usize,
    beside: usize,
    delays: Vec<usize>,
    off: Vec<usize>,
}

/// Adds a job. It is right where each onset was told before its end and nothing was told that is near no onset and no end.
pub(crate) fn judge(job: &Job, told: &[Told], score: &mut Score) {
    let near = |place: usize, from: usize, to: usize| (from.saturating_sub(NEAR)..=to + NEAR).contains(&place);
    let mut missed = 0;
    for fault in &job.faults {
        let last = fault.onset + fault.over;
        let found = told.iter().find(|told| near(told.onset, fault.onset, last) && told.seen < fault.end + NEAR);
        if let Some(found) = found {
            score.delays.push(found.seen.saturating_sub(fault.onset));
            score.off.push(found.onset.abs_diff(fault.onset));
        } else {
            missed += 1;
        }
    }
    let true_change = |told: &&Told| {
        job.faults.iter().any(|fault| {
            near(told.onset, fault.onset, fault.onset + fault.over) || near(told.onset, fault.end, fault.end)
        })
    };
    let beside = told.len() - told.iter().filter(true_change).count();
    score.jobs += 1;
    score.right += usize::from(missed + beside == 0);
    score.healthy += usize::from(job.faults.is_empty());
    score.alarmed += usize::from(job.faults.is_empty() && beside > 0);
    score.onsets += job.faults.len();
    score.missed += missed;
    score.beside += beside;
}

impl Score {
    /// The cells of a row.
    pub(crate) fn row(&mut self) -> String {
        format!(
            "{} | {} | {} | {} | {}, {} | {}",
            share(self.right, self.jobs),
            share(self.alarmed, self.healthy),
            share(self.missed, self.onsets),
            self.beside,
            quantile(&mut self.delays, 0.5),
            quantile(&mut self.delays, 0.95),
            quantile(&mut self.off, 0.5),
        )
    }
}

/// A share with its Wilson interval at 95 %.
pub(crate) fn share(of: usize, all: usize) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    let (n, p, z) = (all as f64, of as f64 / all as f64, 1.96_f64);
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    let (low, high) = (100.0 * (middle - half).max(0.0), 100.0 * (middle + half).min(1.0));
    format!("{of} of {all}: {:.1} % ({low:.1} to {high:.1})", 100.0 * p)
}

/// A quantile; "-" of nothing.
fn quantile(values: &mut [usize], share: f64) -> String {
    values.sort_unstable();
    let at = (share * values.len() as f64) as usize;
    values.get(at.min(values.len().saturating_sub(1))).map_or("-".to_owned(), usize::to_string)
}
