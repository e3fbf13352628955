//! Two texts side by side, line by line.
use std::fmt::Write as _;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 2;
/// Lines of a text that are compared; reports of the scenarios have a tenth of it.
const LINES_MAX: usize = 1000;

/// What changed from `want` to `got`, line by line: `-` is gone, `+` is new; the longest common sequence stays.
pub(crate) fn diff(want: &str, got: &str) -> String {
    let lines = |text: &str| text.lines().take(LINES_MAX).map(str::to_owned).collect::<Vec<String>>();
    let (want, got) = (lines(want), lines(got));
    let mut common = vec![vec![0_usize; got.len() + 1]; want.len() + 1];
    for (i, old) in want.iter().enumerate().rev() {
        for (j, new) in got.iter().enumerate().rev() {
            common[i][j] = if old == new { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    while i < want.len() || j < got.len() {
        if i < want.len() && j < got.len() && want[i] == got[j] {
            all.push((' ', &want[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == got.len() || (i < want.len() && common[i + 1][j] >= common[i][j + 1]) {
            all.push(('-', &want[i]));
            i += 1;
        } else {
            all.push(('+', &got[j]));
            j += 1;
        }
    }
    let mut out = String::new();
    for (at, (mark, line)) in all.iter().enumerate() {
        let near = &all[at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(all.len())];
        if near.iter().any(|(mark, _)| *mark != ' ') {
            let _ = writeln!(out, "{mark} {line}");
        }
    }
    out
}
