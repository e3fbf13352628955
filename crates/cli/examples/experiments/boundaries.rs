//! Operations in captures of jobs over RDMA, held beside what the library says that it sent: `experiments PROGRAM SEED boundaries`.
use crate::curves::EPOCH_NS;
use mycroft_diagnose::flow::{Asked, Operation, Point, Rule, Shape, rejoin, segment};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, Curves, Link, MirrorMeter, Packet, Ports, WireFlow};
use mycroft_formats::{CaptureReader, CapturedPacket};
use mycroft_record::OpKind;
use mycroft_sim::Share;
use std::collections::BTreeMap;
use std::fs::{File, read_to_string};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A volume is right within a hundredth (Pulse, section 5.2, of its own segmentation).
const VOLUME_PARTS: u64 = 100;

/// A way to a receiver's queue pair.
type Way = (IpAddr, IpAddr, u32);

/// What the library sent in one operation on one way.
struct Truth {
    began_ns: u64,
    done_ns: u64,
    bytes: u64,
}

/// What is played.
const ALGORITHMS: [&str; 2] = ["ring", "tree"];
const LOSSES: [f64; 4] = [0.0, 0.005, 0.01, 0.02];
/// Iterations of six operations: 204 operations on each way.
const ITERATIONS: u32 = 34;

/// How a job's captures were cut: with the volumes of its calls, by what recurs, and with the volumes but by bytes alone, as if nothing were
/// known of what is sent again.
#[derive(Default)]
struct Job {
    payload_bytes: u64,
    again_bytes: u64,
    told: Right,
    recurring: Right,
    bytes: Right,
}

/// How often operations were cut where the library says, and how often their volume was right.
#[derive(Default)]
struct Right {
    /// Of all boundaries, and of those that are none.
    boundaries: Share,
    volumes: Share,
}

/// Plays jobs with the program `rdma_job` and prints a row for each.
pub(crate) fn print(program: &Path, seed: u64) {
    println!(
        "| ways | packets lost | sent again | boundaries | cut where calls say how much | their volumes | cut by what recurs | their volumes | bytes alone |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut all = Job::default();
    for (number, (algorithm, loss)) in ALGORITHMS.iter().flat_map(|one| LOSSES.map(|loss| (one, loss))).enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("a path that is text");
        let (seed, iterations) = ((seed + number as u64).to_string(), ITERATIONS.to_string());
        eprintln!("{algorithm}, {loss} lost, seed {seed}");
        let status = Command::new(program).args([path, algorithm, &loss.to_string(), &seed, &iterations]).status();
        assert!(status.expect("the program of the job").success(), "the job failed");
        let job = Job::of(folder.path());
        println!("| {algorithm} | {:.1} % | {}", loss * 100.0, job.row());
        all.add(&job);
    }
    println!("| all | | {}", all.row());
}

impl Job {
    /// Looks at the captures of a job.
    fn of(folder: &Path) -> Job {
        let curves = captured(folder);
        let volumes = volumes(folder);
        let mut job = Job::default();
        for (way, truth) in &truths(folder) {
            let Some(curve) = curves.get(way) else { panic!("{way:?}: in no capture") };
            job.payload_bytes += curve.exchange.payload_bytes;
            job.again_bytes += curve.exchange.again_bytes;
            let points: Vec<Point> = curve.epochs().map(point).collect();
            let asked = Rule { volumes: volumes.clone(), ..Rule::default() };
            job.told.add(truth, &segment(points.iter().copied(), EPOCH_NS, &asked), *way);
            job.recurring.add(truth, &rejoin(segment(points.iter().copied(), EPOCH_NS, &Rule::default())), *way);
            let bytes = points.iter().map(|point| (point.epoch, point.bytes));
            job.bytes.add(truth, &segment(bytes, EPOCH_NS, &asked), *way);
        }
        job
    }

    fn add(&mut self, job: &Job) {
        self.payload_bytes += job.payload_bytes;
        self.again_bytes += job.again_bytes;
        let pairs = [(&mut self.told, &job.told), (&mut self.recurring, &job.recurring), (&mut self.bytes, &job.bytes)];
        for (sum, one) in pairs {
            sum.boundaries.hits += one.boundaries.hits;
            sum.boundaries.of += one.boundaries.of;
            sum.volumes.hits += one.volumes.hits;
            sum.volumes.of += one.volumes.of;
        }
    }

    /// The cells behind the first two.
    fn row(&self) -> String {
        let again = 100.0 * self.again_bytes as f64 / self.payload_bytes.max(1) as f64;
        let [told, told_volumes, recurring, recurring_volumes, bytes] = [
            self.told.boundaries,
            self.told.volumes,
            self.recurring.boundaries,
            self.recurring.volumes,
            self.bytes.boundaries,
        ]
        .map(percent);
        let of = self.told.boundaries.of;
        format!("{again:.1} % | {of} | {told} | {told_volumes} | {recurring} | {recurring_volumes} | {bytes} |")
    }
}

fn percent(share: Share) -> String {
    let (from, to) = share.interval();
    let value = share.value().unwrap_or(0.0);
    format!("{:.2} % ({:.2} to {:.2})", 100.0 * value, 100.0 * from, 100.0 * to)
}

fn point(epoch: mycroft_flow::CurveEpoch) -> Point {
    Point { epoch: epoch.number, bytes: epoch.bytes, again_bytes: epoch.again_bytes, resumes: epoch.resumes }
}

impl Right {
    /// A boundary is right where one silence that cuts, and no other, has an end of the one operation before it and the beginning of the next
    /// one behind it.
    fn add(&mut self, truth: &[Truth], found: &[Operation], way: Way) {
        let cuts: Vec<(u64, u64)> = found.windows(2).map(|pair| (pair[0].end_ns, pair[1].start_ns)).collect();
        let is_at = |(end, start): &(u64, u64), pair: &[Truth]| {
            *end <= pair[1].began_ns + EPOCH_NS && start + EPOCH_NS >= pair[0].done_ns
        };
        let (mut right, mut used) = (0, 0);
        for pair in truth.windows(2) {
            let here = cuts.iter().filter(|cut| is_at(cut, pair)).count();
            right += u64::from(here == 1);
            used += here;
            if here != 1 {
                eprintln!("{way:?}: {here} cuts between {} and {}", pair[0].done_ns, pair[1].began_ns);
            }
        }
        let more = cuts.len() - used.min(cuts.len());
        if more > 0 {
            eprintln!("{way:?}: {more} cuts inside of operations");
        }
        self.boundaries.hits += right;
        self.boundaries.of += (truth.len().saturating_sub(1) + more) as u64;
        for one in truth {
            let is_it =
                |found: &&Operation| found.start_ns < one.done_ns + EPOCH_NS && found.end_ns + EPOCH_NS > one.began_ns;
            let bytes: Vec<u64> = found.iter().filter(is_it).map(|found| found.bytes).collect();
            let is_right = matches!(bytes[..], [bytes] if bytes.abs_diff(one.bytes) * VOLUME_PARTS <= one.bytes);
            self.volumes.hits += u64::from(is_right);
            self.volumes.of += 1;
            if !is_right {
                eprintln!("{way:?}: {bytes:?} bytes and not {} at {}", one.bytes, one.began_ns);
            }
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of a job").filter_map(Result::ok);
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == ending)).collect()
}

/// The curves of all devices, each as its own captures show it.
fn captured(folder: &Path) -> BTreeMap<Way, Curve> {
    let mut ways = BTreeMap::new();
    for path in files(folder, "pcap") {
        let (mut meter, mut curves) = (MirrorMeter::new(Grain::default(), 0, 1), Curves::default());
        let each = |captured: &CapturedPacket<'_>| {
            let link = Link::from_number(captured.link).expect("a link that is known");
            let packet = Packet::parse(link, captured.bytes, captured.wire_bytes).expect("a packet of the device");
            if let Some(until) = meter.due(captured.time_ns) {
                meter.poll(until, |key, exchange, report| curves.take(key, exchange, report));
            }
            meter.packet(captured.time_ns, captured.wire_bytes, &packet);
        };
        read(&path, each);
        meter.finish(|key, exchange, report| curves.take(key, exchange, report));
        ways.extend(curves.flows().iter().filter_map(|(key, curve)| Some((way(key)?, curve.clone()))));
    }
    ways
}

fn read(path: &Path, mut each: impl FnMut(&CapturedPacket<'_>)) {
    let (mut file, mut reader) = (File::open(path).expect("a capture"), CaptureReader::default());
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut piece).expect("a capture");
        if count == 0 {
            break;
        }
        reader.read(&piece[..count], &mut each).expect("a whole capture");
    }
    reader.end().expect("a whole capture");
}

fn way(key: &WireFlow) -> Option<Way> {
    match key.ports {
        Ports::QueuePair(number) => Some((key.source, key.destination, number)),
        Ports::Tcp { .. } => None,
    }
}

/// What the library says, by way; operations without bytes do not show.
fn truths(folder: &Path) -> BTreeMap<Way, Vec<Truth>> {
    let mut ways: BTreeMap<Way, Vec<Truth>> = BTreeMap::new();
    for path in files(folder, "sent") {
        for line in read_to_string(path).expect("lines of the library").lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [from, to, number, began, done, bytes] = words[..] else { panic!("{line}") };
            let way = (from.parse().expect(line), to.parse().expect(line), number.parse().expect(line));
            let truth =
                |bytes| Truth { began_ns: began.parse().expect(line), done_ns: done.parse().expect(line), bytes };
            let bytes: u64 = bytes.parse().expect(line);
            if bytes > 0 {
                ways.entry(way).or_default().push(truth(bytes));
            }
        }
    }
    ways
}

/// What the calls let a queue pair send, in turn.
fn volumes(folder: &Path) -> Vec<u64> {
    let volume = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, shape, bytes, ranks, channels] = words[..] else { panic!("{line}") };
        let shape = if shape == "tree" { Shape::Tree } else { Shape::Ring };
        let (bytes, ranks) = (bytes.parse().expect(line), ranks.parse().expect(line));
        let asked = Asked { kind: OpKind::from_text(kind), shape, bytes, ranks };
        asked.volume(channels.parse().expect(line)).expect("a call whose ways are known")
    };
    read_to_string(folder.join("calls")).expect("the calls").lines().map(volume).collect()
}
