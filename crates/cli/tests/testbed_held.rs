//! The testbed's own workload with the library that stands before NCCL: it is held, tested, and goes on. Skips where the library is not
//! built (a build of the workspace has it).
mod common;

use common::{Going, line_with, mycroft, say, until};
use std::path::{Path, PathBuf};

/// Where the segments of each host of a run are: the launcher's process number is in the name.
fn directories(pid: u32) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("/dev/shm/mtb-{pid}-0"));
    let hosts = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut hosts: Vec<PathBuf> = hosts.filter(|path| path.is_dir()).collect();
    hosts.sort();
    hosts
}

/// The job's report, once it has so many iterations.
fn report(demo: &mut Going, url: &str, iterations: u64) -> serde_json::Value {
    until("iterations are finished", || {
        assert!(demo.is_running(), "the demo ended");
        let text = ureq::get(format!("{url}/api/v1/report")).call().ok()?.into_body().read_to_string().ok()?;
        let report: serde_json::Value = serde_json::from_str(&text).ok()?;
        (report["iterations"].as_u64()? >= iterations).then_some(report)
    })
}

#[test]
fn the_testbeds_workload_is_held_and_tested_and_goes_on() {
    let library = Path::new(env!("CARGO_BIN_EXE_mycroft")).with_file_name("libmycroft_preload.so");
    if !library.exists() {
        eprintln!("skipped: {} is not built", library.display());
        return;
    }
    let mut command = mycroft(&["demo", "--fault", "none", "--wait", "600", "--transport", "loopback"]);
    command.env("LD_PRELOAD", library);
    let mut demo = Going::start(command);
    let api = line_with(&mut demo.stdout, "API http://");
    let url = api.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('/').to_owned();
    let before = report(&mut demo, &url, 2);
    let directories: Vec<String> =
        directories(demo.pid()).iter().map(|directory| directory.to_string_lossy().into_owned()).collect();
    let run = |words: &[&str]| {
        let mut args = words.to_vec();
        args.extend(["--job", before["job"].as_str().unwrap(), "--agree-within", "20s"]);
        directories.iter().for_each(|directory| args.extend(["--dir", directory]));
        say(&args)
    };
    let held = run(&["hold", "--for", "300ms"]);
    assert!(held.code == Some(0) && held.stdout.starts_with("16 ranks came to one point in "), "{held:?}");
    let tested = run(&["validate", "--checks", "device", "--bytes", "65536"]);
    // On two busy cores somebody may be slower than others.
    assert!(matches!(tested.code, Some(0 | 1)) && tested.stdout.contains("the job paused for "), "{tested:?}");
    report(&mut demo, &url, before["iterations"].as_u64().unwrap() + 5);
    demo.signal("INT");
    let (status, stdout, stderr) = demo.wait();
    assert_eq!(status.code(), Some(130), "{stdout}{stderr}");
}
