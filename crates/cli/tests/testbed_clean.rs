//! Nothing is left behind: a demo that is interrupted cleans up itself, one that is killed is cleaned up after.
mod common;

use common::{Going, is_root, line_with, mycroft, say, traces_of, until};
use std::path::Path;

/// A demo in the middle of its healthy training, with all 16 ranks and 4 agents alive.
fn demo_under_way(transport: &str, temp: &Path) -> Going {
    let mut command = mycroft(&["demo", "--fault", "none", "--wait", "600", "--transport", transport]);
    command.env("TMPDIR", temp);
    let mut demo = Going::start(command);
    let api = line_with(&mut demo.stdout, "API http://");
    let url = api.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('/').to_owned();
    until("iterations are finished", || {
        assert!(demo.is_running(), "the demo ended");
        let jobs = ureq::get(format!("{url}/api/v1/report")).call().ok()?.into_body().read_to_string().ok()?;
        let report: serde_json::Value = serde_json::from_str(&jobs).ok()?;
        (report["iterations"].as_u64()? >= 2).then_some(())
    });
    let processes = traces_of(demo.pid(), temp).iter().filter(|trace| trace.starts_with("process")).count();
    assert!(processes >= 20, "{processes} of 16 ranks and 4 agents carry the run's mark");
    demo
}

/// As at a terminal, where Ctrl-C reaches the whole process group, and as a script does it, to one process.
#[test]
fn an_interrupted_demo_leaves_nothing() {
    for (transport, signal) in [("loopback", "INT"), (if is_root() { "netns" } else { "loopback" }, "TERM")] {
        let temp = tempfile::tempdir().unwrap();
        let demo = demo_under_way(transport, temp.path());
        let pid = demo.pid();
        demo.signal(signal);
        let (status, stdout, stderr) = demo.wait();
        assert_eq!(status.code(), Some(130), "{signal}: {stdout}{stderr}");
        assert!(stdout.ends_with("interrupted; everything is cleaned up\n"), "{stdout}");
        assert_eq!(traces_of(pid, temp.path()), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn clean_removes_what_a_killed_demo_left() {
    let transport = if is_root() { "netns" } else { "loopback" };
    let temp = tempfile::tempdir().unwrap();
    let demo = demo_under_way(transport, temp.path());
    let pid = demo.pid();
    // While its launcher lives, a run is none of the cleaner's business.
    let clean = || {
        let mut command = mycroft(&["testbed", "clean"]);
        command.env("TMPDIR", temp.path());
        common::end(command)
    };
    assert_eq!(clean().code, Some(0));
    let processes = traces_of(pid, temp.path()).iter().filter(|trace| trace.starts_with("process")).count();
    assert!(processes >= 20, "clean ended processes of a running demo: {processes} are left");
    demo.signal("KILL");
    demo.wait();
    let left = traces_of(pid, temp.path());
    assert!(left.iter().any(|trace| trace.contains("/dev/shm/")), "a kill leaves the segments: {left:?}");
    assert_eq!(left.iter().any(|trace| trace.contains("/run/netns/")), is_root(), "{left:?}");
    let said = clean();
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.starts_with("removed "), "{said:?}");
    until("everything is gone", || traces_of(pid, temp.path()).is_empty().then_some(()));
    assert_eq!(clean().code, Some(0), "cleaning twice is fine");
    assert_eq!(say(&["testbed", "clean", "--all"]).code, Some(2));
}
