//! `mycroft collect` as a person meets it before a restart: what is in the package, what is not, and what is left behind.
mod common;

use common::{LOOK, end, mycroft, refusal, say};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const RAS: &str = "NCCL version 2.29.7 compiled with CUDA 13.0\n";
const SECRET: &str = "hf_abcdefghijklmnopqrstuvwxyz";

/// Stacks and dumps of a job with one rank asleep.
fn stuck() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps/rank_stuck-gloo-1")
}

/// A host with programs of our own: the kernel's log and the devices' state as they print it.
struct Host {
    temp: tempfile::TempDir,
    rank: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.rank.kill();
        let _ = self.rank.wait();
    }
}

impl Host {
    fn new(devices: &str) -> Host {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("bin")).unwrap();
        let kernel = "echo '[Mon Jan 5 10:00:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'";
        for (name, script) in [("dmesg", kernel), ("nvidia-smi", devices)] {
            let path = temp.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut rank = Command::new("sleep");
        rank.arg("1000").env("RANK", "5").env("NCCL_IB_HCA", "mlx5_0").env("HF_TOKEN", SECRET);
        let rank = rank.stdin(Stdio::null()).spawn().unwrap();
        Host { temp, rank }
    }

    fn path(&self, name: &str) -> String {
        self.temp.path().join(name).to_string_lossy().into_owned()
    }

    /// Of this host's ranks only ours: others' tests run beside.
    fn command(&self, out: &str, more: &[&str]) -> Command {
        let pid = self.rank.id().to_string();
        let mut command = mycroft(&[&["collect", "--out", out, "--pid", &pid][..], more].concat());
        let path = format!("{}:{}", self.path("bin"), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("MYCROFT_HOST", "node7").env("NCCL_RAS_ADDR", "127.0.0.1:1");
        command.env("TMPDIR", self.temp.path());
        command
    }
}

/// All files of a package by name.
fn unpacked(path: &str) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(fs::File::open(path).unwrap()).unwrap());
    let read = |mut entry: tar::Entry<'_, _>| {
        let mut bytes = Vec::new();
        Read::read_to_end(&mut entry, &mut bytes).unwrap();
        (entry.path().unwrap().to_string_lossy().into_owned(), bytes)
    };
    archive.entries().unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn text(files: &[(String, Vec<u8>)], name: &str) -> String {
    let found = files.iter().find(|(of, _)| of == name).unwrap_or_else(|| panic!("{name}: {:?}", names(files)));
    String::from_utf8(found.1.clone()).unwrap()
}

fn names(files: &[(String, Vec<u8>)]) -> Vec<&str> {
    files.iter().map(|(name, _)| name.as_str()).collect()
}

fn verdict(paths: &[&str]) -> Value {
    let said = say(&[&["autopsy", "--json"], paths].concat());
    said.json()["verdict"].clone()
}

#[test]
fn what_is_collected_gives_the_verdict_of_what_was_there() {
    let host = Host::new("echo 'Driver Version : 580.1'");
    let logs = host.temp.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("rank_2.log"), format!("step 1 loss 2.5\nexport HF_TOKEN={SECRET}\npeer 10.1.2.3<4711>\n"))
        .unwrap();
    let (out, log) = (host.path("case.tar.zst"), format!("{}/*.log", logs.display()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = host.command(&out, &["--log", &log, "--log", &stuck().to_string_lossy(), "--hide-addresses"]);
    command.env("NCCL_RAS_ADDR", listener.local_addr().unwrap().to_string());
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 15];
        stream.read_exact(&mut asked).unwrap();
        stream.write_all(RAS.as_bytes()).unwrap();
        asked
    });
    let said = end(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(&answers.join().unwrap(), b"verbose status\n");
    let files = unpacked(&out);
    assert_eq!(text(&files, "node7/ras.txt"), RAS);
    assert!(text(&files, "node7/dmesg.txt").contains("Xid") && text(&files, "node7/nvidia-smi.txt").contains("580.1"));
    let variables = format!(
        "mycroft collect: variables of the ranks of this host\nrank 5, process {}\nNCCL_IB_HCA=mlx5_0\nRANK=5\n",
        host.rank.id()
    );
    assert_eq!(text(&files, "node7/environment.txt"), variables);
    let log = text(&files, &format!("node7/logs{}", logs.join("rank_2.log").display()));
    assert_eq!(log, "step 1 loss 2.5\nexport HF_TOKEN=(removed)\npeer 240.0.0.1<4711>\n");
    assert!(files.iter().all(|(_, bytes)| !bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())));
    assert!(text(&files, "node7/collected.txt").contains("stacks of rank 5: not a Python process"), "{said:?}");
    assert!(said.stderr.contains("secrets taken out: 1;"), "{said:?}");
    let before = verdict(&[&stuck().to_string_lossy()]);
    assert!(before["suspects"][0]["rank"].is_u64(), "{before}");
    assert_eq!(verdict(&[&out])["suspects"], before["suspects"]);
    let said = say(&["autopsy", &out]).stdout;
    let own = ["collected.txt", "versions.txt", "environment.txt", "nvidia-smi.txt"];
    assert!(own.iter().all(|name| !said.contains(name)), "its own files are no unknown ones: {said}");
}

#[test]
fn what_is_no_log_is_left_out_and_said() {
    let host = Host::new("exit 9");
    let logs = host.temp.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("core"), b"\x7fELF\0\0\0").unwrap();
    fs::write(logs.join("state.pkl"), b"\x80\x02}q\0U\x05tokenq\x01U\x06hunter2.").unwrap();
    let tar = zstd::encode_all(&b"job.log\0\0\0\0"[..], 1).unwrap();
    fs::write(logs.join("old.tar.zst"), tar).unwrap();
    let made = Command::new("mkfifo").arg(logs.join("fr-0.pipe")).status().unwrap();
    assert!(made.success());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(format!("api_key={SECRET}\n").as_bytes()).unwrap();
    fs::write(logs.join("old.log.gz"), packed.finish().unwrap()).unwrap();
    let out = host.path("case.tar.zst");
    let said = end(host.command(&out, &["--log", &logs.to_string_lossy(), "--log", "/nowhere/*.log"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    for why in [
        "core: neither text nor a dump",
        "state.pkl: neither text nor a dump",
        "old.tar.zst: neither text nor a dump",
        "fr-0.pipe: no regular file",
        "/nowhere/*.log: no file has such a name",
        "nvidia-smi: it failed",
        "RAS at 127.0.0.1:1",
    ] {
        assert!(said.stderr.contains(why), "{why}: {said:?}");
    }
    let files = unpacked(&out);
    assert_eq!(text(&files, &format!("node7/logs{}", logs.join("old.log").display())), "api_key=(removed)\n");
    assert!(names(&files).iter().all(|name| !["core", "pipe", "state", ".tar"].iter().any(|of| name.contains(of))));
    let again = refusal(&["collect", "--out", &out]);
    assert!(again.contains("there is such a file already"), "{again}");
    let nowhere = refusal(&["collect", "--out", "/nowhere/case.tar.zst"]);
    assert!(nowhere.contains("nothing can be written there"), "{nowhere}");
}

/// A driver that hangs holds nobody, and whoever gives up leaves nothing.
#[test]
fn an_interrupted_collection_leaves_nothing() {
    let host = Host::new("exec sleep 1000");
    let out = host.path("out/case.tar.zst");
    fs::create_dir(host.temp.path().join("out")).unwrap();
    let mut command = host.command(&out, &[]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("nvidia-smi") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "it ended");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(LOOK),
        }
    };
    assert_eq!(status.code(), Some(130));
    assert_eq!(fs::read_dir(host.temp.path().join("out")).unwrap().count(), 0);
}
