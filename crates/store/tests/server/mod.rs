//! A PostgreSQL server of a test's own: in a temporary folder, on a Unix socket only, gone with the test.
#![allow(dead_code, reason = "each test binary uses some of it")]
use mycroft_store::meta::{Meta, MetaPlace, PostgresAt};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Attempts to start a server on the folder of one that was killed: its processes may still be ending.
const STARTS_MAX: usize = 100;

/// Shared memory lies in its folder, which goes with the test. Processes that are killed lose nothing that the kernel has: no disk is waited for.
const SETTINGS: [&str; 2] = ["dynamic_shared_memory_type=mmap", "fsync=off"];

/// Of its user `ada`. Nothing may show it.
pub(crate) const PASSWORD: &str = "s3cret";

pub(crate) struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    user: Option<u32>,
    running: Option<Child>,
    /// What it is started with besides.
    settings: Vec<String>,
}

impl Server {
    /// Starts one; `None`, with a line that says so: the programs are not on this machine.
    pub(crate) fn start() -> Option<Server> {
        Server::start_encoded("UTF8")
    }

    pub(crate) fn start_encoded(encoding: &str) -> Option<Server> {
        let Some(programs) = programs() else {
            println!("skipped: no PostgreSQL server in /usr/lib/postgresql or MYCROFT_TEST_POSTGRES");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let is_root = std::fs::metadata(folder.path()).expect("a folder").uid() == 0;
        let user = is_root.then(user);
        chown(folder.path(), user, user).expect("ours");
        std::fs::write(folder.path().join("password"), PASSWORD).expect("written");
        let settings = SETTINGS.into_iter().chain(["listen_addresses="]).map(str::to_owned).collect();
        let mut server = Server { folder, programs, user, running: None, settings };
        // A language whose order of names is not that of their bytes.
        let locale: &[&str] = match encoding {
            "UTF8" => &["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"],
            _ => &["--locale=C"],
        };
        let made = server
            .program("initdb")
            .args(["-A", "scram-sha-256", "--pwfile", "password", "-U", "ada", "--no-sync", "-E", encoding])
            .args(locale)
            .output();
        let made = made.expect("initdb runs");
        assert!(
            made.status.success(),
            "{}{}",
            String::from_utf8_lossy(&made.stdout),
            String::from_utf8_lossy(&made.stderr)
        );
        server.go_on();
        Some(server)
    }

    /// As the user of the server; ended with the thread that starts it.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(user) = self.user {
            command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
        }
        command.arg("--pdeathsig=QUIT").arg(self.programs.join(name)).arg("-D").arg(self.folder.path().join("data"));
        command.current_dir(self.folder.path()).env_remove("PGDATA");
        command
    }

    /// Starts it (again), and returns when it takes connections.
    pub(crate) fn go_on(&mut self) {
        let mut said = String::new();
        for _ in 0..STARTS_MAX {
            let mut command = self.program("postgres");
            let settings = self.settings.iter().flat_map(|setting| ["-c", setting]);
            let run = command.arg("-k").arg(self.folder.path()).args(["-c", "max_connections=20"]).args(settings);
            let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("postgres runs");
            let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
            said.clear();
            for line in lines.by_ref() {
                said.push_str(&line);
                said.push('\n');
                if line.contains("ready to accept connections") {
                    // Its pipe must not fill.
                    std::thread::spawn(move || lines.for_each(drop));
                    self.running = Some(child);
                    return;
                }
            }
            child.wait().expect("ended");
        }
        panic!("postgres does not start: {said}");
    }

    /// Starts it again with TLS and a certificate for this machine, on a port that is free; gives the port. `certificate` and `key`
    /// are PEM.
    pub(crate) fn go_on_with_tls(&mut self, certificate: &str, key: &str) -> u16 {
        self.kill();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
            chown(&path, self.user, self.user).expect("ours");
        }
        // Freed again for the server, which cannot say which one it got.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let file = |setting: &str, name: &str| format!("{setting}={}", self.folder.path().join(name).display());
        let files = [file("ssl_cert_file", "server.crt"), file("ssl_key_file", "server.key")];
        // Two addresses, so that one is not the certificate's.
        let tcp = ["listen_addresses=127.0.0.1,127.0.0.2", "ssl=on"];
        self.settings = SETTINGS.into_iter().chain(tcp).map(str::to_owned).chain(files).collect();
        self.settings.push(format!("port={port}"));
        self.go_on();
        port
    }

    fn processes(&self) -> Vec<u32> {
        let Some(child) = &self.running else { return Vec::new() };
        let pid = child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        std::iter::once(pid).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
    }

    fn signal(&self, signal: &str) {
        let pids = self.processes().into_iter().map(|pid| pid.to_string());
        // One that has ended meanwhile needs none.
        Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status().expect("kill runs");
    }

    /// `kill -9` of the server and all its processes.
    pub(crate) fn kill(&mut self) {
        self.signal("-KILL");
        if let Some(mut child) = self.running.take() {
            child.wait().expect("ended");
        }
    }

    /// It neither answers nor ends, until it is thawed.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://ada@/postgres?host={}", self.folder.path().display())
    }

    pub(crate) fn place(&self) -> MetaPlace {
        MetaPlace::Postgres(at(self.url()))
    }

    pub(crate) fn at(&self) -> PostgresAt {
        at(self.url())
    }

    pub(crate) fn open(&self, store: &str) -> Meta {
        Meta::open_postgres(&self.at(), store, None).expect("a database")
    }

    /// What `psql` prints, without decoration.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sql_at(5432, sql)
    }

    /// As `sql`, of a server whose socket is named by another port.
    pub(crate) fn sql_at(&self, port: u16, sql: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        let asked = command
            .args(["-U", "ada", "-d", "postgres", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .args(["-p", &port.to_string()])
            .arg("-h")
            .arg(self.folder.path());
        let output = asked.env("PGPASSWORD", PASSWORD).output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

pub(crate) fn at(url: String) -> PostgresAt {
    match MetaPlace::postgres(url, Some(PASSWORD.to_owned()), None).expect("an address") {
        MetaPlace::Postgres(at) => at,
        MetaPlace::File => panic!("no file was meant"),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.thaw();
        // An immediate shutdown: unlike a kill it takes its System V segment with it.
        if let Some(mut child) = self.running.take() {
            Command::new("kill").args(["-QUIT", &child.id().to_string()]).status().expect("kill runs");
            child.wait().expect("ended");
        }
    }
}

/// The newest server that is installed.
fn programs() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os("MYCROFT_TEST_POSTGRES") {
        return Some(PathBuf::from(told)).filter(|path| path.join("initdb").exists());
    }
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let installed = std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = installed.filter(|path| path.join("bin/initdb").exists()).max_by_key(|path| version(path))?;
    Some(newest.join("bin"))
}

/// PostgreSQL does not run as root.
fn user() -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").expect("users");
    let id = |name: &str| {
        let mut fields = users.lines().find(|line| line.split(':').next() == Some(name))?.split(':');
        fields.nth(2)?.parse().ok()
    };
    id("postgres").or_else(|| id("nobody")).expect("a user")
}
