//! The job first: whatever it lacks (files, address space, memory, descriptors, threads, space, rights), the tracer neither
//! ends nor hinders it and leaves no file behind. `examples/job.rs` plays the cases, one process each.
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line of `examples/job.rs`.
struct Played {
    case: String,
    end: String,
    left: usize,
    traced: bool,
    said: String,
}

fn example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let folder = exe.parent().and_then(Path::parent).expect("a test lies in deps");
    let path = folder.join("examples").join(name);
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

fn play(what: &str, preload: Option<&str>) -> Vec<Played> {
    let dir = tempfile::tempdir_in(shared_memory()).expect("a temporary folder");
    let mut job = Command::new(example("job"));
    job.arg(what).env("MYCROFT_DIR", dir.path().join("segments")).env("MYCROFT_SEGMENT_BYTES", "8388608");
    if let Some(library) = preload {
        job.env("LD_PRELOAD", example(library));
    }
    let output = job.output().expect("the job runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text.lines().map(parse).collect()
}

/// A file system in memory where there is one: elsewhere it is slow to give a segment its blocks.
fn shared_memory() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

fn parse(line: &str) -> Played {
    let parts = || {
        let (case, rest) = line.split_once(": ")?;
        let (end, rest) = rest.split_once(" left ")?;
        let (left, rest) = rest.split_once(" traced ").unwrap_or((rest.trim(), "0 said "));
        let (traced, said) = rest.split_once(" said ").unwrap_or((rest, ""));
        let left = left.parse().ok()?;
        Some(Played { case: case.to_owned(), end: end.to_owned(), left, traced: traced == "1", said: said.to_owned() })
    };
    parts().unwrap_or_else(|| panic!("not a line of the job: {line}"))
}

/// The job came through each case, and nothing stays behind.
fn check(played: &[Played]) {
    for Played { case, end, left, said, .. } in played {
        assert!(matches!(end.as_str(), "exit 0" | "exit 3"), "{case}: the job ended with {end}: {said}");
        assert_eq!(*left, 0, "{case}: a file stays: {said}");
    }
}

fn find<'a>(played: &'a [Played], case: &str) -> &'a Played {
    played.iter().find(|played| played.case == case).unwrap_or_else(|| panic!("{case} was played"))
}

#[test]
fn a_job_goes_on_under_every_limit() {
    let played = play("limits", None);
    check(&played);
    let limited = |name: &str| played.iter().filter(|p| p.case.starts_with(name)).map(|p| p.traced).collect::<Vec<_>>();
    for name in ["FSIZE", "AS", "DATA", "NOFILE"] {
        let traced = limited(name);
        assert!(traced.contains(&true) && traced.contains(&false), "{name}: enough and too little: {traced:?}");
    }
    for name in ["MEMLOCK", "NPROC", "STACK", "CORE"] {
        assert!(limited(name).iter().all(|traced| *traced), "{name} is none of the tracer's business");
    }
    for untraced in played.iter().filter(|p| !p.traced) {
        assert!(untraced.said.contains("this process is not traced"), "{}: {}", untraced.case, untraced.said);
    }
    let said = &find(&played, "FSIZE 65536").said;
    assert!(said.contains("file size limit") && said.contains("65536"), "{said}");
    assert!(find(&played, "FSIZE 262144").traced, "as large as the limit allows");
    let few = |p: &&Played| p.case.starts_with("NOFILE ") && !p.traced;
    assert!(played.iter().filter(few).all(|p| p.said.contains("ulimit -n")), "the reason is told");
}

#[test]
fn a_job_goes_on_whatever_call_fails() {
    let played = play("faults", Some("libfaults.so"));
    check(&played);
    for kind in ["malloc", "mmap", "allocate", "open", "directory", "threads", "stat"] {
        let failed = played.iter().filter(|p| p.case.starts_with(kind) && p.end == "exit 0").count();
        assert!(failed > 0, "{kind}: nothing of this kind is ever called");
        let last = played.iter().rfind(|p| p.case.starts_with(kind)).expect("played");
        assert_eq!(last.end, "exit 3", "{kind}: every call was made to fail");
    }
    assert!(find(&played, "mmap 0+").said.contains("not traced"));
}
