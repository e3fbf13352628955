//! Files that could not be read are no evidence about their rank, and no text has an empty list.
use crate::build::{Call, Job, REDUCE};
use crate::golden::blamed;
use crate::{load, print, truth};
use mycroft_diagnose::render::{Style, render_autopsy};
use mycroft_diagnose::stacks::{Autopsy, Outcome, Question, autopsy};
use mycroft_record::Rank;
use mycroft_record::dump::{Bundle, EntryState, Unusable};

const WORLD: &[u32] = &[0, 1, 2, 3];

fn denied(rank: Option<u32>) -> Unusable {
    Unusable { rank: rank.map(Rank), source: "trace_rank_2".into(), why: "cannot be opened: Permission denied".into() }
}

fn lost(waits: bool, unread: &[Unusable]) -> Autopsy {
    let mut job = Job::new(4, &[("world", WORLD)]);
    job.train(6);
    if waits {
        job.all(&[0, 1, 3], 0, Call { state: EntryState::Scheduled, ..REDUCE });
    }
    job.lose(2);
    autopsy(&Bundle { unread: unread.to_vec(), ..job.bundle() }, &Question::default())
}

#[test]
fn a_rank_that_could_not_be_read_is_unknown_and_not_gone() {
    let gone = lost(true, &[]);
    assert_eq!((gone.outcome.as_str(), blamed(&gone)), ("crash", vec![Rank(2)]));
    let unread = lost(true, &[denied(Some(2))]);
    let text = render_autopsy(&unread, Style::default());
    assert_eq!((unread.outcome.as_str(), blamed(&unread)), ("hang", Vec::new()), "{text}");
    for words in ["nobody is blamed", "not read  rank 2: trace_rank_2: cannot be opened", "everybody waits for rank 2"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("no usable dump") && !text.contains("killed"), "{text}");
}

#[test]
fn a_set_that_was_not_read_whole_is_healthy_only_as_far_as_it_tells() {
    assert_eq!(lost(false, &[]).outcome, Outcome::Healthy, "one dump may be lost on the way");
    let answer = lost(false, &[denied(Some(2))]);
    assert_eq!((answer.outcome.as_str(), answer.told(), answer.ranks.len()), ("healthy-as-far", 3, 4));
    let text = render_autopsy(&answer, Style::default());
    assert!(text.starts_with("HEALTHY AS FAR AS 3 OF 4 RANKS TELL: nothing is wrong there; 1 file"), "{text}");
    // A file that tells no rank may hold anything, too.
    assert_eq!(lost(false, &[denied(None)]).outcome, Outcome::HealthyAsFar);
}

/// Texts of a tool that may not look into a process, and logs that tell of the end of one, are no dumps and no stacks.
#[test]
fn the_readers_own_troubles_and_logs_are_no_evidence() {
    let naming = mycroft_formats::Naming::default();
    let bundle_with = |files: &[(&str, &str)]| {
        let mut bundle = {
            let mut job = Job::new(4, &[("world", WORLD)]);
            job.train(6);
            job.all(&[0, 1, 3], 0, Call { state: EntryState::Scheduled, ..REDUCE });
            job.lose(2);
            job.bundle()
        };
        let pieces = files.iter().map(|(name, text)| mycroft_formats::read(name, text.as_bytes(), &naming));
        let read = mycroft_formats::assemble(pieces.collect()).expect("no clash");
        (bundle.unread, bundle.unusable, bundle.remarks) = (read.unread, read.unusable, read.remarks);
        bundle
    };
    for says in
        ["Error: Permission Denied: Try running again with elevated permissions", "Error: Operation not permitted"]
    {
        let answer = autopsy(&bundle_with(&[("pyspy_rank_2.txt", says)]), &Question::default());
        assert_eq!((answer.unread.len(), blamed(&answer)), (1, Vec::new()), "{}", print::text(&answer));
    }
    // That its process is gone is evidence about the rank.
    let ended =
        autopsy(&bundle_with(&[("pyspy_rank_2.txt", "Error: No such process (os error 3)")]), &Question::default());
    assert_eq!((ended.outcome.as_str(), blamed(&ended)), ("crash", vec![Rank(2)]));
    let bare = autopsy(&bundle_with(&[]), &Question::default());
    for (name, says) in [
        ("rank_2.txt", "step 7\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB"),
        ("stderr_rank_2.log", "[ 12.3] python invoked oom-killer\n[ 12.4] oom_kill_process+0x10"),
        ("rank_2.out", "Out of memory: Killed process 4711 (python)"),
    ] {
        let answer = autopsy(&bundle_with(&[(name, says)]), &Question::default());
        assert_eq!(
            (answer.outcome, answer.cause, blamed(&answer)),
            (bare.outcome, bare.cause, blamed(&bare)),
            "{name}"
        );
        assert_eq!(answer.conduct, bare.conduct, "{name}");
        let told = answer.caveats.iter().find(|caveat| caveat.rule == "job-log").expect(name);
        assert!(told.text.contains(name) && told.text.contains("rank 2"), "{}", told.text);
    }
}

/// `ranks  wait`, `for `, `of : taken`: where a list is empty the sentence says so or is another.
#[test]
fn no_sentence_has_an_empty_list() {
    let mut wrong = Vec::new();
    let mut check = |name: &str, answer: &Autopsy| {
        let because = answer.because.iter().map(|reason| &reason.text);
        let waits = answer.blast_radius.iter().map(|entry| &entry.text);
        let caveats = answer.caveats.iter().map(|caveat| &caveat.text);
        for sentence in because.chain(waits).chain(caveats).chain(&answer.do_next) {
            if let Some(what) = print::hollow(sentence) {
                wrong.push(format!("{name}: {what:?} in {sentence:?}"));
            }
        }
    };
    for truth in truth::ALL {
        check(truth.folder, &autopsy(&truth.bundle(), &Question::default()));
        let bundle = truth.bundle();
        for dump in &bundle.dumps {
            let mut less = load::without(&bundle, dump.rank);
            check(truth.folder, &autopsy(&less, &Question::default()));
            less.stacks.clear();
            check(truth.folder, &autopsy(&less, &Question::default()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Over everything that reports once said.
#[test]
fn no_golden_report_has_an_empty_list() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = 0;
    for folder in ["tests/autopsy/golden", "tests/golden", "../cli/tests/autopsy"] {
        for entry in std::fs::read_dir(root.join(folder)).expect(folder) {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a golden file");
            for line in text.lines() {
                // Columns are set with spaces; sentences stand behind a label and end in their rule, or in nothing.
                let sentence = line.trim_start().split("  ").last().unwrap_or_default();
                let first = line.split_whitespace().next().unwrap_or_default();
                let is_sentence = !line.starts_with(' ') && ["because", "arrow", "next", "caveat"].contains(&first);
                let sentence = if is_sentence { line.trim_start_matches(first).trim_start() } else { sentence };
                // A caveat that no switch mends.
                let sentence = sentence.trim_end_matches(" ()");
                // Texts for a terminal break their lines anywhere.
                let sentence = if folder.contains("cli") { format!("{sentence} ...") } else { sentence.to_owned() };
                let sentence = sentence.as_str();
                assert_eq!(print::hollow(sentence), None, "{}: {line}", path.display());
            }
            files += 1;
        }
    }
    assert!(files >= 30, "{files} golden reports");
}
