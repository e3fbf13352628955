//! A ClickHouse server of a test's own: in a temporary folder, on a port of this machine, gone with the test.
#![allow(dead_code, reason = "each test binary uses some of it")]
use mycroft_store::remote::RecordsPlace;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Of its user `ada`. Nothing may show it.
pub(crate) const PASSWORD: &str = "s3cret";
/// Where a server's program is usually.
const PROGRAMS: [&str; 3] = ["/usr/sbin/clickhouse-server", "/usr/bin/clickhouse-server", "/usr/bin/clickhouse"];

pub(crate) struct Server {
    folder: tempfile::TempDir,
    program: PathBuf,
    pub(crate) port: u16,
    running: Option<Child>,
}

impl Server {
    /// Starts one; `None`, with a line that says so: no program is on this machine.
    pub(crate) fn start() -> Option<Server> {
        let named = std::env::var_os("MYCROFT_TEST_CLICKHOUSE").map(PathBuf::from);
        let usual = PROGRAMS.iter().map(PathBuf::from);
        let Some(program) = named.into_iter().chain(usual).find(|path| path.is_file()) else {
            println!("skipped: no ClickHouse server in {} or MYCROFT_TEST_CLICKHOUSE", PROGRAMS.join(", "));
            return None;
        };
        // Freed again for the server, which cannot say which one it got.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Server { folder, program, port, running: None };
        server.write_settings();
        drop(free);
        server.go_on();
        Some(server)
    }

    fn write_settings(&self) {
        let dir = self.folder.path().display();
        let config = format!(
            "<yandex><logger><level>information</level><console>1</console></logger><http_port>{}</http_port>\
             <listen_host>127.0.0.1</listen_host><path>{dir}/data/</path><tmp_path>{dir}/tmp/</tmp_path>\
             <users_config>{dir}/users.xml</users_config><default_profile>default</default_profile>\
             <default_database>default</default_database><mark_cache_size>67108864</mark_cache_size></yandex>",
            self.port
        );
        let users = format!(
            "<yandex><profiles><default></default></profiles><users><ada><password>{PASSWORD}</password>\
             <networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota></ada></users>\
             <quotas><default></default></quotas></yandex>"
        );
        std::fs::write(self.folder.path().join("config.xml"), config).expect("written");
        std::fs::write(self.folder.path().join("users.xml"), users).expect("written");
    }

    /// Starts it (again), and returns when it takes connections.
    pub(crate) fn go_on(&mut self) {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL").arg(&self.program);
        if self.program.file_name().is_some_and(|name| name == "clickhouse") {
            command.arg("server");
        }
        let config = format!("--config-file={}", self.folder.path().join("config.xml").display());
        let run = command.arg(config).current_dir(self.folder.path());
        let (out, into) = std::io::pipe().expect("a pipe");
        let both = into.try_clone().expect("the same pipe");
        let child = run.stdin(Stdio::null()).stdout(into).stderr(both).spawn().expect("it runs");
        // The command holds the other end, too.
        drop(command);
        self.running = Some(child);
        let mut said = String::new();
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            said.push_str(&line);
            said.push('\n');
            if line.contains("Ready for connections") {
                // Its pipe must not fill.
                std::thread::spawn(move || lines.for_each(drop));
                return;
            }
        }
        panic!("clickhouse does not start: {said}");
    }

    /// Kills it, as power does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().expect("it runs");
            child.wait().expect("it has ended");
        }
    }

    pub(crate) fn place(&self) -> RecordsPlace {
        self.place_with(PASSWORD)
    }

    pub(crate) fn place_with(&self, password: &str) -> RecordsPlace {
        let url = format!("clickhouse://ada@127.0.0.1:{}/default", self.port);
        RecordsPlace::clickhouse(&url, Some(password.to_owned()), None).expect("an address")
    }

    /// What the server itself answers to a statement.
    pub(crate) fn ask(&self, statement: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let head = format!(
            "POST / HTTP/1.0\r\nX-ClickHouse-User: ada\r\nX-ClickHouse-Key: {PASSWORD}\r\nContent-Length: {}\r\n\r\n",
            statement.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        stream.write_all(statement.as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.contains(" 200 "), "{statement}: {text}");
        body.trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
