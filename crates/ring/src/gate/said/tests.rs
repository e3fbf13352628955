//! What is said is read as it was said, and foreign bytes are read or not.
use super::*;
use crate::gate::plan::{Lane, View};
use crate::gate::task::{Ending, Times};
use crate::gate::words::TASK_VALUES;
use crate::gate::{LaneKey, LaneKind, Left};
use proptest::prelude::*;

fn lane(count: u64) -> Lane {
    Lane { key: LaneKey { comm: u64::MAX, kind: LaneKind::Recv, own: 3, other: 4 }, count }
}

fn requests() -> Vec<Request> {
    let pair = Order::Pair { keeper: (1, 2), guest: (3, 4), comm: 5, bytes: 6, patience: Duration::from_nanos(7) };
    let remote = Remote { address: Ipv6Addr::new(1, 2, 3, 4, 5, 6, 7, 8), nonce: 9 };
    let far = |place| Kind::Pair(Way { comm: 1, peer: 2, place, bytes: 3, patience_ns: 4 });
    let keeper = Order::Alone { rank: 1, kind: far(Place::Accept(remote)) };
    let guest = Order::Alone { rank: 0, kind: far(Place::Connect(remote, 77)) };
    vec![
        Request::Show,
        Request::Hold { for_ns: 1 << 40 },
        Request::RunTo(vec![(0, vec![lane(1), lane(2)]), (7, vec![])]),
        Request::Test(vec![Order::Alone { rank: 2, kind: Kind::Host }, pair, keeper, guest]),
        Request::Release,
        Request::End,
    ]
}

fn shown() -> Vec<Shown> {
    let values = [Times { fastest_ns: 1, median_ns: 2 }; TASK_VALUES];
    let view = View {
        has_gate: true,
        waiting: true,
        entries: 9,
        left: Some(Left::Silence),
        untracked: 1,
        lanes: vec![lane(8)],
    };
    let answer = Some(Answer { ending: Ending::Apart, values });
    let seen = Seen { who: Who { pid: 1, rank: 2 }, view, answer, port: Some(5) };
    let other = Seen { answer: None, port: None, view: View::default(), ..seen.clone() };
    let here = Here { address: Some(Ipv6Addr::LOCALHOST), ranks: vec![seen, other] };
    vec![Ok(Here::default()), Ok(here), Err("why \u{e9}".to_owned())]
}

#[test]
fn what_is_said_is_read_as_it_was_and_nothing_shorter_is() {
    for request in requests() {
        let bytes = request_bytes("llama \u{e9}", &request);
        assert_eq!(request_of(&bytes), Some(("llama \u{e9}".to_owned(), request)));
        assert!((0..bytes.len()).all(|end| request_of(&bytes[..end]).is_none()));
    }
    for shown in shown() {
        let bytes = shown_bytes(&shown);
        assert_eq!(shown_of(&bytes), Some(shown));
        assert!((0..bytes.len()).all(|end| shown_of(&bytes[..end]).is_none()));
    }
}

#[test]
fn another_version_and_counts_that_are_too_large_are_not_read() {
    let mut bytes = shown_bytes(&Ok(Here::default()));
    bytes[2..].fill(0xff);
    assert_eq!(shown_of(&bytes), None);
    bytes[0] = VERSION + 1;
    assert_eq!((shown_of(&bytes), request_of(&bytes)), (None, None));
    let long = "\u{e9}".repeat(TEXT_BYTES_MAX);
    assert_eq!(shown_of(&shown_bytes(&Err(long))), Some(Err("\u{e9}".repeat(TEXT_BYTES_MAX / 2))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    /// Foreign bytes, and what is said with a byte of it changed: read or not, never a panic.
    #[test]
    fn foreign_bytes_are_read_or_not(foreign in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..4_096, byte: u8) {
        let _ = (request_of(&foreign), shown_of(&foreign));
        let requests = requests().into_iter().map(|request| request_bytes("job", &request));
        for mut bytes in requests.chain(shown().iter().map(shown_bytes)) {
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = (request_of(&bytes), shown_of(&bytes));
        }
    }
}
