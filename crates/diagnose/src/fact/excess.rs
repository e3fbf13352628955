//! A part of an iteration that takes longer than it did, in words.

/// A part of the iteration that takes longer, beside what the iteration grew. A part may grow more than the whole where some
/// of it runs beside other work: it is not told as a share then. The difference is that of the numbers as they are shown.
pub(super) fn excess(what: &str, who: &str, now: f64, base: f64, iteration: f64) -> String {
    let (more, grew) = (now.round() - base.round(), iteration.round());
    let told = format!("{who} {what} {now:.0} ms per iteration, {base:.0} ms before: {more:.0} ms more");
    if more <= grew {
        return format!("{told}, of {grew:.0} ms that the iteration grew");
    }
    format!("{told}; the iteration grew by {grew:.0} ms, the rest is hidden behind other work")
}

#[cfg(test)]
mod tests {
    use super::excess;

    #[test]
    fn a_part_above_the_whole_is_no_share_of_it() {
        let text = |now, base, iteration| excess("computes", "rank 3", now, base, iteration);
        let told = "rank 3 computes 977 ms per iteration, 258 ms before: 719 ms more";
        assert_eq!(text(977.2, 257.6, 800.4), format!("{told}, of 800 ms that the iteration grew"));
        assert_eq!(
            text(977.2, 257.6, 719.4),
            format!("{told}, of 719 ms that the iteration grew"),
            "as shown, all of it"
        );
        let hidden = format!("{told}; the iteration grew by 671 ms, the rest is hidden behind other work");
        assert_eq!(text(977.2, 257.6, 671.0), hidden);
    }
}
