//! A server, and an agent for each host of a job, as processes of the command.
use super::{Job, PATIENCE};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

const TOKEN: &str = "act-0123456789abcdef";

/// The command, if it is built (`cargo build -p mycroft-cli`; a build of the workspace has it).
pub fn mycroft() -> Option<PathBuf> {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let found = exe.parent()?.parent()?.join("mycroft");
    if !found.exists() {
        eprintln!("skipped: {} is not built", found.display());
    }
    found.exists().then_some(found)
}

/// A process of the command; ends with this.
pub struct Daemon {
    pub child: Child,
    pub errors: Receiver<String>,
}

impl Daemon {
    pub fn start(mut command: Command) -> Daemon {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let (tell, errors) = channel();
        // Goes on reading when nobody listens: a full pipe would stop it.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| {
                let _ = tell.send(line);
            });
        });
        Daemon { child, errors }
    }

    /// The next line with this in it.
    pub fn line_with(&self, part: &str) -> String {
        let mut said = Vec::new();
        loop {
            match self.errors.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => said.push(line),
                Err(_) => panic!("no line with {part:?}: {said:?}"),
            }
        }
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Server and agents of a job whose hosts have a directory each.
pub struct Agents {
    pub server: Daemon,
    pub agents: Vec<Daemon>,
    pub url: String,
    wire: String,
    folder: tempfile::TempDir,
}

impl Agents {
    /// `None` where the command is not built.
    pub fn start(job: &Job, hosts: usize) -> Option<Agents> {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("act-token");
        std::fs::write(&token, TOKEN).expect("written");
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let mut command = Command::new(mycroft()?);
        command.args(["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0", "--act-token-file"]).arg(&token);
        command.arg("--store").arg(folder.path().join("store")).arg("--act-dir").arg(folder.path().join("act"));
        let server = Daemon::start(command);
        let line = server.line_with("agents at ");
        let (front, wire) = line.split_once("agents at ").expect("told");
        let url = front.split_once("http://").expect("told").1.split('/').next().expect("one").to_owned();
        let mut agents =
            Agents { server, agents: Vec::new(), url: format!("http://{url}"), wire: wire.trim().to_owned(), folder };
        for host in 0..hosts {
            let agent = agents.agent(&job.segments(), host, true);
            agents.agents.push(agent);
        }
        Some(agents)
    }

    /// An agent of a host.
    pub fn agent(&self, segments: &Path, host: usize, may_hold: bool) -> Daemon {
        let mut command = Command::new(mycroft().expect("it was there"));
        let (name, spool) = (format!("host{host}"), self.folder.path().join(format!("spool{host}")));
        command.args(["agent", "--server", &self.wire, "--host", &name, "--log-level", "debug", "--spool"]).arg(spool);
        command.arg("--dir").arg(segments.join(&name)).args(may_hold.then_some("--may-hold"));
        let agent = Daemon::start(command);
        agent.line_with("watching");
        agent
    }

    /// A command about the job, through the agents.
    pub fn command(&self, args: &[&str]) -> Command {
        self.command_at(&self.url, args)
    }

    /// The same, with another server before theirs.
    pub fn command_at(&self, url: &str, args: &[&str]) -> Command {
        let mut command = Command::new(mycroft().expect("it was there"));
        command.args(args).args(["--agents", "--job", "gate-test", "--agree-within", "20s", "--url", url]);
        command.arg("--act-token-file").arg(self.folder.path().join("act-token"));
        command
    }

    /// Runs it until agents that have just started are known to the server with all their ranks.
    pub fn run(&self, args: &[&str]) -> Output {
        let begun = std::time::Instant::now();
        loop {
            let output = self.command(args).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_early = ["no agent has a process", "of them in gates that were found"];
            if !is_early.iter().any(|early| said.contains(early)) || begun.elapsed() > PATIENCE {
                return output;
            }
        }
    }
}
