//! The collector: where telemetry is posted, in which envelope, and what it answers.
use super::headers::OtlpHeaders;
use super::values::text;
use crate::post::{Answer, Outcome, agent, post, tries};
use mycroft_record::text::printable_within;
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use std::time::Duration;

/// Longest pause that a collector may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Most of an answer that is read: a count and a sentence.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// What is sent; the number of its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    Logs = 0,
    Spans = 1,
    Metrics = 2,
}

impl Signal {
    /// Below the endpoint.
    fn path(self) -> &'static str {
        match self {
            Signal::Logs => "/v1/logs",
            Signal::Spans => "/v1/traces",
            Signal::Metrics => "/v1/metrics",
        }
    }

    /// For people.
    pub(super) fn word(self) -> &'static str {
        match self {
            Signal::Logs => "log records",
            Signal::Spans => "spans",
            Signal::Metrics => "metrics",
        }
    }
}

/// What a collector did not take of what it took.
#[derive(Default)]
pub(super) struct Rejected {
    pub(super) count: u64,
    /// Why; printable.
    pub(super) why: String,
}

impl Rejected {
    /// That something is missing, or a warning.
    pub(super) fn says_something(&self) -> bool {
        self.count > 0 || !self.why.is_empty()
    }
}

/// Where to post, as whom.
pub(super) struct Collector {
    endpoint: String,
    headers: OtlpHeaders,
    agent: ureq::Agent,
    resource: Resource,
    scope: InstrumentationScope,
}

impl Collector {
    /// A collector; `run` tells this run of the server from others.
    pub(super) fn new(endpoint: &str, headers: &OtlpHeaders, run: u64) -> Collector {
        let (name, version) = ("mycroft", env!("CARGO_PKG_VERSION"));
        let attributes = vec![
            text("service.name", name),
            text("service.version", version),
            text("service.instance.id", &format!("{:x}", run)),
        ];
        Collector {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            headers: headers.clone(),
            agent: agent(),
            resource: Resource { attributes, ..Resource::default() },
            scope: InstrumentationScope { name: name.to_owned(), version: version.to_owned(), ..Default::default() },
        }
    }

    /// Posts log records; `pause` waits between tries and says whether to go on.
    ///
    /// # Errors
    /// Why they were not delivered; so all three.
    pub(super) fn logs(
        &self,
        records: Vec<LogRecord>,
        pause: impl FnMut(Duration) -> bool,
    ) -> Result<Rejected, String> {
        let scope_logs =
            vec![ScopeLogs { scope: Some(self.scope.clone()), log_records: records, ..Default::default() }];
        let resource_logs =
            vec![ResourceLogs { resource: Some(self.resource.clone()), scope_logs, ..Default::default() }];
        self.deliver(Signal::Logs, &ExportLogsServiceRequest { resource_logs }, pause)
    }

    /// Posts spans.
    pub(super) fn spans(&self, spans: Vec<Span>, pause: impl FnMut(Duration) -> bool) -> Result<Rejected, String> {
        let scope_spans = vec![ScopeSpans { scope: Some(self.scope.clone()), spans, ..Default::default() }];
        let resource_spans =
            vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans, ..Default::default() }];
        self.deliver(Signal::Spans, &ExportTraceServiceRequest { resource_spans }, pause)
    }

    /// Posts metrics, once: there are newer ones soon.
    pub(super) fn metrics(&self, metrics: Vec<Metric>) -> Result<Rejected, String> {
        let scope_metrics = vec![ScopeMetrics { scope: Some(self.scope.clone()), metrics, ..Default::default() }];
        let resource_metrics =
            vec![ResourceMetrics { resource: Some(self.resource.clone()), scope_metrics, ..Default::default() }];
        self.deliver(Signal::Metrics, &ExportMetricsServiceRequest { resource_metrics }, |_| false)
    }

    fn deliver(
        &self,
        signal: Signal,
        request: &impl Message,
        pause: impl FnMut(Duration) -> bool,
    ) -> Result<Rejected, String> {
        let body = request.encode_to_vec();
        tries(|| self.once(signal, &body), pause).map(rejected)
    }

    fn once(&self, signal: Signal, body: &[u8]) -> Outcome {
        let url = format!("{}{}", self.endpoint, signal.path());
        let mut request = self.agent.post(&url).header("Content-Type", "application/x-protobuf");
        for (name, value) in self.headers.lines() {
            request = request.header(name, value);
        }
        match post(request, body) {
            Ok(answer) => match answer.status().as_u16() {
                200..=299 => Outcome::Delivered(answer),
                status @ (429 | 502..=504) => {
                    Outcome::TryAgain(format!("the collector answered {status}"), retry_after(&answer))
                }
                status => Outcome::Refused(format!("the collector answered {status}; check its address and headers")),
            },
            Err(why) => Outcome::TryAgain(why, None),
        }
    }
}

/// When it may be tried again, where the collector says it in seconds.
fn retry_after(answer: &Answer) -> Option<Duration> {
    let seconds = answer.headers().get("Retry-After")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// Answers about logs, spans and metrics are the same bytes: a count and a text. What cannot be read says that all was taken.
fn rejected(mut answer: Answer) -> Rejected {
    let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().unwrap_or_default();
    let partial = ExportLogsServiceResponse::decode(bytes.as_slice()).ok().and_then(|answer| answer.partial_success);
    partial.map_or_else(Rejected::default, |partial| Rejected {
        count: u64::try_from(partial.rejected_log_records).unwrap_or(0),
        why: printable_within(&partial.error_message, 200).to_string(),
    })
}
