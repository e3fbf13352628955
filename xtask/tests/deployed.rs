//! What lies in `deploy/` for machines: units and environment files name only flags and variables that the program has, and
//! the scripts for Slurm and Debian do what they say.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Standard output, with nothing in its environment but what is given.
fn shell(script: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("sh");
    command
        .arg(deploy(script))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(variables.iter().copied());
    let output = command.output().expect("sh");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Help of a command; `None` where the program was not built.
fn help(command: &str) -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("mycroft");
    if !program.exists() {
        eprintln!("skipped: no {}: `cargo build --workspace` makes it", program.display());
        return None;
    }
    let output = Command::new(program).args([command, "--help"]).output().expect("it runs");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn units_and_their_files_name_what_the_program_has() {
    for (command, flags, files) in [
        ("serve", "MYCROFT_SERVE_FLAGS", &["mycroft-server.service", "server.env"][..]),
        ("agent", "MYCROFT_AGENT_FLAGS", &["mycroft-agent.service", "mycroft-agent@.service", "agent.env"]),
    ] {
        let Some(help) = help(command) else { return };
        for file in files {
            let text = text(&format!("systemd/{file}"));
            let of_program = |line: &&str| line.starts_with("ExecStart=") || line.contains("MYCROFT_");
            let split = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
            let mut named = 0;
            for line in text.lines().filter(of_program) {
                for word in line.split(split).filter(|word| *word != flags) {
                    let is_flag = word.starts_with("--") && word.len() > 2;
                    if is_flag || word.starts_with("MYCROFT_") {
                        assert!(help.contains(word), "{file}: {word}: not in `mycroft {command} --help`");
                        named += 1;
                    }
                }
            }
            assert!(named > 0, "{file} names nothing");
        }
    }
}

#[test]
fn agents_of_one_user_and_of_all_are_restricted_alike() {
    let [one, all] = ["mycroft-agent.service", "mycroft-agent@.service"].map(|name| text(&format!("systemd/{name}")));
    let rights = |text: &str| text.split_once("\nRestart=").expect("a section").1.to_owned();
    assert_eq!(rights(&one), rights(&all));
}

#[test]
fn a_task_of_slurm_gets_the_plugin_unless_it_says_otherwise() {
    let temp = tempfile::tempdir().expect("a folder");
    let plugin = temp.path().join("plugin.so");
    fs::write(&plugin, "").expect("written");
    let plugin = plugin.to_string_lossy().into_owned();
    let told =
        |more: &[(&str, &str)]| shell("slurm/task-prolog.sh", &[&[("MYCROFT_PLUGIN", plugin.as_str())], more].concat());
    let ours = format!("export NCCL_PROFILER_PLUGIN={plugin}\n");
    assert_eq!(told(&[]), ours);
    assert_eq!(told(&[("MYCROFT_OFF", "1")]), "");
    assert_eq!(told(&[("NCCL_PROFILER_PLUGIN", &plugin)]), "", "set already");
    assert_eq!(
        told(&[("NCCL_PROFILER_PLUGIN", "/other.so")]),
        format!("export MYCROFT_CHAIN_PLUGIN=/other.so\n{ours}")
    );
    assert_eq!(told(&[("NCCL_PROFILER_PLUGIN", "none")]), "");
    assert_eq!(told(&[("MYCROFT_PLUGIN", "/absent.so")]), "", "a node without it");
}

#[test]
fn prolog_and_epilog_of_slurm_never_fail() {
    assert_eq!(shell("slurm/prolog.sh", &[("SLURM_JOB_UID", "4294967294")]), "");
    for user in ["", "../../etc", "4294967294"] {
        assert_eq!(shell("slurm/epilog.sh", &[("SLURM_JOB_UID", user)]), "");
    }
}

#[test]
fn scripts_are_read_by_any_shell() {
    for folder in ["slurm", "debian"] {
        for entry in fs::read_dir(deploy(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let checked = Command::new("sh").arg("-n").arg(&path).output().expect("sh");
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }
}

#[test]
fn the_file_for_nccl_names_the_plugin_where_it_is_installed() {
    let settings: Vec<String> =
        text("nccl.conf").lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    assert_eq!(settings, ["NCCL_PROFILER_PLUGIN=/usr/lib/mycroft/libmycroft_nccl.so"]);
    assert!(text("slurm/task-prolog.sh").contains("/usr/lib/mycroft/libmycroft_nccl.so"));
}
