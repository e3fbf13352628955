//! The verdict in the page's words: one place for each sentence, whether a script draws beside it or not.
use mycroft_diagnose::stacks::{Autopsy, Cause, Family, Outcome, Role};
use mycroft_record::{Place, Rank, What};

/// Pieces after which a list of ranks is cut: one line of text.
const RANK_PIECES_MAX: usize = 8;

/// What became of the job, in a word or two.
pub(super) fn outcome(autopsy: &Autopsy) -> &'static str {
    match autopsy.outcome {
        Outcome::Fault(What::Hang) => "Hang",
        Outcome::Fault(What::Desync) => "Desync",
        Outcome::Fault(What::Deadlock) => "Deadlock",
        Outcome::Fault(What::Crash) => "Crash",
        Outcome::Fault(What::Slowdown) => "Slow",
        Outcome::Healthy => "Healthy",
        Outcome::HealthyAsFar => "Healthy as far as read",
        Outcome::Unknown => "Not decided",
    }
}

/// The verdict and who it names, for a title: `Hang: ranks 12, 14`.
pub(super) fn title(autopsy: &Autopsy) -> String {
    let ranks: Vec<Rank> = autopsy.blamed().map(|(rank, ..)| rank).collect();
    let who = match (ranks.is_empty(), autopsy.others().next()) {
        (false, _) => ranks_phrase(&ranks, 4),
        (true, Some((suspect, _))) => named(&suspect.place),
        (true, None) => return outcome(autopsy).to_owned(),
    };
    format!("{}: {who}", outcome(autopsy))
}

/// `all_reduce #6 in default_pg`; empty where nothing tells it.
pub(super) fn place(autopsy: &Autopsy) -> String {
    let (op, group) = (autopsy.collective.as_str(), autopsy.group.as_str());
    if op.is_empty() && group.is_empty() {
        return String::new();
    }
    let seq = autopsy.seq.map_or_else(String::new, |seq| format!(" #{seq}"));
    let within = if group.is_empty() { String::new() } else { format!(" in {group}") };
    format!("{}{seq}{within}", if op.is_empty() { "the operation" } else { op })
}

/// The verdict in one sentence.
pub(super) fn headline(autopsy: &Autopsy) -> String {
    let at = place(autopsy);
    let there = if at.is_empty() { String::new() } else { format!(" at {at}") };
    let Some((_, _, first)) = autopsy.blamed().next() else {
        return match autopsy.others().next() {
            Some((suspect, Some(conduct))) if conduct.role == Role::Gone => {
                format!("{} is gone.", capital(&named(&suspect.place)))
            }
            Some((suspect, _)) => format!("{} is the suspect{there}.", capital(&named(&suspect.place))),
            None => nobody(autopsy, &there),
        };
    };
    let same: Vec<Rank> =
        autopsy.blamed().filter(|(.., conduct)| conduct.role == first.role).map(|(rank, ..)| rank).collect();
    let who = capital(&ranks_phrase(&same, RANK_PIECES_MAX));
    let many = same.len() > 1;
    let pick = |one: &'static str, several: &'static str| if many { several } else { one };
    let its = pick("its", "their");
    let what = if at.is_empty() { "the operation" } else { at.as_str() };
    match first.role {
        Role::Absent => format!("{who} never issued {what}."),
        Role::Odd => format!("{who} {} from {its} peers at {what}.", pick("differs", "differ")),
        Role::Stuck => format!("{who} {} stuck inside {what}.", pick("is", "are")),
        Role::InCycle if autopsy.cause == Some(Cause::CrossGroupOrder) => {
            let call = pick("calls", "call");
            format!("{who} {call} process groups in another order than {its} peers: a circle of waiting.")
        }
        Role::InCycle => format!("A circle of waiting through {}{there}.", ranks_phrase(&same, RANK_PIECES_MAX)),
        Role::Gone => format!("{who} {} gone.", pick("is", "are")),
        Role::Slow => format!("{who} {} slow{there}.", pick("is", "are")),
    }
}

fn nobody(autopsy: &Autopsy, there: &str) -> String {
    match autopsy.outcome {
        Outcome::Healthy => "Nothing is wrong.".to_owned(),
        Outcome::HealthyAsFar => format!(
            "Nothing is wrong as far as {} tell: other files could not be read.",
            of_ranks(autopsy.told(), autopsy.ranks.len())
        ),
        Outcome::Fault(What::Slowdown) => "The job is slow, not stuck: no rank is to blame for a hang.".to_owned(),
        Outcome::Unknown => "The evidence does not tell what happened.".to_owned(),
        Outcome::Fault(_) => format!("Something is wrong{there}, and no rank stands out."),
    }
}

/// What a suspect did, in a table.
pub(super) fn role(role: Role) -> &'static str {
    match role {
        Role::Absent => "never issued it",
        Role::Odd => "odd one out",
        Role::Stuck => "stuck inside",
        Role::InCycle => "in the circle",
        Role::Gone => "process gone",
        Role::Slow => "slow",
    }
}

/// The family of a cause and the cause within it, where that says more: `CPU side > divergence`.
pub(super) fn cause(cause: Cause) -> String {
    let family = match cause.family() {
        Family::CpuSide => "CPU side",
        Family::GpuHang => return "GPU kernel hang".to_owned(),
        Family::WrongArguments => "wrong arguments",
        Family::NetworkHardware => "network or hardware",
    };
    format!("{family} \u{203a} {}", cause.as_str())
}

/// `rank 3` or `ranks 0, 2-5`, with `and more (64 in all)` after so many pieces.
pub(super) fn ranks_phrase(ranks: &[Rank], pieces_max: usize) -> String {
    let mut sorted: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let pieces: Vec<String> = sorted
        .chunk_by(|a, b| a.checked_add(1) == Some(*b))
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{first}\u{2013}{last}")],
            few => few.iter().map(u32::to_string).collect(),
        })
        .collect();
    let noun = if sorted.len() == 1 { "rank" } else { "ranks" };
    match pieces.get(..pieces_max) {
        Some(shown) if pieces.len() > pieces_max => {
            format!("{noun} {} and more ({} in all)", shown.join(", "), sorted.len())
        }
        _ => format!("{noun} {}", pieces.join(", ")),
    }
}

/// `16 of 1,024 ranks`.
pub(super) fn of_ranks(some: usize, all: usize) -> String {
    format!("{} of {} {}", thousands(some), thousands(all), if all == 1 { "rank" } else { "ranks" })
}

/// A number with separators: `1,024`.
fn thousands(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Who is suspected, beginning with a word of ours: `rank 3`, `host node7`, `link node7 -> node9`.
pub(super) fn named(place: &Place) -> String {
    match place {
        Place::Rank { rank, .. } => format!("rank {rank}"),
        Place::Host { host } => format!("host {host}"),
        Place::Link { from, to } => format!("link {from} -> {to}"),
    }
}

/// A phrase that begins with a word of ours, as the beginning of a sentence.
pub(super) fn capital(text: &str) -> String {
    let mut out = text.to_owned();
    if let Some(first) = out.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_are_told_with_separators() {
        assert_eq!(of_ranks(1, 1), "1 of 1 rank");
        assert_eq!(of_ranks(999, 1_024), "999 of 1,024 ranks");
        assert_eq!(of_ranks(1_234_567, 1_234_567), "1,234,567 of 1,234,567 ranks");
    }

    #[test]
    fn ranks_are_told_in_pieces() {
        let told = |ranks: &[u32], most| ranks_phrase(&ranks.iter().copied().map(Rank).collect::<Vec<_>>(), most);
        assert_eq!(told(&[3], 8), "rank 3");
        assert_eq!(told(&[5, 4, 0, 2, 3], 8), "ranks 0, 2\u{2013}5");
        assert_eq!(told(&[1, 2, 7], 8), "ranks 1, 2, 7");
        assert_eq!(told(&[0, 2, 4, 6], 2), "ranks 0, 2 and more (4 in all)");
        assert_eq!(told(&[u32::MAX], 8), "rank 4294967295");
    }
}
