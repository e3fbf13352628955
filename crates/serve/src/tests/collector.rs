//! A strict collector of OpenTelemetry: a real HTTP server that refuses what the protocol does not allow, and hands over the rest.
use super::*;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// A POST that was answered.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) path: String,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// Status line, with which it was answered.
    pub(super) status: String,
}

/// What a collector answers: status line, more header lines, body.
pub(super) struct Reply(pub(super) &'static str, pub(super) &'static str, pub(super) Vec<u8>);

pub(super) fn ok() -> Reply {
    Reply("200 OK", "Content-Type: application/x-protobuf\r\n", Vec::new())
}

/// The collector.
pub(super) struct Collector {
    address: SocketAddr,
    posts: Receiver<Posted>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Answers each POST as it is told: by its path, and how many came there before.
    pub(super) fn start(answer: impl Fn(&str, usize) -> Reply + Send + 'static) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (told, posts) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut before: Vec<String> = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let Some(mut posted) = taken(&stream) else { continue };
                let reply = answer(&posted.path, before.iter().filter(|path| **path == posted.path).count());
                before.push(posted.path.clone());
                let Reply(status, headers, body) = reply;
                let head = format!(
                    "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                // Whoever does not wait any more tries again.
                let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(&body));
                posted.status = status.to_owned();
                let _ = told.send(posted);
            }
        });
        Collector { address, posts, is_over, thread: Some(thread) }
    }

    /// A server that tells this collector.
    pub(super) fn world(&self, headers: &str) -> World {
        World::start(self.config(headers))
    }

    pub(super) fn config(&self, headers: &str) -> ServeConfig {
        let otlp_headers = headers.parse().expect("headers");
        ServeConfig { otlp: Some(format!("http://{}", self.address)), otlp_headers, ..quick() }
    }

    /// The next POST there.
    pub(super) fn next(&self, path: &str) -> Posted {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let posted = self.posts.recv_timeout(left).unwrap_or_else(|_| panic!("nothing came to {path}"));
            if posted.path == path {
                return posted;
            }
        }
    }

    /// Log records that come next, as many as are named; they may come together.
    pub(super) fn records(&self, events: &[&str]) -> Vec<LogRecord> {
        let mut records = Vec::new();
        while records.len() < events.len() {
            records.extend(logs(&self.next("/v1/logs")));
        }
        let told: Vec<&str> = records.iter().map(|record| record.event_name.as_str()).collect();
        assert_eq!(told, events.iter().map(|event| format!("mycroft.case.{event}")).collect::<Vec<_>>());
        records
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the collector refused something");
    }
}

/// One POST, if it is as the protocol wants it; `None`: the connection was closed.
fn taken(stream: &TcpStream) -> Option<Posted> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let field =
        |name: &str| lower.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
    assert_eq!(field("content-type:").as_deref(), Some("application/x-protobuf"), "{head}");
    assert_eq!(field("content-encoding:"), None, "{head}");
    assert!(field("user-agent:").is_some_and(|agent| agent.starts_with("mycroft/")), "{head}");
    let mut body = vec![0; field("content-length:").expect("a length").parse().expect("a number")];
    reader.read_exact(&mut body).ok()?;
    let words: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').collect();
    let [method, path, "HTTP/1.1"] = words[..] else { panic!("{head}") };
    assert_eq!(method, "POST", "{head}");
    let path = path.to_owned();
    let posted = Posted { path, head: head.clone(), body, status: String::new() };
    match posted.path.as_str() {
        "/v1/logs" => assert!(!logs(&posted).is_empty()),
        "/v1/traces" => assert!(!spans(&posted).is_empty()),
        "/v1/metrics" => assert!(!metrics(&posted).is_empty()),
        _ => panic!("{head}"),
    }
    Some(posted)
}

/// A message that is read and written again without loss.
fn read<M: Message + Default>(posted: &Posted) -> M {
    let message = M::decode(posted.body.as_slice()).expect("protobuf");
    assert_eq!(message.encode_to_vec(), posted.body, "fields that nobody knows");
    message
}

fn check(resource: Option<&Resource>) {
    let told: Vec<(&str, String)> = resource.expect("a resource").attributes.iter().map(shown).collect();
    let [("service.name", name), ("service.version", version), ("service.instance.id", instance)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((name.as_str(), version.as_str()), ("mycroft", env!("CARGO_PKG_VERSION")));
    assert!(!instance.is_empty());
}

/// Name and value.
pub(super) fn shown(attribute: &KeyValue) -> (&str, String) {
    let value = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        Value::ArrayValue(list) => format!("{} values", list.values.len()),
        other => panic!("{other:?}"),
    };
    let told = attribute.value.as_ref().and_then(|any| any.value.as_ref()).map(value);
    (&attribute.key, told.expect("a value"))
}

/// An attribute's value.
pub(super) fn of(attributes: &[KeyValue], key: &str) -> String {
    let found: Vec<String> = attributes.iter().map(shown).filter(|(name, _)| *name == key).map(|(_, v)| v).collect();
    assert_eq!(found.len(), 1, "{key} in {attributes:?}");
    found.into_iter().next().expect("one")
}

pub(super) fn logs(posted: &Posted) -> Vec<LogRecord> {
    let request: ExportLogsServiceRequest = read(posted);
    request.resource_logs.iter().for_each(|logs| check(logs.resource.as_ref()));
    request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs).flat_map(|logs| logs.log_records).collect()
}

pub(super) fn spans(posted: &Posted) -> Vec<Span> {
    let request: ExportTraceServiceRequest = read(posted);
    request.resource_spans.iter().for_each(|spans| check(spans.resource.as_ref()));
    request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans).collect()
}

pub(super) fn metrics(posted: &Posted) -> Vec<Metric> {
    let request: ExportMetricsServiceRequest = read(posted);
    request.resource_metrics.iter().for_each(|metrics| check(metrics.resource.as_ref()));
    let scopes = request.resource_metrics.into_iter().flat_map(|metrics| metrics.scope_metrics);
    scopes.flat_map(|metrics| metrics.metrics).collect()
}

/// What the definitions of OpenTelemetry's own Python package read in a POST; `None`: they are not here.
pub(super) fn by_python(posted: &Posted) -> Option<serde_json::Value> {
    let has = Command::new("python3").args(["-c", "import opentelemetry.proto"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no Python package opentelemetry-proto here (pip install opentelemetry-proto)");
        return None;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("body");
    std::fs::write(&file, &posted.body).expect("written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/otlp_reads.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(&posted.path)
        .arg(&file)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}
