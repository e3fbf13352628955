//! A server before the server: it has a case, and hands everything else on.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Case 12: rank 3 of the job is suspected, and nobody is sure.
pub const CASE: &str = r#"{"id": 12, "job": "gate-test", "state": "open", "what": "slowdown", "category": "gpu",
    "settled": true, "since": null, "detected_at": null, "diagnosed_at": null, "opened_at": null, "updated_at": null,
    "closed_at": null, "closed_because": "", "revisions": 0, "revised_at": null, "said_before": [],
    "suspects": [{"kind": "rank", "rank": 3, "host": "HOST", "link": null, "confidence": 0.5}], "group": null,
    "op": null, "because": [], "blast_radius": [], "do_next": [], "dumps": []}"#;

/// The address of a server that answers for cases of rank 3 on this host, and what it was told of them. What is asked besides
/// goes to `behind`, where there is one.
pub fn case_server(host: &'static str, behind: Option<String>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    let (told, posted) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (told, behind) = (told.clone(), behind.clone());
            std::thread::spawn(move || answer(stream, host, behind, &told));
        }
    });
    (address, posted)
}

fn answer(mut stream: TcpStream, host: &str, behind: Option<String>, told: &Sender<String>) {
    let request = request(&stream);
    let case = CASE.replace("HOST", host);
    let body = if request.starts_with("POST /api/v1/cases/") {
        // The test may be over.
        let _ = told.send(request);
        case
    } else if request.starts_with("GET /api/v1/cases/") {
        case
    } else if request.starts_with("GET /api/v1/report") {
        format!(
            r#"{{"job": "gate-test", "as_of": {{"ns": 0, "text": ""}}, "cases": [{case}], "transients": [], "caveats": [],
            "ranks": [], "more_ranks": 0, "iteration_ms_median": 10.0, "iterations": 9, "thresholds": []}}"#
        )
    } else {
        let mut server = TcpStream::connect(behind.expect("a server behind this one")).expect("it listens");
        let once = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        server.write_all(once.as_bytes()).expect("it listens");
        let mut said = Vec::new();
        // Who is killed says less.
        let _ = server.read_to_end(&mut said);
        let _ = stream.write_all(&said);
        return;
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + &body).as_bytes());
}

/// A request with its body.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut text, mut bytes) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
            bytes = length.trim().parse().expect("a number");
        }
        text.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; bytes];
    reader.read_exact(&mut body).expect("a body");
    text + &String::from_utf8_lossy(&body)
}
