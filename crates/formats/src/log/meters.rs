//! The series that progress lines make: one for each loop and rank, and for each row of a table with other columns.
use super::progress::Told;
use mycroft_record::Rank;
use mycroft_record::pace::{Meter, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Series of a file: 4,096 ranks with two loops each.
const METERS_MAX: usize = 8192;
/// Shorter ones are bars of something that was loaded, and no loop.
const STEPS_MIN: usize = 12;
/// Lines of several ranks that no prefix tells apart come in any order; a number that is lower by more is a new epoch or a
/// job that was started again.
const BACK_MAX: u64 = 16;
/// What a series costs beside its name and its steps.
const METER_COST: usize = size_of::<Meter>() + 192;

/// The series of one file.
#[derive(Default)]
pub(super) struct Meters {
    all: Vec<Meter>,
    by_name: BTreeMap<(Option<Rank>, Arc<str>), usize>,
    /// The one of the last step: mostly the next step's too.
    last: usize,
}

impl Meters {
    /// What it costs to keep a step of this series, bytes.
    pub(super) fn cost(&self, rank: Option<Rank>, told: &Told) -> usize {
        size_of::<Step>() + if self.known(rank, told).is_some() { 0 } else { METER_COST + 2 * told.name.len() }
    }

    fn known(&self, rank: Option<Rank>, told: &Told) -> Option<usize> {
        let is_last = |meter: &&Meter| meter.rank == rank && *meter.name == *told.name;
        let last = self.all.get(self.last).filter(is_last).map(|_| self.last);
        last.or_else(|| self.by_name.get(&(rank, told.name.as_str().into())).copied())
    }

    /// Keeps a step; `false` where there are too many series.
    pub(super) fn push(&mut self, rank: Option<Rank>, line: u64, at: Option<u64>, told: Told) -> bool {
        let id = match self.known(rank, &told) {
            Some(id) => id,
            None if self.all.len() >= METERS_MAX => return false,
            None => {
                let name: Arc<str> = told.name.as_str().into();
                self.all.push(Meter {
                    name: name.clone(),
                    rank,
                    is_row: told.is_row,
                    is_smoothed: told.is_smoothed,
                    unit: told.unit,
                    steps: Vec::new(),
                });
                self.by_name.insert((rank, name), self.all.len() - 1);
                self.all.len() - 1
            }
        };
        self.last = id;
        let meter = &mut self.all[id];
        let last = meter.steps.last().and_then(|step| step.iteration);
        let is_again = last.zip(told.iteration).is_some_and(|(last, now)| now <= last && last - now < BACK_MAX);
        if meter.unit == told.unit && !is_again {
            let Told { iteration, value, own_ms, .. } = told;
            meter.steps.push(Step { line, iteration, at, value, own_ms });
        }
        true
    }

    /// The series that are long enough to say something.
    pub(super) fn finish(self) -> Vec<Meter> {
        self.all.into_iter().filter(|meter| meter.steps.len() >= STEPS_MIN).collect()
    }
}
