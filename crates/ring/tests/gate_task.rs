//! Tasks over the words of a gate: who takes them, and what hostile or torn words do; and meetings of a pair, where however
//! both are driven each round takes place for both or for neither.
use mycroft_ring::gate::ask::{Asker, Until};
use mycroft_ring::gate::meeting::{Meeting, Met, Side};
use mycroft_ring::gate::task::{Answer, Ending, Kind, Place, Remote, Task, Times, Way};
use mycroft_ring::gate::words::{GATE_WORDS, gate, task};
use mycroft_ring::gate::{Gate, page};
use mycroft_ring::source::WordSource;
use mycroft_ring::sync::AtomicU64;
use mycroft_ring::{SegmentConfig, SegmentWriter};
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

const UNTIL: Until = Until { deadline_ns: 1_000, lease_ns: 1_000 };

fn words() -> Vec<AtomicU64> {
    (0..GATE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

fn asker(words: &[AtomicU64]) -> Asker<WordSource<'_, AtomicU64>> {
    Asker::new(WordSource(words), 0, GATE_WORDS)
}

const WAY: Way = Way { comm: 9, peer: 3, place: Place::Other(77, 5), bytes: 4096, patience_ns: 1_000 };

#[test]
fn a_task_is_taken_once_and_its_end_is_read() {
    let words = words();
    let mut asker = asker(&words);
    let rank = Gate::over(&words).expect("enough");
    asker.ask(UNTIL, 1).expect("inside");
    let epoch = rank.arrive().expect("asked").epoch();
    let far = |place| Kind::Pair(Way { place, ..WAY });
    let remote = Remote { address: Ipv6Addr::new(1, 2, 3, 4, 5, 6, 7, 8), nonce: u64::MAX };
    let pairs = [
        (7, Kind::Pair(WAY)),
        (8, far(Place::Own)),
        (9, far(Place::Accept(remote))),
        (10, far(Place::Connect(remote, u16::MAX))),
    ];
    let alone = [(1, Kind::Device), (2, Kind::Processor), (3, Kind::Host), (4, Kind::Copy)];
    for (number, kind) in alone.into_iter().chain(pairs) {
        rank.set_able(false);
        asker.order(number, kind).expect("inside");
        assert_eq!(rank.task(epoch), None, "a library that runs none");
        rank.set_able(true);
        let task = rank.task(epoch).expect("ordered");
        assert_eq!(task, Task { number, kind });
        assert!(rank.take(&task) && !rank.take(&task) && rank.task(epoch).is_none(), "once");
        assert!(asker.progress().expect("inside").ended.0 < number);
        let values = [1, 2, 3, 4].map(|n| Times { fastest_ns: n * number, median_ns: 9 * n * number });
        let answer = Answer { ending: Ending::Done, values };
        rank.end(&task, &answer);
        let progress = asker.progress().expect("inside");
        assert_eq!((progress.ended, progress.newest, progress.is_able), ((number, answer), number, true));
    }
    rank.set_port(10, u16::MAX);
    assert_eq!(asker.port().expect("inside"), (10, u16::MAX));
    // One that nobody took is not for the next request.
    asker.order(18, Kind::Device).expect("inside");
    asker.release().expect("inside");
    asker.ask(UNTIL, 2).expect("inside");
    let epoch = rank.arrive().expect("asked").epoch();
    assert_eq!(rank.task(epoch), None);
    assert_eq!(asker.progress().expect("inside").newest, 18, "and its number is not used again");
    asker.order(18, Kind::Device).expect("inside");
    assert!(rank.task(epoch).is_some());
}

#[test]
fn hostile_words_of_a_task_have_limits() {
    let words = words();
    let rank = Gate::over(&words).expect("enough");
    rank.set_able(true);
    let word = |at: usize| &words[at - gate::GRANT];
    for at in task::NUMBER..=task::PATIENCE {
        word(at).store(u64::MAX, Relaxed);
    }
    assert_eq!(rank.task(u32::MAX), None, "no such kind");
    word(task::WHAT).store(u64::from(u32::MAX) << 32 | 5, Relaxed);
    assert_eq!(rank.task(u32::MAX), None, "no such place");
    word(task::PEER).store(3 << 32, Relaxed);
    assert_eq!(rank.task(u32::MAX), None, "no such port");
    word(task::PEER).store(2 << 32, Relaxed);
    let Some(Task { kind: Kind::Pair(way), .. }) = rank.task(u32::MAX) else { panic!("a pair") };
    assert!(way.bytes <= 4 << 20 && way.patience_ns <= 6_000_000_000, "{way:?}");
}

#[test]
fn a_guest_finds_the_keeper_s_words_by_the_requester_s_descriptor() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = SegmentConfig {
        dir: dir.path(),
        size_bytes: 1 << 18,
        job: "job",
        host: "host",
        rank: 0,
        world_size: 2,
        local_rank: 0,
        gpu: -1,
    };
    let writer = SegmentWriter::create(&config).expect("a segment");
    let path = mycroft_ring::segment::list(dir.path()).expect("readable").remove(0);
    let open = |path: &std::path::Path| std::fs::OpenOptions::new().read(true).write(true).open(path).expect("ours");
    let (file, other) = (open(&path), tempfile::tempfile().expect("a file"));
    let visit = |file: &std::fs::File| page::Visit::open(std::process::id(), file.as_raw_fd().unsigned_abs());
    let there = visit(&file).expect("a segment");
    let guest = Gate::over(there.words()).expect("enough").meeting(3, Side::Guest).expect("a place");
    assert_eq!(guest.come(0), Met::Alone);
    let own = page::of_words(writer.words()).expect("a header");
    assert_eq!(Gate::over(own).expect("enough").meeting(3, Side::Keeper).expect("a place").come(0), Met::Both);
    assert_eq!(guest.look(0), Met::Both);
    other.set_len(1 << 16).expect("room");
    assert!(visit(&other).is_none() && page::Visit::open(std::process::id(), 9_999).is_none(), "not a segment");
}

/// One side plays its rounds, and goes away where it has waited `patience` looks; how many rounds took place for it.
fn play(meeting: &Meeting<'_, AtomicU64>, rounds: u32, patience: impl Fn(u32) -> u32) -> u32 {
    for round in 0..rounds {
        let mut met = meeting.come(round);
        let mut looks = 0;
        while met == Met::Alone {
            looks += 1;
            met = if looks < patience(round) { meeting.look(round) } else { meeting.leave(round) };
            std::thread::yield_now();
        }
        if met == Met::Closed {
            return round;
        }
    }
    rounds
}

#[test]
fn each_round_takes_place_for_both_or_for_neither() {
    let word = AtomicU64::new(0);
    let (mut some, mut all) = (0, 0);
    for number in 1..4_000u32 {
        let draw =
            |round: u32, salt: u32| (number.wrapping_mul(2_654_435_761) ^ round.wrapping_mul(40_503) ^ salt) >> 5;
        let side = |side, salt| {
            let word = &word;
            move || {
                play(&Meeting::at(word, number, side), 6, |round| {
                    draw(round, salt) % if number % 3 == 0 { 4_000 } else { 12 }
                })
            }
        };
        let (one, other) = std::thread::scope(|scope| {
            let guest = scope.spawn(side(Side::Guest, 1));
            (side(Side::Keeper, 2)(), guest.join().expect("joins"))
        });
        assert_eq!(one, other, "meeting {number}");
        some += u32::from(one > 0 && one < 6);
        all += u32::from(one == 6);
    }
    assert!(some > 0 && all > 0, "{some} were cut short, {all} were not");
    // One that comes to a meeting that is over, or that another has followed.
    let late = Meeting::at(&word, 3_000, Side::Guest);
    assert_eq!((late.come(0), late.leave(0)), (Met::Closed, Met::Closed));
}
