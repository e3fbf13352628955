//! Iterations of jobs and where their time goes as metrics: cumulative, by job, never by rank.
use super::values::text;
use crate::api::JobJson;
use crate::series::{BOUNDS_S, Sums};
use mycroft_diagnose::Part;
use mycroft_record::HostTime;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

/// A job as it is measured.
pub(super) struct MeasuredJob {
    pub(super) job: JobJson,
    pub(super) sums: Sums,
    pub(super) open_cases: u64,
}

/// The server as it is measured.
pub(super) struct Measurement {
    /// When it started.
    pub(super) started: HostTime,
    pub(super) now: HostTime,
    pub(super) agents: u64,
    pub(super) jobs: Vec<MeasuredJob>,
}

impl Measurement {
    /// Every metric that has a point. Names and units are such that Prometheus' translation gives those of `/metrics`.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let seconds = |us: Option<u64>| us.map(|us| Value::AsDouble(us as f64 / 1e6));
        let agents = self.point(None, Vec::new(), Value::AsInt(self.agents.cast_signed()));
        let connected = Data::Gauge(Gauge { data_points: vec![agents] });
        let all = [
            metric("mycroft.agents.connected", "{agent}", "Agents connected now.", connected),
            self.iterations(),
            self.gauge(
                "mycroft.iteration.level",
                "s",
                "How long an iteration takes now, without outliers.",
                |measured| seconds(measured.job.iteration_us),
            ),
            self.gauge(
                "mycroft.iteration.healthy",
                "s",
                "How long an iteration takes when nothing is wrong.",
                |measured| seconds(measured.job.healthy_iteration_us),
            ),
            self.gauge("mycroft.cases.open", "{case}", "Cases open now.", |measured| {
                Some(Value::AsInt(measured.open_cases.cast_signed()))
            }),
            self.lost(),
            self.spent(),
        ];
        all.into_iter().filter(|metric| points(metric) > 0).collect()
    }

    /// Of counters: since when they count. A job that comes back after it was forgotten counts anew.
    fn begun(&self, measured: &MeasuredJob) -> HostTime {
        self.started.max(HostTime(measured.job.first_seen_at.ns)).min(self.now)
    }

    fn point(&self, since: Option<HostTime>, attributes: Vec<KeyValue>, value: Value) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            start_time_unix_nano: since.map_or(0, |since| since.0),
            time_unix_nano: self.now.0,
            value: Some(value),
            ..NumberDataPoint::default()
        }
    }

    fn gauge(&self, name: &str, unit: &str, help: &str, value: impl Fn(&MeasuredJob) -> Option<Value>) -> Metric {
        let point = |measured: &MeasuredJob| Some(self.point(None, vec![job(measured)], value(measured)?));
        metric(name, unit, help, Data::Gauge(Gauge { data_points: self.jobs.iter().filter_map(point).collect() }))
    }

    fn iterations(&self) -> Metric {
        let point = |measured: &MeasuredJob| HistogramDataPoint {
            attributes: vec![job(measured)],
            start_time_unix_nano: self.begun(measured).0,
            time_unix_nano: self.now.0,
            count: measured.sums.count,
            sum: Some(measured.sums.sum_s),
            bucket_counts: measured.sums.counts.to_vec(),
            explicit_bounds: BOUNDS_S.to_vec(),
            ..HistogramDataPoint::default()
        };
        let data_points = self.jobs.iter().map(point).collect();
        let histogram = Histogram { data_points, aggregation_temporality: AggregationTemporality::Cumulative.into() };
        metric("mycroft.iteration", "s", "How long iterations of a job took.", Data::Histogram(histogram))
    }

    fn lost(&self) -> Metric {
        let point = |measured: &MeasuredJob| {
            self.point(Some(self.begun(measured)), vec![job(measured)], Value::AsDouble(measured.sums.lost_s))
        };
        let help =
            "Seconds of all ranks together by which iterations were longer than when nothing is wrong, full minutes.";
        metric("mycroft.lost.rank", "s", help, sum(self.jobs.iter().map(point).collect()))
    }

    fn spent(&self) -> Metric {
        let parts = |measured: &MeasuredJob| {
            let (since, job) = (self.begun(measured), job(measured));
            let spent = Part::ALL.iter().zip(measured.sums.spent_s);
            let point = |(part, seconds): (&Part, f64)| {
                let attributes = vec![job.clone(), text("mycroft.component", part.word())];
                self.point(Some(since), attributes, Value::AsDouble(seconds))
            };
            spent.map(point).collect::<Vec<_>>()
        };
        let help = "Seconds of all ranks together in iterations, by where they went.";
        metric("mycroft.rank", "s", help, sum(self.jobs.iter().flat_map(parts).collect()))
    }
}

/// Points of a metric.
pub(super) fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        _ => 0,
    }
}

fn job(measured: &MeasuredJob) -> KeyValue {
    text("mycroft.job", &measured.job.name)
}

fn sum(data_points: Vec<NumberDataPoint>) -> Data {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
}

fn metric(name: &str, unit: &str, description: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: description.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}
