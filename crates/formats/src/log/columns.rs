//! Tables of iterations: text with a first line that names its columns, among them an iteration and what it took.
use super::progress::Told;
use mycroft_record::Rank;
use mycroft_record::pace::Unit;
use std::fmt::Write as _;

/// Columns of a table at most: a tracker exports some tens.
const COLUMNS_MAX: usize = 64;
/// Longest first line of a table, bytes.
const HEADER_BYTES_MAX: usize = 4 << 10;
/// Columns that tell the iteration.
const ITERATIONS: &[&str] = &["iteration", "iter", "step", "global_step"];
/// Columns that tell what it took.
const TIMES: &[&str] =
    &["time", "iteration_time", "iter_time", "step_time", "elapsed", "duration", "iteration time", "step time"];
/// Columns that are that already.
const UNITS: &[(&str, f64)] = &[("ms", 1.0), ("milliseconds", 1.0), ("s", 1e3), ("sec", 1e3), ("seconds", 1e3)];

/// Which column is what.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Columns {
    sign: char,
    iteration: usize,
    time: usize,
    /// Milliseconds in one of the table's unit.
    millis: f64,
    rank: Option<usize>,
    count: usize,
}

impl Columns {
    /// Reads a first line.
    pub(super) fn of(line: &str) -> Option<Columns> {
        if line.len() > HEADER_BYTES_MAX {
            return None;
        }
        let sign = ['\t', ';', ','].into_iter().find(|sign| line.contains(*sign))?;
        let names: Vec<String> = fields(line, sign).iter().map(|name| name.trim().to_ascii_lowercase()).collect();
        if names.len() > COLUMNS_MAX {
            return None;
        }
        let iteration = names.iter().position(|name| ITERATIONS.contains(&name.as_str()))?;
        let (time, millis) = names.iter().enumerate().find_map(|(at, name)| Some((at, unit(name)?)))?;
        let rank = names.iter().position(|name| name == "rank" || name == "global_rank");
        Some(Columns { sign, iteration, time, millis, rank, count: names.len() })
    }

    /// Reads a row: whose, and what it tells.
    pub(super) fn row(&self, line: &str) -> Option<(Option<Rank>, Told)> {
        let cells = fields(line, self.sign);
        if cells.len() != self.count {
            return None;
        }
        let value: f64 = cells[self.time].trim().parse().ok()?;
        let iteration = cells[self.iteration].trim().parse().ok()?;
        let rank = self.rank.and_then(|at| cells[at].trim().parse().ok()).filter(|rank| *rank <= crate::RANK_MAX);
        let value = value * self.millis;
        if !(value.is_finite() && value > 0.0) {
            return None;
        }
        let mut name = String::new();
        for (at, cell) in cells.iter().enumerate() {
            // A number with a fraction is measured; it names nothing, unless it stands before the iteration.
            let measured = at > self.iteration && cell.trim().parse::<f64>().is_ok();
            if at != self.iteration && at != self.time && Some(at) != self.rank && !measured {
                let _ = write!(name, "{}{}", if name.is_empty() { "" } else { " " }, cell.trim());
            }
        }
        let told = Told {
            name,
            iteration: Some(iteration),
            unit: Unit::Millis,
            value,
            own_ms: None,
            is_row: true,
            is_smoothed: false,
        };
        Some((rank.map(Rank), told))
    }
}

fn unit(name: &str) -> Option<f64> {
    let (stem, unit) = match name.strip_suffix(')').and_then(|name| name.rsplit_once('(')) {
        Some((stem, unit)) => (stem.trim(), unit),
        None => name.rsplit_once('_').unwrap_or((name, "")),
    };
    let known = UNITS.iter().find(|(word, _)| *word == unit).map(|(_, millis)| *millis);
    let whole = UNITS.iter().find(|(word, _)| *word == name).map(|(_, millis)| *millis);
    let timed = |stem: &str| TIMES.contains(&stem);
    whole.or_else(|| known.filter(|_| timed(stem))).or_else(|| timed(name).then_some(1e3))
}

/// Cells of a line; a sign between quotes is part of its cell.
fn fields(line: &str, sign: char) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, c) in line.char_indices() {
        if c == '"' {
            quoted = !quoted;
        } else if c == sign && !quoted {
            out.push(line[start..at].trim_matches('"'));
            start = at + 1;
        }
        if out.len() > COLUMNS_MAX {
            break;
        }
    }
    out.push(line[start..].trim_matches('"'));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_known_by_its_first_line() {
        let columns = Columns::of("model,links,delay_s,iteration,ms").expect("a table");
        let (rank, told) = columns.row("7B,\"1_2,2_3\",0.01,4,450.1").expect("a row");
        assert_eq!((rank, &*told.name, told.iteration, told.value), (None, "7B 1_2,2_3 0.01", Some(4), 450.1));
        assert!(columns.row("7B,1,2").is_none() && columns.row("a,b,c,x,1").is_none());
        let columns = Columns::of("rank\tstep\tstep_time\tloss").expect("a table");
        let (rank, told) = columns.row("3\t7\t1.5\t0.25").expect("a row");
        assert_eq!((rank, &*told.name, told.iteration, told.value), (Some(Rank(3)), "", Some(7), 1500.0));
        assert!(Columns::of("iteration,time (ms)").is_some_and(|columns| columns.millis == 1.0));
        for line in ["iteration,loss", "time,loss", "the iteration took time", ""] {
            assert_eq!(Columns::of(line), None, "{line}");
        }
    }
}
