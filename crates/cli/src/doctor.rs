//! `mycroft doctor`: can tracing work here, does it, and what to fix.
use crate::check::{Check, Grade, fail, ok, warn};
use crate::exit::{EXIT_ERROR, EXIT_FOUND, EXIT_OK};
use crate::reach::{DoctorArgs, server, wire};
use crate::told::print;
use crate::{fleet, libraries, peculiar, plugin};
use anyhow::{Result, bail};
use mycroft_record::NcclVersion;
use mycroft_record::text::printable;
use mycroft_ring::SegmentReader;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Shared memory under which traces of eight ranks get short: 8 x 1 MiB.
const SHM_BYTES_MIN: u64 = 8 << 20;

/// Runs every check; exit 0 all fine, 1 something to fix, 2 could not look.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<u8> {
    if let Some(url) = args.wire.as_deref().filter(|server| fleet::is_url(server)) {
        if args.pid.is_some() {
            bail!("--pid looks at this host, and --server {url} at those that a server knows: leave one of them out");
        }
        return fleet::doctor(url, &args.server, args.json);
    }
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(format!("/dev/shm/mycroft-{}", own_uid())));
    let mut checks = vec![version(), plugin_library(), plugin_variable()];
    checks.extend(shared_memory(&dir));
    checks.extend(segments(&dir));
    checks.push(clock_source());
    checks.push(processor_waits());
    checks.push(ptrace());
    if let Some(pid) = args.pid {
        checks.extend(process(pid));
    }
    checks.extend(server(args));
    checks.extend(wire(args));
    let worst = checks.iter().map(|check| check.grade).max().unwrap_or(Grade::Ok);
    if args.json {
        print_json(&checks)?
    } else {
        print_text(&checks)?
    }
    Ok(match worst {
        Grade::Ok => EXIT_OK,
        Grade::Warn | Grade::Fail if checks.is_empty() => EXIT_ERROR,
        Grade::Warn => EXIT_OK,
        Grade::Fail => EXIT_FOUND,
    })
}

fn print_text(checks: &[Check]) -> Result<()> {
    let mut text = String::new();
    for check in checks {
        let mark = match check.grade {
            Grade::Ok => "  ok ",
            Grade::Warn => " warn",
            Grade::Fail => " FAIL",
        };
        text.push_str(&format!("{mark}  {:<22} {}\n", check.what, printable(&check.found)));
        if !check.fix.is_empty() {
            text.push_str(&format!("       {:<22} -> {}\n", "", printable(&check.fix)));
        }
    }
    Ok(print(&text)?)
}

/// What `--json` prints.
#[derive(Serialize)]
struct ChecksJson<'a> {
    checks: &'a [Check],
}

fn print_json(checks: &[Check]) -> Result<()> {
    Ok(print(&format!("{}\n", crate::told::json(&ChecksJson { checks })?))?)
}

fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

fn version() -> Check {
    ok("mycroft", env!("CARGO_PKG_VERSION"))
}

fn plugin_library() -> Check {
    let what = "tracer library";
    let path = match libraries::find(libraries::TRACER) {
        Ok(path) => path,
        Err(error) => return fail(what, error.to_string(), "install libmycroft_nccl.so beside this binary"),
    };
    let shown = path.display();
    match plugin::versions(&path) {
        Err(why) => fail(what, format!("{shown} {why}"), "install the libmycroft_nccl.so of this release"),
        Ok(found) if found.len() < plugin::VERSIONS.count() => {
            fail(what, format!("{shown} has {} only", abi(&found)), "install the libmycroft_nccl.so of this release")
        }
        Ok(found) => ok(what, format!("{shown} ({})", abi(&found))),
    }
}

/// `profiler ABI v1, v2`.
fn abi(versions: &[u32]) -> String {
    let versions: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
    format!("profiler ABI {}", versions.join(", "))
}

fn plugin_variable() -> Check {
    let what = "NCCL_PROFILER_PLUGIN";
    let value = match std::env::var("NCCL_PROFILER_PLUGIN") {
        Ok(value) => value,
        Err(_) => {
            let path =
                libraries::find(libraries::TRACER).map_or("libmycroft_nccl.so".into(), |p| p.display().to_string());
            return warn(what, "not set in this shell", format!("in the job: export NCCL_PROFILER_PLUGIN={path}"));
        }
    };
    let (path, shown) = (Path::new(&value), printable(&value));
    if !path.is_file() {
        return if value.contains('/') {
            fail(what, format!("{shown}: no such file"), "set it to the path of libmycroft_nccl.so")
        } else {
            ok(what, format!("{shown} (a name; NCCL looks for it on the library path)"))
        };
    }
    match plugin::versions(path) {
        Ok(found) => ok(what, format!("{shown} ({})", abi(&found))),
        Err(why) => fail(what, format!("{shown} {why}"), "set it to the path of libmycroft_nccl.so"),
    }
}

fn shared_memory(dir: &Path) -> Vec<Check> {
    let what = "segment directory";
    let Ok(metadata) = fs::symlink_metadata(dir) else {
        return vec![warn(
            what,
            format!("{} does not exist yet", dir.display()),
            "it appears with the first traced job",
        )];
    };
    if !metadata.is_dir() {
        return vec![fail(what, format!("{} is not a directory", dir.display()), "remove it, or set MYCROFT_DIR")];
    }
    if metadata.uid() != own_uid() && own_uid() != 0 {
        let found = format!("{} belongs to uid {}", dir.display(), metadata.uid());
        return vec![fail(what, found, "run the agent as the job's user or as root")];
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let found = format!("{} has mode {mode:o}", dir.display());
        return vec![fail(what, found, format!("chmod 700 {}: others could read or fake traces", dir.display()))];
    }
    let mut checks = vec![ok(what, dir.display().to_string())];
    if let Some(available) = available_bytes(dir) {
        let found = format!("{} MiB free", available >> 20);
        checks.push(if available < SHM_BYTES_MIN {
            warn("shared memory", found, "give the container more (--shm-size), or set MYCROFT_DIR to another tmpfs")
        } else {
            ok("shared memory", found)
        });
    }
    checks
}

/// Free bytes of the file system of `dir`, by `df`: no unsafe code here, and the doctor may take its time.
fn available_bytes(dir: &Path) -> Option<u64> {
    let out = std::process::Command::new("df").args(["-B1", "--output=avail"]).arg(dir).output().ok()?;
    String::from_utf8_lossy(&out.stdout).lines().nth(1)?.trim().parse().ok()
}

fn segments(dir: &Path) -> Vec<Check> {
    let what = "traced processes";
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut checks = Vec::new();
    let mut met = BTreeSet::new();
    for entry in entries.flatten() {
        let path = entry.path();
        if !path.is_file() || path.extension().is_none_or(|extension| extension != "mycroft") {
            continue;
        }
        let (check, version) = segment(&path);
        checks.push(check);
        met.extend(version);
    }
    checks.extend(peculiar::of_versions(&met));
    if checks.is_empty() {
        checks.push(warn(what, "none", "start a job with NCCL_PROFILER_PLUGIN set, then look again"));
    }
    checks
}

/// A traced process, and the version of its NCCL where it can be read.
fn segment(path: &Path) -> (Check, Option<NcclVersion>) {
    let what = "traced process";
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let reader = match SegmentReader::open(path) {
        Ok(reader) => reader,
        Err(error) => {
            return (fail(what, format!("{name}: {error}"), "same version of tracer and agent on this host?"), None);
        }
    };
    let (header, state) = (reader.header(), reader.state());
    let state = match state {
        Ok(state) => state,
        Err(error) => return (fail(what, format!("{name}: {error}"), "remove the file if its process is gone"), None),
    };
    let version = NcclVersion(state.nccl_version);
    let alive = Path::new(&format!("/proc/{}", header.process.pid)).exists();
    let dropped = state.dropped_total();
    let found = format!(
        "job {} rank {} pid {}{}: profiler ABI v{}, NCCL {}, kernel events {}, {} records dropped{}",
        header.job,
        header.rank,
        header.process.pid,
        if alive { "" } else { " (gone)" },
        state.profiler_abi,
        version,
        if state.kernel_events { "on" } else { "off" },
        dropped,
        if header.total_bytes < header.requested_bytes { ", smaller than asked for" } else { "" },
    );
    let check = if !alive {
        warn(what, found, "its host has no agent, or the agent has not collected it yet")
    } else if dropped > 0 {
        warn(what, found, "set MYCROFT_SEGMENT_BYTES higher in the job")
    } else {
        ok(what, found)
    };
    (check, Some(version))
}

fn clock_source() -> Check {
    let what = "clock source";
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match fs::read_to_string(path) {
        Ok(name) if name.trim() == "tsc" => ok(what, "tsc"),
        Ok(name) => {
            warn(what, name.trim().to_owned(), "timestamps cost more than with an invariant TSC; no action needed")
        }
        Err(_) => warn(what, "unknown", "timestamps fall back to CLOCK_MONOTONIC"),
    }
}

fn processor_waits() -> Check {
    let what = "waits for processors";
    if Path::new("/proc/self/schedstat").exists() {
        ok(what, "counted by this kernel")
    } else {
        let fix = "a kernel with CONFIG_SCHED_INFO; without, CPU contention is told by its effects only";
        warn(what, "not counted by this kernel (no /proc/PID/schedstat)", fix)
    }
}

fn ptrace() -> Check {
    let what = "stack capture";
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_else(|_| "0".to_owned());
    let scope = scope.trim().to_owned();
    if own_uid() == 0 || scope == "0" {
        ok(what, format!("permitted (uid {}, yama ptrace_scope {scope})", own_uid()))
    } else {
        warn(what, format!("yama ptrace_scope is {scope}"), "run the agent as root or with CAP_SYS_PTRACE")
    }
}

fn process(pid: u32) -> Vec<Check> {
    let what = "process";
    let root = PathBuf::from(format!("/proc/{pid}"));
    if !root.exists() {
        return vec![fail(what, format!("no process {pid}"), "give the pid of a rank")];
    }
    let mut checks = Vec::new();
    match fs::read(root.join("environ")) {
        Ok(bytes) => {
            let plugin = bytes.split(|&byte| byte == 0).find_map(|var| var.strip_prefix(b"NCCL_PROFILER_PLUGIN="));
            checks.push(match plugin {
                Some(value) => {
                    ok("its environment", format!("NCCL_PROFILER_PLUGIN={}", String::from_utf8_lossy(value)))
                }
                None => fail("its environment", "NCCL_PROFILER_PLUGIN is not set", "set it and restart the job"),
            });
        }
        Err(error) => {
            checks.push(warn("its environment", error.to_string(), "run the doctor as the job's user or root"))
        }
    }
    let maps = fs::read_to_string(root.join("maps"));
    checks.extend(maps.as_deref().map(peculiar::of_maps).unwrap_or_default());
    match maps {
        Ok(maps) if maps.contains(libraries::TRACER) => checks.push(ok("its libraries", "the tracer is loaded")),
        Ok(maps) if maps.contains("libnccl") => checks.push(fail(
            "its libraries",
            "NCCL is loaded, the tracer is not",
            format!(
                "run with NCCL_DEBUG=INFO and look for PROFILER; before 2.23 NCCL has no plugins: {}",
                peculiar::BEFORE_PLUGINS
            ),
        )),
        Ok(_) => checks.push(warn("its libraries", "NCCL is not loaded (yet, or it is linked statically)", "")),
        Err(error) => checks.push(warn("its libraries", error.to_string(), "run the doctor as the job's user or root")),
    }
    checks
}
