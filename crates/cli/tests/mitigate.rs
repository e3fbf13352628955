//! `mycroft mitigate` as a person meets it.
mod common;

use common::{refusal, say, serve};

#[test]
fn help_says_what_to_tell_it_and_that_it_never_acts() {
    let help = say(&["mitigate", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in [
        "--job",
        "--micro-batches",
        "--tensor",
        "--pipeline",
        "--restart-cost",
        "--done",
        "--json",
        "--write-plan",
        "never acts",
    ] {
        assert!(help.stdout.contains(word), "no {word}:\n{}", help.stdout);
    }
}

#[test]
fn without_a_job_or_a_batch_there_is_no_plan() {
    let (_server, url) = serve(&[]);
    let line = refusal(&["mitigate", "--micro-batches", "8", "--url", &url]);
    assert!(line.contains(&url) && line.contains("404") && line.contains("no job has been seen"), "{line}");
    assert_eq!(say(&["mitigate", "--url", &url]).code, Some(2), "--micro-batches must be given");
}
