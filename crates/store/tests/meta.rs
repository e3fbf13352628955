//! The database of cases as a file: what any must answer.
mod suite;

use mycroft_store::meta::Meta;

#[test]
fn a_file_answers_as_any_database_must() {
    let dir = tempfile::tempdir().expect("a folder");
    suite::all(&|| Meta::open(&dir.path().join("meta.sqlite")).expect("a database"));
    suite::shared(&Meta::in_memory().expect("memory"));
}

#[test]
fn a_job_has_one_holder_among_processes_of_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    suite::leases(&|_| Meta::open(&dir.path().join("meta.sqlite")).expect("a database"));
}
