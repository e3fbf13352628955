//! `/metrics`: Prometheus text format 0.0.4, base units, no label per rank or channel.
use super::Shared;
use crate::api::JobJson;
use crate::series::{BOUNDS_S, Sums};
use crate::stats::get;
use mycroft_diagnose::Part;
use mycroft_record::NANOS_PER_SEC;
use mycroft_record::text::printable;
use std::fmt::Write;

/// Seconds of a count of nanoseconds; exact enough for a graph.
fn seconds(ns: u64) -> f64 {
    ns as f64 / NANOS_PER_SEC as f64
}

/// One family: help, type, samples.
struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

fn family<'a>(out: &'a mut String, name: &'static str, kind: &str, help: &str) -> Family<'a> {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    Family { out, name }
}

impl Family<'_> {
    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) -> &mut Self {
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.out, "{}{labels} {value}", self.name);
        self
    }
}

/// A label value: what is not for print (names come from agents), and backslash, quote and newline are escaped.
fn escaped(value: &str) -> String {
    let lines = value.split('\n').map(|line| printable(line).replace('\\', "\\\\").replace('"', "\\\""));
    lines.collect::<Vec<String>>().join("\\n")
}

/// Everything.
pub(super) fn text(shared: &Shared) -> String {
    let mut out = String::new();
    server(&mut out, shared);
    ingest(&mut out, shared);
    wire(&mut out, shared);
    jobs(&mut out, shared);
    iterations(&mut out, shared);
    clocks(&mut out, shared);
    outside(&mut out, shared);
    out
}

fn server(out: &mut String, shared: &Shared) {
    let stats = &shared.stats;
    family(out, "mycroft_build_info", "gauge", "Always 1; the label says which version runs.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    family(out, "mycroft_uptime_seconds", "gauge", "Time since the server started.")
        .sample(&[], stats.started.elapsed().as_secs_f64());
    family(out, "mycroft_healthy", "gauge", "1 when /api/v1/health says ok, 0 when degraded.")
        .sample(&[], u8::from(shared.problems().is_empty()));
    family(out, "mycroft_agents_connected", "gauge", "Agents connected now.").sample(&[], shared.wire().connections);
    family(out, "mycroft_hosts_heard", "gauge", "Hosts that sent a batch within the last ten seconds.")
        .sample(&[], get(&stats.hosts_heard));
    family(out, "mycroft_tick_seconds", "summary", "Time that weighing one job took.");
    let (sum, count) = (seconds(get(&stats.tick_ns)), get(&stats.ticks));
    let _ = writeln!(out, "mycroft_tick_seconds_sum {sum}\nmycroft_tick_seconds_count {count}");
    family(out, "mycroft_engine_panics_total", "counter", "Times that the diagnosis of a job failed.")
        .sample(&[], get(&stats.engine_panics));
}

fn ingest(out: &mut String, shared: &Shared) {
    let stats = &shared.stats;
    let fill = shared.inbox.fill();
    family(out, "mycroft_ingest_batches_total", "counter", "Batches received from agents.")
        .sample(&[], get(&stats.batches));
    family(out, "mycroft_ingest_records_total", "counter", "Records received from agents.")
        .sample(&[], get(&stats.records));
    family(out, "mycroft_ingest_dropped_records_total", "counter", "Records lost in the server, by place.")
        .sample(&[("where", "queue")], fill.dropped)
        .sample(&[("where", "store")], get(&stats.dropped_store))
        .sample(&[("where", "jobs")], get(&stats.dropped_jobs))
        .sample(&[("where", "limits")], get(&stats.dropped_limits));
    family(out, "mycroft_ingest_queue_records", "gauge", "Records waiting to be diagnosed.").sample(&[], fill.records);
    family(
        out,
        "mycroft_ingest_lag_seconds",
        "gauge",
        "Largest age of a batch in the last tick, from the agent to its diagnosis.",
    )
    .sample(&[], get(&stats.lag_ms) as f64 / 1e3);
}

fn wire(out: &mut String, shared: &Shared) {
    let stats = shared.wire();
    family(out, "mycroft_wire_received_bytes_total", "counter", "Compressed bytes of frames taken from agents.")
        .sample(&[], stats.bytes);
    family(out, "mycroft_wire_frames_total", "counter", "Frames from agents, by what became of them.")
        .sample(&[("outcome", "taken")], stats.frames)
        .sample(&[("outcome", "duplicate")], stats.duplicates)
        .sample(&[("outcome", "rejected")], stats.rejected);
    family(out, "mycroft_wire_handler_panics_total", "counter", "Times that the server failed on an agent's frame.")
        .sample(&[], stats.handler_panics);
    family(out, "mycroft_wire_refused_total", "counter", "Agents' connections refused: token, version, broken rules.")
        .sample(&[], stats.refused);
    family(
        out,
        "mycroft_wire_put_out_total",
        "counter",
        "Connections put out before they had shown the token, because too many came.",
    )
    .sample(&[], stats.put_out);
    family(out, "mycroft_wire_skipped_records_total", "counter", "Records of kinds that only newer agents know.")
        .sample(&[], stats.skipped_records);
}

fn jobs(out: &mut String, shared: &Shared) {
    let jobs = shared.stats.jobs();
    family(out, "mycroft_jobs", "gauge", "Jobs being diagnosed.").sample(&[], jobs.len());
    let mut each = |name, kind, help, value: &dyn Fn(&JobJson) -> String| {
        let mut family = family(out, name, kind, help);
        for job in &jobs {
            family.sample(&[("job", &job.name)], value(job));
        }
    };
    each("mycroft_job_processes", "gauge", "Traced processes seen.", &|j| j.processes.to_string());
    each("mycroft_job_hosts", "gauge", "Hosts seen.", &|j| j.hosts.to_string());
    each("mycroft_job_records_total", "counter", "Records received of a job.", &|j| j.records.to_string());
    each("mycroft_job_lost_records_total", "counter", "Records known to be lost on the way.", &|j| j.lost.to_string());
    each("mycroft_job_last_batch_timestamp_seconds", "gauge", "When the last batch of a job arrived.", &|j| {
        seconds(j.last_seen_at.ns).to_string()
    });
    each("mycroft_job_diagnosis_running", "gauge", "0 when diagnosis was switched off after failures.", &|j| {
        u8::from(j.engine == "running").to_string()
    });
    each("mycroft_cases_open", "gauge", "Cases open now.", &|j| shared.book.open_count(Some(&j.name)).to_string());
    let mut opened = family(out, "mycroft_cases_opened_total", "counter", "Cases opened, as first judged.");
    for ((job, what, category), count) in shared.stats.opened() {
        opened.sample(&[("job", &job), ("what", what.as_str()), ("category", category.as_str())], count);
    }
}

/// Iterations and where their time goes, by job; never by rank.
fn iterations(out: &mut String, shared: &Shared) {
    let jobs = shared.stats.measured();
    let name = "mycroft_iteration_seconds";
    family(out, name, "histogram", "How long iterations of a job took.");
    for (job, sums) in &jobs {
        let (label, mut below) = (escaped(&job.name), 0);
        let bounds = BOUNDS_S.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(sums.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{job=\"{label}\",le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_sum{{job=\"{label}\"}} {}\n{name}_count{{job=\"{label}\"}} {below}", sums.sum_s);
    }
    let mut each = |name, kind, help, value: &dyn Fn(&JobJson, &Sums) -> Option<f64>| {
        let mut family = family(out, name, kind, help);
        for (job, sums) in &jobs {
            if let Some(value) = value(job, sums) {
                family.sample(&[("job", &job.name)], value);
            }
        }
    };
    let seconds = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
    let help = "How long an iteration takes now, without outliers.";
    each("mycroft_iteration_level_seconds", "gauge", help, &|job, _| seconds(job.iteration_us));
    let help = "How long an iteration takes when nothing is wrong.";
    each("mycroft_iteration_healthy_seconds", "gauge", help, &|job, _| seconds(job.healthy_iteration_us));
    let help =
        "Seconds of all ranks together by which iterations were longer than when nothing is wrong, full minutes.";
    each("mycroft_lost_rank_seconds_total", "counter", help, &|_, sums| Some(sums.lost_s));
    let help = "Seconds of all ranks together in iterations, by where they went.";
    let mut spent = family(out, "mycroft_rank_seconds_total", "counter", help);
    for (job, sums) in &jobs {
        for (part, seconds) in Part::ALL.iter().zip(sums.spent_s) {
            spent.sample(&[("job", &job.name), ("component", part.word())], seconds);
        }
    }
}

/// Hosts by name only where their clock is off, and few.
fn clocks(out: &mut String, shared: &Shared) {
    let clocks = shared.stats.clocks.json();
    family(out, "mycroft_host_clocks", "gauge", "Hosts by what is known of their clock.")
        .sample(&[("state", "right")], clocks.hosts - clocks.off - clocks.unknown)
        .sample(&[("state", "off")], clocks.off)
        .sample(&[("state", "unknown")], clocks.unknown);
    let help = "How far the clock of a host is ahead of the server's; of hosts that are off or unknown, the worst 64.";
    let mut offset = family(out, "mycroft_host_clock_offset_seconds", "gauge", help);
    for clock in &clocks.told {
        offset.sample(&[("host", &clock.host)], clock.offset_s);
    }
    let help = "The offset differs from the truth by at most so much; +Inf: nobody knows.";
    let mut bound = family(out, "mycroft_host_clock_bound_seconds", "gauge", help);
    for clock in &clocks.told {
        let seconds = clock.bound_s.map_or("+Inf".to_owned(), |seconds| seconds.to_string());
        bound.sample(&[("host", &clock.host)], seconds);
    }
}

fn outside(out: &mut String, shared: &Shared) {
    let stats = &shared.stats;
    let mut http = family(out, "mycroft_http_requests_total", "counter", "HTTP requests answered, by class of status.");
    for (class, count) in ["2xx", "3xx", "4xx", "5xx"].iter().zip(&stats.http) {
        http.sample(&[("code", class)], get(count));
    }
    family(
        out,
        "mycroft_http_refused_total",
        "counter",
        "HTTP connections put out before they had shown the token, because too many came.",
    )
    .sample(&[], get(&stats.http_refused));
    family(out, "mycroft_alerts_total", "counter", "Webhook alerts by outcome.")
        .sample(&[("outcome", "sent")], get(&stats.alerts_sent))
        .sample(&[("outcome", "failed")], get(&stats.alerts_failed))
        .sample(&[("outcome", "dropped")], get(&stats.alerts_dropped));
    let help = "Log records, spans and points of metrics for the OpenTelemetry collector, by outcome.";
    let mut otlp = family(out, "mycroft_otlp_total", "counter", help);
    for (signal, counts) in ["logs", "spans", "metrics"].iter().zip(&stats.otlp) {
        for (outcome, count) in ["sent", "failed", "dropped", "rejected"].iter().zip(counts) {
            otlp.sample(&[("signal", signal), ("outcome", outcome)], get(count));
        }
    }
}
