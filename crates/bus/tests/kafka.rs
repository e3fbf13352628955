//! Frames through brokers: those of librdkafka, inside this process.
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::kafka::{KafkaTopic, way};
use mycroft_bus::{BusSecurity, Entry, Fetched, Topic, partition_of};
use mycroft_record::{Batch, HostTime, Record, Source, StepMark};
use mycroft_wire::{Carrier, ClientConfig, WireError, codec};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Readers that give up at once: of so many some meet the moment at which a client is still leaving the place before.
const GIVEN_UP: u32 = 50;

fn frame(job: &str, step: u64) -> Vec<u8> {
    let source = Source { job: job.into(), host: "host0".into(), process: None };
    let at = HostTime(step * 1000);
    let records = vec![Record::StepMark(StepMark { at, step })];
    codec::encode(&[Batch { source, collected_at: at, records }]).expect("it fits")
}

fn agent(brokers: &MockBrokers) -> Box<dyn Carrier> {
    let config =
        ClientConfig { host: "host0".to_owned(), send_timeout: Duration::from_millis(50), ..ClientConfig::default() };
    way(brokers.address(), &BusSecurity::default()).connect(&config).expect("a broker")
}

fn topic(brokers: &MockBrokers) -> KafkaTopic {
    KafkaTopic::new(brokers.address(), &BusSecurity::default()).expect("a topic")
}

/// Everything that is in a partition.
fn whole(topic: &KafkaTopic, partition: u32) -> Vec<Fetched> {
    let mut part = topic.part(partition).expect("a partition");
    let begin = part.begin(HostTime(1)).expect("a broker");
    let mut out: Vec<Fetched> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while out.last().map_or(begin.from, |last| last.offset + 1) < begin.end {
        assert!(Instant::now() < deadline, "{} of {begin:?}", out.len());
        out.extend(part.next(Duration::from_millis(100)).expect("read"));
    }
    out
}

fn steps(records: &[Fetched]) -> Vec<u64> {
    let of = |record: &Fetched| {
        let frame = Entry::decode(&record.value).expect("a record").frame;
        codec::decode(&frame).expect("a frame").batches[0].collected_at.0 / 1000
    };
    records.iter().map(of).collect()
}

#[test]
fn frames_of_a_job_are_in_its_partition_in_their_order_and_as_they_were() {
    let brokers = MockBrokers::start("mycroft", 4);
    let mut agent = agent(&brokers);
    let jobs: Vec<String> = (0..6).map(|job| format!("train-{job}")).collect();
    for step in 1..=20 {
        for job in &jobs {
            agent.send_frame(&frame(job, step)).expect("room");
            agent.flush(PATIENCE).expect("taken");
        }
    }
    assert_eq!((agent.unacknowledged(), agent.take_rejected().len()), (121..121, 0));
    let topic = topic(&brokers);
    assert_eq!(topic.partitions(), Ok(4));
    let mut found: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for partition in 0..4 {
        let (mut sequence, mut agents) = (0, Vec::new());
        for record in whole(&topic, partition) {
            let job = String::from_utf8(record.key).expect("a name");
            let entry = Entry::decode(&record.value).expect("a record");
            assert_eq!(partition_of(&job, 4), partition, "{job}");
            assert!(entry.sequence > sequence && entry.host == "host0" && entry.sent.is_some() && record.at.is_some());
            sequence = entry.sequence;
            agents.push(entry.agent);
            found.entry(job).or_default().push(entry.frame);
        }
        agents.dedup();
        assert!(agents.len() < 2, "one agent sent all of it");
    }
    let wanted = |job: &String| (job.clone(), (1..=20).map(|step| frame(job, step)).collect());
    assert_eq!(found, jobs.iter().map(wanted).collect());
}

#[test]
fn what_waits_for_brokers_that_are_away_is_taken_when_they_are_back_and_the_rest_stays_with_the_agent() {
    let brokers = MockBrokers::start("mycroft", 1);
    let mut agent = agent(&brokers);
    agent.send_frame(&frame("train", 1)).expect("room");
    agent.flush(PATIENCE).expect("taken");
    brokers.down();
    let mut step = 2;
    let refused = loop {
        match agent.send_frame(&frame("train", step)) {
            Ok(()) => step += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, WireError::NoCredit { .. }), "{refused}");
    assert_eq!(agent.unacknowledged(), 2..step, "what was taken is held until a broker has it");
    let away = loop {
        if let Err(error) = agent.poll() {
            break error.to_string();
        }
    };
    assert!(away.contains("kafka://127.0.0.1:") && away.contains("/mycroft: "), "{away}");
    assert!(agent.reconnect().is_err());
    brokers.up();
    while agent.reconnect().is_err() {}
    agent.send_frame(&frame("train", step)).or_else(|_| agent.flush(PATIENCE)).expect("room, or soon");
    agent.flush(PATIENCE).expect("taken");
    let found = steps(&whole(&topic(&brokers), 0));
    assert_eq!(found[..found.len().min(step as usize - 1)], (1..step).collect::<Vec<_>>());
}

#[test]
fn a_connection_that_is_cut_while_records_are_written_loses_none_and_doubles_none() {
    let brokers = MockBrokers::start("mycroft", 1);
    let mut agent = agent(&brokers);
    for step in 1..=40 {
        if step % 10 == 0 {
            brokers.cut_writes(1);
        }
        agent.send_frame(&frame("train", step)).expect("room");
        agent.flush(PATIENCE).expect("taken");
    }
    assert_eq!(steps(&whole(&topic(&brokers), 0)), (1..=40).collect::<Vec<_>>());
}

/// A client that gave a record up is replaced, and what it held keeps its numbers, so that whoever reads knows it again.
#[test]
fn what_a_client_gave_up_is_sent_again_by_another_with_the_same_numbers() {
    let brokers = MockBrokers::start("mycroft", 1);
    let mut agent = agent(&brokers);
    agent.send_frame(&frame("train", 1)).expect("room");
    agent.flush(PATIENCE).expect("taken");
    brokers.refuse_writes(1);
    (2..=3).for_each(|step| agent.send_frame(&frame("train", step)).expect("room"));
    let refused = agent.flush(PATIENCE).expect_err("it is told");
    assert!(refused.to_string().contains("/mycroft: "), "{refused}");
    assert!(agent.unacknowledged().contains(&3), "{:?}", agent.unacknowledged());
    let deadline = Instant::now() + PATIENCE;
    while agent.reconnect().and_then(|()| agent.flush(PATIENCE)).is_err() {
        assert!(Instant::now() < deadline, "never taken");
    }
    assert_eq!((agent.unacknowledged(), agent.take_rejected().len()), (4..4, 0));
    let found = whole(&topic(&brokers), 0);
    let numbered: BTreeMap<u64, u64> = found
        .iter()
        .zip(steps(&found))
        .map(|(record, step)| (step, Entry::decode(&record.value).expect("a record").sequence))
        .collect();
    assert_eq!(numbered, BTreeMap::from([(1, 1), (2, 2), (3, 3)]));
}

#[test]
fn a_topic_that_is_not_there_is_told_and_not_made() {
    let brokers = MockBrokers::start("mycroft", 1);
    let address = format!("kafka://{}/other", brokers.address().brokers().join(","));
    let address = address.parse().expect("an address");
    let refused = KafkaTopic::new(&address, &BusSecurity::default()).expect("settings").partitions();
    let refused = refused.expect_err("no topic").to_string();
    assert!(refused.contains("/other") && refused.contains("make"), "{refused}");
    let refused = way(&address, &BusSecurity::default()).connect(&ClientConfig::default()).map(|_| ());
    let refused = refused.expect_err("no topic").to_string();
    assert!(refused.contains("/other") && refused.contains("make it first"), "{refused}");
}

#[test]
fn reading_begins_where_nothing_is_kept_yet_and_goes_back_for_the_last_minutes() {
    let brokers = MockBrokers::start("mycroft", 1);
    let mut agent = agent(&brokers);
    (1..=10).for_each(|step| agent.send_frame(&frame("train", step)).expect("room"));
    agent.flush(PATIENCE).expect("taken");
    let topic = topic(&brokers);
    let mut part = topic.part(0).expect("a partition");
    let far = HostTime(u64::MAX / 2);
    let begin = |part: &mut Box<dyn mycroft_bus::Part>, since| {
        let begin = part.begin(since).expect("a broker");
        (begin.from, begin.kept, begin.end)
    };
    assert_eq!(begin(&mut part, far), (0, 0, 10), "nobody has kept anything");
    part.keep(7).expect("noted");
    let deadline = Instant::now() + PATIENCE;
    while begin(&mut part, far) != (7, 7, 10) {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(begin(&mut part, HostTime(1)), (0, 7, 10), "all of it is of the last minutes");
    let mut other = topic.part(0).expect("a partition");
    assert_eq!(begin(&mut other, far), (7, 7, 10), "another server reads the same");
    let next = loop {
        if let Some(record) = other.next(Duration::from_millis(100)).expect("read") {
            break record.offset;
        }
    };
    assert_eq!(next, 7);
}

/// As where the database is away when a server has just found where to begin. A client that is told twice where to read, and ended at
/// once, may end the whole process.
#[test]
fn who_begins_and_gives_up_at_once_again_and_again_does_no_harm() {
    let brokers = MockBrokers::start("mycroft", 1);
    let mut agent = agent(&brokers);
    (1..=10).for_each(|step| agent.send_frame(&frame("train", step)).expect("room"));
    agent.flush(PATIENCE).expect("taken");
    let topic = topic(&brokers);
    for _ in 0..GIVEN_UP {
        let mut part = topic.part(0).expect("a partition");
        assert_eq!(part.begin(HostTime(1)).expect("a broker").end, 10);
        part.go_to(5).expect("a place");
    }
    assert_eq!(steps(&whole(&topic, 0)).len(), 10);
}
