//! What `cargo xtask dist` packs, from the programs that the tests were built with: the Debian package is installed into a
//! folder, watches a job there, and leaves nothing when it goes; the .rpm holds the same; the wheel brings program and plugin into a new Python.
mod rpm;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PROGRAMS: &[&str] = &["mycroft", "libmycroft_nccl.so", "libmycroft_preload.so", "libmycroft_testbed_nccl.so"];
/// Variables of a user's shell that would change what is tested.
const STRAY: &[&str] =
    &["MYCROFT_OFF", "MYCROFT_DIR", "MYCROFT_LIB_DIR", "MYCROFT_CHAIN_PLUGIN", "NCCL_PROFILER_PLUGIN"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the checkout")
}

fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in STRAY {
        command.env_remove(name);
    }
    command
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("no {program} here: what needs it is skipped");
    }
    found
}

/// Runs it to its end; what it printed.
fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}

/// A folder as `cargo xtask dist` writes it. `None`, and why, where the programs were not built.
fn packed(folder: &Path) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_xtask")).parent().expect("target/debug");
    if let Some(absent) = PROGRAMS.iter().find(|name| !built.join(name).exists()) {
        eprintln!("skipped: no {absent} in {}: `cargo build --workspace` makes it", built.display());
        return None;
    }
    if !["dpkg-deb", "objdump", "strip", "zstd", "python3"].iter().all(|program| has(program)) {
        return None;
    }
    let (stripped, out) = (folder.join("stripped"), folder.join("dist"));
    fs::create_dir(&stripped).expect("made");
    for name in PROGRAMS {
        done(command("strip").arg("-o").arg(stripped.join(name)).arg(built.join(name)));
    }
    let mut dist = command(env!("CARGO_BIN_EXE_xtask"));
    done(dist.args(["dist", "--quick", "--from"]).arg(&stripped).arg("--out").arg(&out));
    Some(out)
}

fn only(folder: &Path, suffix: &str) -> PathBuf {
    let paths = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
    assert_eq!(found.len(), 1, "{suffix}: {found:?}");
    found.into_iter().next().expect("one")
}

#[test]
fn what_is_packed_installs_works_and_leaves_nothing() {
    let temp = tempfile::tempdir().expect("a folder");
    let Some(dist) = packed(temp.path()) else { return };
    done(command("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&dist));
    archive_works_anywhere(&dist, &temp.path().join("unpacked"));
    dockerfile_finds_its_files(&dist);
    chart_is_whole(&dist, temp.path());
    debian_package(&dist, &temp.path().join("root"));
    rpm::holds_what_the_debian_package_holds(&dist, temp.path());
    wheel(&dist, &temp.path().join("venv"));
}

fn archive_works_anywhere(dist: &Path, folder: &Path) {
    fs::create_dir(folder).expect("made");
    done(command("tar").arg("-xf").arg(only(dist, ".tar.zst")).arg("-C").arg(folder));
    let inside = only(folder, "-linux");
    for name in ["bin/mycroft", "lib/mycroft/libmycroft_nccl.so", "etc/mycroft/agent.env", "share/man/man1/mycroft.1"] {
        assert!(inside.join(name).is_file(), "{name}");
    }
    assert!(!inside.join("usr").exists());
    let asked = command(inside.join("bin/mycroft")).args(["doctor", "--json"]).output().expect("it runs");
    let told = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(told.contains(&*inside.join("lib/mycroft/libmycroft_nccl.so").to_string_lossy()), "{told}");
    let list = fs::read_to_string(inside.join("share/doc/mycroft/mycroft.cdx.json")).expect("a list of components");
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let names: Vec<&str> =
        list["components"].as_array().expect("some").iter().filter_map(|c| c["name"].as_str()).collect();
    assert!(names.contains(&"libsqlite3-sys") && names.contains(&"mycroft-cli"), "{names:?}");
    assert!(!names.contains(&"xtask"), "{names:?}");
}

fn dockerfile_finds_its_files(dist: &Path) {
    let text = fs::read_to_string(dist.join("Dockerfile")).expect("readable");
    let copied = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let sources: Vec<&str> = copied.flat_map(|line| line.split(' ').filter(|word| !word.starts_with('/'))).collect();
    assert!(sources.len() >= PROGRAMS.len());
    sources.iter().for_each(|name| assert!(dist.join(name).is_file(), "{name}"));
    assert!(!text.lines().any(|line| line.starts_with("RUN ")), "a command could ask the network");
}

/// The packed chart has its alert rules, which are a link in the checkout.
fn chart_is_whole(dist: &Path, temp: &Path) {
    let name = format!("mycroft-{}.tgz", env!("CARGO_PKG_VERSION"));
    done(command("tar").arg("-xzf").arg(dist.join(name)).arg("-C").arg(temp));
    let packed = |name: &str| fs::read_to_string(temp.join("mycroft").join(name)).expect("packed");
    let rules = fs::read_to_string(repository().join("deploy/prometheus/mycroft.rules.yml")).expect("there");
    assert_eq!(packed("files/mycroft.rules.yml"), rules);
    assert!(packed("Chart.yaml").contains("name: mycroft") && packed("templates/agent.yaml").contains("DaemonSet"));
    assert!(fs::symlink_metadata(temp.join("mycroft/files/mycroft.rules.yml")).expect("there").is_file());
}

/// A root of its own: `dpkg` runs the scripts with `DPKG_ROOT`, and nothing of this machine is touched.
fn debian_package(dist: &Path, root: &Path) {
    if fs::metadata(root.parent().expect("a folder")).expect("there").uid() != 0 || !has("dpkg") || !has("useradd") {
        eprintln!("the installation of the Debian package is skipped: it needs root, who owns its files");
        return;
    }
    fs::create_dir_all(root.join("var/lib/dpkg/info")).expect("made");
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).expect("made");
    fs::write(root.join("var/lib/dpkg/status"), "").expect("written");
    fs::create_dir(root.join("etc")).expect("made");
    for (name, line) in [
        ("passwd", "root:x:0:0::/:/bin/sh\n"),
        ("group", "root:x:0:\n"),
        ("shadow", "root:*:1::::::\n"),
        ("gshadow", ""),
    ] {
        fs::write(root.join("etc").join(name), line).expect("written");
    }
    let before = tree(root);
    let dpkg = |args: &[&OsStr]| {
        let force = ["--force-script-chrootless", "--force-depends", "--log=/dev/null"];
        done(command("dpkg").arg(format!("--root={}", root.display())).args(force).args(args))
    };
    let package = only(dist, ".deb");
    dpkg(&[OsStr::new("--install"), package.as_os_str()]);
    let example = done(command(root.join("usr/bin/mycroft")).args(["config", "show", "--example"]));
    assert_eq!(fs::read_to_string(root.join("etc/mycroft/mycroft.toml")).expect("installed"), example);
    let passwd = fs::read_to_string(root.join("etc/passwd")).expect("readable");
    assert!(passwd.contains("\nmycroft:"), "{passwd}");
    units_are_valid(root);
    watches_a_job(&root.join("usr/bin/mycroft"));
    // As an administrator and the daemons leave it.
    fs::write(root.join("etc/mycroft/agent.env"), "MYCROFT_SERVER=10.0.0.1:7700\n").expect("written");
    fs::write(root.join("etc/mycroft/token"), "secret\n").expect("written");
    fs::create_dir_all(root.join("var/lib/mycroft/server/store")).expect("made");
    fs::write(root.join("var/lib/mycroft/server/store/records"), "records").expect("written");
    dpkg(&[OsStr::new("--install"), package.as_os_str()]);
    let kept = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    assert_eq!(kept("etc/mycroft/agent.env"), "MYCROFT_SERVER=10.0.0.1:7700\n", "an upgrade keeps what was configured");
    dpkg(&[OsStr::new("--remove"), OsStr::new("mycroft")]);
    assert!(!root.join("usr/bin").exists() && !root.join("usr/lib/systemd").exists());
    assert_eq!(
        (kept("etc/mycroft/token"), kept("var/lib/mycroft/server/store/records")),
        ("secret\n".into(), "records".into())
    );
    dpkg(&[OsStr::new("--purge"), OsStr::new("mycroft")]);
    let (after, mut left) = (tree(root), Vec::new());
    left.extend(after.iter().filter(|(path, what)| before.get(*path) != Some(what)));
    assert!(left.is_empty(), "left or changed: {left:?}");
}

/// Every path below a folder with its mode and content, but the books of dpkg and what tools for users keep of before.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("below").to_owned();
            let text = name.to_string_lossy().into_owned();
            if text == "var/lib/dpkg" || text == "etc/.pwd.lock" || (text.starts_with("etc/") && text.ends_with('-')) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).expect("there");
            let content = if metadata.is_file() { fs::read(&path).expect("readable") } else { Vec::new() };
            if metadata.is_dir() {
                open.push(path);
            }
            found.insert(name, (metadata.permissions().mode(), content));
        }
    }
    found
}

/// The installed program finds its own libraries, starts a job of real processes, and names its fault.
fn watches_a_job(program: &Path) {
    let asked = ["demo", "--transport", "loopback", "--after", "3", "--fault", "gpu-hang@host1:rank6"];
    let told = done(command(program).args(asked));
    assert!(told.contains("rank6") || told.contains("rank 6"), "{told}");
}

/// systemd takes the units of an installed tree.
fn units_are_valid(root: &Path) {
    if !has("systemd-analyze") {
        return;
    }
    // What the units name and every system has.
    for name in ["network-online.target", "multi-user.target", "basic.target", "sysinit.target", "shutdown.target"] {
        fs::write(root.join("usr/lib/systemd/system").join(name), "[Unit]\nDescription=stand-in\n").expect("written");
    }
    let units = ["mycroft-server.service", "mycroft-agent.service", "mycroft-agent@1000.service"];
    let mut verify = command("systemd-analyze");
    verify.arg("verify").arg("--man=no").arg(format!("--root={}", root.display())).args(units);
    let output = verify.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let of_ours: Vec<&str> = told.lines().filter(|line| line.contains("mycroft")).collect();
    assert!(output.status.success() && of_ours.is_empty(), "{told}");
    for name in ["network-online.target", "multi-user.target", "basic.target", "sysinit.target", "shutdown.target"] {
        fs::remove_file(root.join("usr/lib/systemd/system").join(name)).expect("was there");
    }
}

/// A new Python with nothing but the wheel.
fn wheel(dist: &Path, venv: &Path) {
    let made = command("python3").args(["-m", "venv"]).arg(venv).output().expect("python3 was there");
    if !made.status.success() {
        eprintln!("the wheel is not installed: python3 has no venv here (Debian: python3-venv)");
        return;
    }
    let bin = venv.join("bin");
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
    done(command(bin.join("python")).args(pip).arg(only(dist, ".whl")));
    let help = done(command(bin.join("mycroft")).args(["demo", "--help"]));
    assert!(help.contains("--fault"), "{help}");
    let told = done(command(bin.join("python")).args(["-m", "mycroft", "env"]).current_dir("/"));
    let plugin = told.strip_prefix("export NCCL_PROFILER_PLUGIN=").expect("an export").trim_end();
    assert!(Path::new(plugin).starts_with(venv.canonicalize().expect("there")), "{plugin}");
    // The plugin loads as NCCL loads it, and the package's marks find it.
    let segments = venv.join("segments");
    let mut job = command(bin.join("python"));
    job.arg(repository().join("python/tests/marks_of_a_job.py"));
    job.arg(Path::new(plugin).with_file_name("libmycroft_testbed_nccl.so"));
    job.env("NCCL_PROFILER_PLUGIN", plugin).env("MYCROFT_DIR", &segments).env("MYCROFT_SEGMENT_BYTES", "8388608");
    let mut child = job.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let told = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
    assert!(told.is_ok() && line == "marked\n", "its error stands above: {line:?}");
    assert!(fs::read_dir(&segments).expect("made by the tracer").next().is_some());
    drop(child.stdin.take());
    assert!(child.wait().expect("a child").success());
}
