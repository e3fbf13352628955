//! A backup of a store that is written to gives a store with the same cases and the same records in the same order.
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use common::step_batch;
use kept::{T0, open};
use mycroft_record::Batch;
use mycroft_store::meta::CaseRow;
use mycroft_store::{Store, back_up, read_only};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn case(id: u64) -> CaseRow {
    let (job, state, json) = ("job".to_owned(), "open".to_owned(), format!("{{\"id\":{id}}}"));
    CaseRow { id, job, state, opened_at: T0, updated_at: T0, json }
}

/// Ends the writer also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn delivered(dir: &Path) -> Vec<Batch> {
    read_only(dir).unwrap().map(|delivery| delivery.unwrap().batch).collect()
}

#[test]
fn a_backup_beside_a_writer_is_a_store_with_all_that_was_there_when_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, to) = (folder.path().join("store"), folder.path().join("backup"));
    let store = open(&dir);
    store.note_started(T0, 1).unwrap();
    std::fs::write(dir.join("tokens.json"), "[]").unwrap();
    std::fs::set_permissions(dir.join("tokens.json"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir_all(dir.join("dumps/7")).unwrap();
    std::fs::write(dir.join("dumps/7/rank0"), "pickle").unwrap();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // It appends, makes segments of logs, and writes cases, all the time.
        let writing = scope.spawn(|| {
            for step in 1u64.. {
                store.append(T0, &step_batch("job", 0, step)).unwrap();
                store.put_case(&case(step)).unwrap();
                if step % 8 == 0 {
                    store.compact().unwrap();
                }
                written.store(step, Ordering::SeqCst);
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let stopping = Stop(&stop);
        while written.load(Ordering::SeqCst) < 40 {
            std::thread::yield_now();
        }
        for round in 0..5 {
            let (to, before) = (to.with_extension(round.to_string()), written.load(Ordering::SeqCst));
            let done = back_up(&dir, &to).unwrap();
            assert!(done.files > 4, "{done:?}");
            let copy = delivered(&to);
            assert!(copy.len() as u64 >= before, "{} of {before}", copy.len());
            let expected: Vec<Batch> = (1..=copy.len() as u64).map(|step| step_batch("job", 0, step)).collect();
            assert!(copy == expected, "each once, in their order");
            let restored = open(&to);
            let cases = restored.list_cases(None, 10_000).unwrap();
            assert!(cases.len() as u64 >= before && cases.len() <= copy.len(), "no case without its records");
            assert_eq!(cases.last(), Some(&case(1)));
        }
        drop(stopping);
        writing.join().unwrap();
    });
    let done = back_up(&dir, &to).unwrap();
    assert!(done.bytes > 0);
    assert_eq!(delivered(&to), delivered(&dir));
    let list = |store: &Store| store.list_cases(None, 10_000).unwrap();
    assert_eq!(list(&open(&to)), list(&store));
    assert_eq!(std::fs::read(to.join("runs")).unwrap(), std::fs::read(dir.join("runs")).unwrap());
    assert_eq!(std::fs::read(to.join("dumps/7/rank0")).unwrap(), b"pickle");
    let mode = |name: &str| std::fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tokens.json"), mode("")), (0o600, 0o700));
    let refused = back_up(&dir, &to).unwrap_err().to_string();
    assert!(refused.contains("there already"), "{refused}");
}
