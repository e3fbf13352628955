//! An autopsy as stable text.
use mycroft_diagnose::stacks::Autopsy;
use std::fmt::Write as _;

/// The whole answer but the grid.
pub(crate) fn text(autopsy: &Autopsy) -> String {
    let mut out = String::new();
    let category = autopsy.category.map_or("-", |category| category.as_str());
    let cause = autopsy.cause.map_or("-", |cause| cause.as_str());
    let family = autopsy.cause.map_or("-", |cause| cause.family().as_str());
    let _ = writeln!(out, "{} / {category} / {cause} ({family})", autopsy.outcome.as_str());
    let seq = autopsy.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
    let _ = writeln!(out, "at {} of {} #{seq}", autopsy.collective, autopsy.group);
    for (rank, suspect, conduct) in autopsy.blamed() {
        let at = conduct.at.as_ref().map_or_else(String::new, |frame| format!(" at {}:{}", frame.name, frame.line));
        let _ = writeln!(
            out,
            "suspect rank {} {:.2} {} [{}]{at}",
            rank,
            suspect.confidence,
            conduct.role.as_str(),
            conduct.doing
        );
    }
    for reason in &autopsy.because {
        let _ = writeln!(out, "because {} [{}]", reason.text, reason.rule);
    }
    for entry in &autopsy.blast_radius {
        let _ = writeln!(out, "arrow {}", entry.text);
    }
    for step in &autopsy.do_next {
        let _ = writeln!(out, "next {step}");
    }
    for caveat in &autopsy.caveats {
        let _ = writeln!(out, "caveat {} ({})", caveat.text, caveat.switch);
    }
    for (rank, why) in &autopsy.missing_dumps {
        let _ = writeln!(out, "missing {rank}: {why}");
    }
    for group in &autopsy.stack_groups {
        let odd = if group.odd { " odd" } else { "" };
        let _ = writeln!(
            out,
            "stacks {:?}{odd}: {}",
            group.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>(),
            group.doing
        );
    }
    out
}

/// What shows that a sentence has a list of nothing in it.
pub(crate) fn hollow(sentence: &str) -> Option<&'static str> {
    const SIGNS: &[&str] = &["  ", "ranks ,", "rank ,", " ,", " :", "()", "of :", "ranks wait", "ranks are"];
    let ends = ["for", "of", "in", "and"]
        .into_iter()
        .find(|word| sentence.strip_suffix(word).is_some_and(|rest| rest.ends_with(' ')));
    SIGNS.iter().copied().find(|sign| sentence.contains(sign)).or(ends)
}
