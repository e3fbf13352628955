//! What the agents of many jobs would send, ready in files before anything is measured: a second of a host is one record of the bus.
use crate::job::{self, Fault};
use mycroft_bus::Entry;
use mycroft_record::{Batch, HostName, HostTime, JobName, NANOS_PER_SEC};
use mycroft_sim::{EPOCH, Scenario, Simulation};
use mycroft_wire::codec;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Recordings that differ: each is simulated from a seed of its own. Jobs beyond them have the records of one of these under other
/// names of job and hosts.
pub(crate) const DISTINCT: u32 = 4;

/// The file of one job, which is read once.
pub(crate) struct Recorded {
    pub(crate) job: JobName,
    reader: BufReader<File>,
}

/// What a host sends for one second: records that it holds, and the value on the bus.
pub(crate) struct Sent {
    pub(crate) records: u64,
    pub(crate) value: Vec<u8>,
}

struct Writing {
    job: JobName,
    writer: BufWriter<File>,
}

impl Writing {
    fn new(number: u32, folder: &Path) -> Writing {
        let job: JobName = format!("job-{number}").as_str().into();
        let writer = BufWriter::with_capacity(1 << 18, File::create(folder.join(&*job)).expect("a file"));
        Writing { job, writer }
    }

    fn put(&mut self, number: u64) {
        self.writer.write_all(&number.to_le_bytes()).expect("there is room on the disk");
    }

    /// Writes a second of all hosts, as this job's.
    fn second(&mut self, number: u64, hosts: &mut BTreeMap<HostName, Vec<Batch>>) {
        self.put(hosts.len() as u64);
        for (agent, (host, batches)) in hosts.iter_mut().enumerate() {
            let named: HostName = format!("{}-{host}", self.job).as_str().into();
            for batch in batches.iter_mut() {
                (batch.source.job, batch.source.host) = (self.job.clone(), named.clone());
            }
            let records = batches.iter().map(|batch| batch.records.len() as u64).sum();
            let sent = batches.iter().map(|batch| batch.collected_at).max().unwrap_or_default();
            let frame = codec::encode(batches).expect("within the format's limits");
            // A number of its own for each agent: it is a random one of 64 bits elsewhere.
            let agent = number_of(&self.job, agent as u64);
            let (host, software) = (named.to_string(), String::new());
            let entry = Entry { agent, machine: 0, sequence: number + 1, sent, host, software, frame };
            let value = entry.encode();
            self.put(records);
            self.put(value.len() as u64);
            self.writer.write_all(&value).expect("there is room on the disk");
        }
    }
}

/// Another number for each agent of each job.
fn number_of(job: &JobName, agent: u64) -> u64 {
    let digits: String = job.chars().filter(char::is_ascii_digit).collect();
    (digits.parse::<u64>().unwrap_or(0) + 1) << 32 | agent
}

/// Simulates healthy jobs into files of a folder. They end now: all of it is late when it is sent, as after an hour in which nobody
/// read.
pub(crate) fn make(folder: &Path, jobs: u32, ranks: u32, seconds: u32) -> Vec<Recorded> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() * NANOS_PER_SEC;
    let later = now - u64::from(seconds) * NANOS_PER_SEC - EPOCH;
    let mut written: Vec<Writing> = (0..jobs).map(|number| Writing::new(number, folder)).collect();
    for distinct in 0..DISTINCT.min(jobs) {
        let scenario = Scenario { seed: u64::from(distinct) + 1, ..job::scenario(ranks, Fault::None, seconds) };
        let mut simulation = Simulation::new(&scenario);
        let mut number = 0;
        while let Some(stretch) = simulation.next_stretch() {
            let mut hosts: BTreeMap<HostName, Vec<Batch>> = BTreeMap::new();
            for mut delivery in stretch {
                put_off(&mut delivery.batch, later);
                codec::round_to_micros(&mut delivery.batch);
                hosts.entry(delivery.batch.source.host.clone()).or_default().push(delivery.batch);
            }
            let of_it = written.iter_mut().skip(distinct as usize).step_by(DISTINCT as usize);
            of_it.for_each(|job| job.second(number, &mut hosts));
            number += 1;
        }
    }
    let recorded = |Writing { job, writer }: Writing| {
        drop(writer.into_inner().expect("there is room on the disk"));
        let reader = BufReader::with_capacity(1 << 18, File::open(folder.join(&*job)).expect("it was written"));
        Recorded { job, reader }
    };
    written.into_iter().map(recorded).collect()
}

fn put_off(batch: &mut Batch, later_ns: u64) {
    let put_off = |time: &mut HostTime| {
        if time.is_some() {
            *time = *time + later_ns;
        }
    };
    put_off(&mut batch.collected_at);
    batch.records.iter_mut().for_each(|record| record.each_time(put_off));
}

impl Recorded {
    /// How many hosts send in the next second; `None`: it is over.
    pub(crate) fn hosts(&mut self) -> Option<u64> {
        self.number()
    }

    /// What the next host sends.
    pub(crate) fn next(&mut self) -> Sent {
        let records = self.number().expect("the file is whole");
        let mut value = vec![0; self.number().expect("the file is whole") as usize];
        self.reader.read_exact(&mut value).expect("the file is whole");
        Sent { records, value }
    }

    fn number(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}
