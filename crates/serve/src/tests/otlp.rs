//! OpenTelemetry: what a collector is told when, and that one that is away, busy or of another opinion does no harm.
use super::collector::{Collector, Posted, Reply, by_python, logs, metrics, of, ok, shown, spans};
use super::heard::hearing::Heard;
use super::*;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use serde_json::json;
use std::net::TcpListener;

fn body(record: &LogRecord) -> &str {
    match record.body.as_ref().and_then(|body| body.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// What `/metrics` counts of a signal.
fn counted(world: &World, signal: &str, outcome: &str) -> u64 {
    let text = get(world.server.http_addr(), "/metrics", &[]).body;
    let start = format!("mycroft_otlp_total{{signal=\"{signal}\",outcome=\"{outcome}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).and_then(|count| count.parse().ok()).expect("a count")
}

fn until_counted(world: &World, signal: &str, outcome: &str, count: u64) {
    let deadline = Instant::now() + PATIENCE;
    while counted(world, signal, outcome) != count {
        assert!(Instant::now() < deadline, "{signal} {outcome}: {} of {count}", counted(world, signal, outcome));
    }
}

fn acknowledge(world: &World) {
    let body = r#"{"who": "ada on desk", "text": "I look at the switch", "acknowledge": true}"#;
    let head = "POST /api/v1/cases/1/notes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    assert_eq!(raw(world.server.http_addr(), request.as_bytes()).expect("an answer").status, 200);
}

/// A hang that settled, was revised, acknowledged, and ended.
fn check_span(posted: &Posted, span: &Span, times: (u64, u64)) {
    assert_eq!((span.trace_id.len(), span.span_id.len(), span.kind), (16, 8, 1));
    assert_eq!(span.name, "hang host-thread");
    assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), times);
    let status = span.status.as_ref().expect("a status");
    assert_eq!(
        (status.code, status.message.as_str()),
        (StatusCode::Error.into(), "train hang: rank 1 on host1 or 1 more (host-thread, 90 %)")
    );
    let mut events: Vec<&str> = span.events.iter().map(|event| event.name.as_str()).collect();
    assert!(span.events.is_sorted_by_key(|event| event.time_unix_nano), "{:?}", span.events);
    events.sort_unstable();
    assert_eq!(events, ["acknowledged", "detected", "revised", "revised", "settled"]);
    if let Some(told) = by_python(posted) {
        let read = &told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(read["startTimeUnixNano"], times.0.to_string());
        assert_eq!((&read["name"], &read["status"]["code"]), (&json!("hang host-thread"), &json!("STATUS_CODE_ERROR")));
        assert_eq!(read["kind"], "SPAN_KIND_INTERNAL");
    }
}

#[test]
fn otlp_changes_of_a_case_are_log_records_and_its_end_is_a_span() {
    let collector = Collector::start(|_, _| ok());
    let world = collector.world("");
    let mut records = Vec::new();
    for (step, event) in [(OPEN, "opened"), (SETTLE, "settled"), (REVISE, "revised")] {
        world.send("train", &[step]);
        records.extend(collector.records(&[event]));
    }
    acknowledge(&world);
    records.extend(collector.records(&["acknowledged"]));
    world.send("train", &[CLOSE]);
    let closing = collector.next("/v1/logs");
    records.extend(logs(&closing));
    let ending = collector.next("/v1/traces");
    let [span] = &spans(&ending)[..] else { panic!("one case, one span") };

    let case = world.json("/api/v1/cases/1");
    let ns = |field: &str| case[field]["ns"].as_u64().expect("a time");
    let severities: Vec<_> = records.iter().map(|record| (record.severity_number, &*record.severity_text)).collect();
    assert_eq!(severities, [(17, "ERROR"), (17, "ERROR"), (17, "ERROR"), (9, "INFO"), (9, "INFO")]);
    assert!(body(&records[0]).starts_with("case 1 opened: train hang: nobody is named (unknown)."), "{records:?}");
    assert!(
        body(&records[1]).starts_with("case 1 settled: train hang: rank 1 on host1 or 1 more (network-send, 90 %).")
    );
    assert_eq!(body(&records[3]).rsplit_once(". ").expect("why").1, "ada on desk: I look at the switch.");
    assert!(body(&records[4]).ends_with(" recovered."), "{records:?}");
    assert_eq!(records[4].event_name, "mycroft.case.closed");
    for record in &records {
        assert_eq!((&record.trace_id, &record.span_id, record.flags), (&span.trace_id, &span.span_id, 1));
        assert!(record.observed_time_unix_nano >= ns("opened_at"), "{record:?}");
        assert_eq!(
            (of(&record.attributes, "mycroft.job"), of(&record.attributes, "mycroft.case")),
            ("train".into(), "1".into())
        );
    }
    let first = &records[1].attributes;
    for (key, value) in [
        ("mycroft.what", "hang"),
        ("mycroft.category", "network-send"),
        ("mycroft.suspects", "2 values"),
        ("mycroft.confidence", "0.9"),
        ("mycroft.settled", "true"),
        ("mycroft.change", "settled"),
        ("mycroft.state", "open"),
    ] {
        assert_eq!(of(first, key), value, "{key}");
    }
    assert_eq!((records[0].time_unix_nano, records[4].time_unix_nano), (ns("opened_at"), ns("closed_at")));

    check_span(&ending, span, (ns("since"), ns("closed_at")));
    if let Some(told) = by_python(&closing) {
        let record = &told["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        let words = (&record["severityNumber"], &record["eventName"], &record["body"]["stringValue"]);
        assert_eq!(words, (&json!("SEVERITY_NUMBER_INFO"), &json!("mycroft.case.closed"), &json!(body(&records[4]))));
    }
}

/// Numbers of a metric by their attributes.
fn numbers(metric: &Metric) -> Vec<(String, f64)> {
    let points = match metric.data.as_ref().expect("data") {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => {
            assert!((sum.is_monotonic, sum.aggregation_temporality) == (true, 2), "{metric:?}");
            &sum.data_points
        }
        other => panic!("{other:?}"),
    };
    let number = |point: &opentelemetry_proto::tonic::metrics::v1::NumberDataPoint| {
        let labels: Vec<String> =
            point.attributes.iter().map(|one| format!("{}={}", shown(one).0, shown(one).1)).collect();
        let value = match point.value.expect("a value") {
            number_data_point::Value::AsDouble(value) => value,
            number_data_point::Value::AsInt(value) => value as f64,
        };
        (labels.join(","), value)
    };
    points.iter().map(number).collect()
}

#[test]
fn otlp_metrics_agree_with_those_of_prometheus() {
    let collector = Collector::start(|_, _| ok());
    let world = collector.world("");
    world.send("train", &[MEASURE, OPEN]);
    world.until("/api/v1/jobs", |jobs| jobs["jobs"][0]["open_cases"] == 1);
    let text = get(world.server.http_addr(), "/metrics", &[]).body;
    let sample = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)?.parse::<f64>().ok());
    let posted = loop {
        let posted = collector.next("/v1/metrics");
        if metrics(&posted).iter().any(|metric| metric.name == "mycroft.iteration.level") {
            break posted;
        }
    };
    let told = metrics(&posted);
    let named = |name: &str| told.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
    let Some(Data::Histogram(histogram)) = &named("mycroft.iteration").data else { panic!("{told:?}") };
    let [point] = &histogram.data_points[..] else { panic!("one job: {histogram:?}") };
    assert_eq!((histogram.aggregation_temporality, &*named("mycroft.iteration").unit), (2, "s"));
    assert_eq!(Some(point.count as f64), sample(r#"mycroft_iteration_seconds_count{job="train"} "#));
    assert_eq!(point.sum, sample(r#"mycroft_iteration_seconds_sum{job="train"} "#));
    assert_eq!((point.explicit_bounds.len() + 1, point.count), (point.bucket_counts.len(), 720));
    let mut below = 0;
    for (bound, count) in
        point.explicit_bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(&point.bucket_counts)
    {
        below += count;
        let start = format!("mycroft_iteration_seconds_bucket{{job=\"train\",le=\"{bound}\"}} ");
        assert_eq!(Some(below as f64), sample(&start), "{start}");
    }
    let first_seen = world.json("/api/v1/jobs")["jobs"][0]["first_seen_at"]["ns"].as_u64().expect("a time");
    assert_eq!(point.start_time_unix_nano, first_seen, "it is younger than the server");
    assert!(point.time_unix_nano > first_seen);
    for (name, prometheus) in [
        ("mycroft.iteration.level", "mycroft_iteration_level_seconds"),
        ("mycroft.iteration.healthy", "mycroft_iteration_healthy_seconds"),
        ("mycroft.lost.rank", "mycroft_lost_rank_seconds_total"),
        ("mycroft.cases.open", "mycroft_cases_open"),
    ] {
        let value = sample(&format!("{prometheus}{{job=\"train\"}} ")).expect("a sample");
        assert_eq!(numbers(named(name)), [("mycroft.job=train".to_owned(), value)], "{name}");
    }
    assert_eq!(numbers(named("mycroft.agents.connected")), [(String::new(), 0.0)]);
    let spent = numbers(named("mycroft.rank"));
    assert_eq!(spent.len(), 6, "{spent:?}");
    for (labels, value) in spent {
        let component = labels.strip_prefix("mycroft.job=train,mycroft.component=").expect("two labels");
        let start = format!("mycroft_rank_seconds_total{{job=\"train\",component=\"{component}\"}} ");
        assert_eq!(Some(value), sample(&start), "{start}");
    }
    if let Some(read) = by_python(&posted) {
        let all = read["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
        let one = all.iter().find(|metric| metric["name"] == "mycroft.iteration").expect("iterations");
        let read = &one["histogram"]["dataPoints"][0];
        let counts: Vec<String> = point.bucket_counts.iter().map(u64::to_string).collect();
        assert_eq!((&read["count"], &read["bucketCounts"]), (&json!("720"), &json!(counts)), "{read}");
        assert_eq!(one["histogram"]["aggregationTemporality"], "AGGREGATION_TEMPORALITY_CUMULATIVE");
        assert_eq!(read["startTimeUnixNano"], first_seen.to_string());
    }
}

#[test]
fn otlp_a_busy_collector_gets_a_record_once_and_one_that_refuses_is_not_asked_again() {
    let collector = Collector::start(|path, before| match (path, before) {
        ("/v1/logs", 0) => Reply("503 Service Unavailable", "Retry-After: 0\r\n", Vec::new()),
        ("/v1/logs", 1) => Reply("429 Too Many Requests", "Retry-After: 0\r\n", Vec::new()),
        ("/v1/logs", 3) => Reply("400 Bad Request", "", Vec::new()),
        ("/v1/traces", 0) => Reply("500 Internal Server Error", "", Vec::new()),
        _ => ok(),
    });
    let world = collector.world("");
    world.send("train", &[OPEN]);
    let tries = [(); 3].map(|()| collector.next("/v1/logs"));
    let statuses = tries.each_ref().map(|posted| &posted.status[..3]);
    assert_eq!(statuses, ["503", "429", "200"]);
    assert!(tries.iter().all(|posted| posted.body == tries[0].body), "the same each time");
    world.send("train", &[SETTLE]);
    let refused = collector.next("/v1/logs");
    assert_eq!((&logs(&refused)[0].event_name[..], &refused.status[..3]), ("mycroft.case.settled", "400"));
    world.send("train", &[CLOSE]);
    collector.records(&["closed"]);
    assert_eq!(&collector.next("/v1/traces").status[..3], "500");
    until_counted(&world, "spans", "failed", 1);
    assert_eq!(["sent", "failed", "dropped", "rejected"].map(|outcome| counted(&world, "logs", outcome)), [2, 1, 0, 0]);
    assert_eq!(counted(&world, "spans", "sent"), 0);
}

/// Whether who sent a request still waits for its answer.
fn waits(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a mode");
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn otlp_a_collector_that_is_away_costs_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    // One that takes connections and never answers, then one that is not there at all.
    for listener in [Some(taken), None] {
        let world = World::start(ServeConfig { otlp: Some(format!("http://{address}/")), ..quick() });
        world.send("train", &[OPEN]);
        let stuck = listener.as_ref().map(|listener| listener.accept().expect("the server posts"));
        world.send("train", &[SETTLE, CLOSE]);
        world.server.wait_for_case(PATIENCE, |case| case.state == crate::BookState::Closed).expect("diagnosis goes on");
        if let Some((stream, _)) = &stuck {
            assert!(waits(stream), "diagnosis waited until the first try was given up");
        }
        let stopped = Instant::now();
        drop(listener);
        world.server.stop();
        // The try that is under way takes five seconds at most; there are no pauses, and no more tries.
        assert!(stopped.elapsed() < Duration::from_secs(10), "took {:?}", stopped.elapsed());
        drop(stuck);
    }
}

#[test]
fn otlp_the_oldest_records_are_dropped_and_counted_when_too_many_wait() {
    let (go_on, told) = channel::<()>();
    let collector = Collector::start(move |path, before| {
        if (path, before) == ("/v1/logs", 0) {
            let _ = told.recv_timeout(PATIENCE);
            return Reply("400 Bad Request", "", Vec::new());
        }
        ok()
    });
    let world = collector.world("");
    world.send("train", &[OPEN]);
    world.until("/api/v1/cases", |cases| cases["cases"][0]["id"] == 1);
    // The collector sits on the first record while 600 cases come and go, each of which is a change or two.
    for _ in 0..20 {
        world.send("train", &[[OPEN, CLOSE]; 30].concat());
    }
    world.server.wait_for_case(PATIENCE, |case| case.number == 601 && !case.is_open()).expect("the last case");
    go_on.send(()).expect("the collector waits");
    let mut last = String::new();
    while last != "601" {
        let record = logs(&collector.next("/v1/logs")).pop().expect("records");
        last = of(&record.attributes, "mycroft.case");
    }
    // The first was refused, or given up and taken at the next try, where this machine is slow.
    let deadline = Instant::now() + PATIENCE;
    while counted(&world, "logs", "sent") + counted(&world, "logs", "failed") != 501 {
        assert!(Instant::now() < deadline, "{} sent", counted(&world, "logs", "sent"));
    }
    let lost = counted(&world, "logs", "dropped");
    assert!(lost >= 100, "{lost} dropped");
}

#[test]
fn otlp_what_a_collector_rejects_is_counted_and_told_once() {
    let partial = ExportLogsPartialSuccess { rejected_log_records: 1, error_message: "too \u{1b}[2J old".to_owned() };
    let answer = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let collector = Collector::start(move |path, _| match path {
        "/v1/logs" => Reply("200 OK", "", answer.clone()),
        _ => ok(),
    });
    let heard = Heard::default();
    let world = heard.during(|| collector.world(""));
    for (step, event) in [(OPEN, "opened"), (SETTLE, "settled")] {
        world.send("train", &[step]);
        collector.records(&[event]);
    }
    until_counted(&world, "logs", "rejected", 2);
    assert_eq!(counted(&world, "logs", "sent"), 0);
    world.server.stop();
    let lines = heard.lines();
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("did not take")).collect();
    let [line] = told[..] else { panic!("{lines:?}") };
    assert!(line.contains("did not take 1 log records: too") && !line.contains('\u{1b}'), "{line}");
}

#[test]
fn otlp_headers_reach_the_collector_and_no_log() {
    let collector = Collector::start(|_, _| Reply("401 Unauthorized", "", Vec::new()));
    let heard = Heard::default();
    let headers = "Authorization: Bearer s3cret-key\nX-Scope-OrgID: s3cret-tenant\n";
    let mut config = collector.config(headers);
    config.otlp = config.otlp.map(|url| url.replace("http://", "http://user:s3cret@"));
    assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
    let world = heard.during(|| World::start(config));
    world.send("train", &[OPEN]);
    let posted = collector.next("/v1/logs");
    let lower = posted.head.to_ascii_lowercase();
    assert!(lower.contains("\r\nx-scope-orgid: s3cret-tenant\r\n"), "{lower}");
    assert!(lower.contains("\r\nauthorization: bearer s3cret-key\r\n"), "{lower}");
    collector.next("/v1/metrics");
    until_counted(&world, "logs", "failed", 1);
    world.server.stop();
    let lines = heard.lines().join("\n");
    assert!(lines.contains("1 log records were not delivered: the collector answered 401"), "{lines}");
    assert!(!lines.contains("s3cret"), "{lines}");
}
