//! What a recorder writes comes back, from every protocol and from JSON; what would run code or deceive is refused.
mod writer;

use mycroft_formats::{Naming, Piece, read};
use mycroft_record::HostTime;
use mycroft_record::dump::{Dump, EntryState};
use proptest::collection::vec;
use proptest::prelude::*;
use writer::{Data, json, pickle};

const DUMP: &str = "comm_lib_trace_rank_3";

fn dump(path: &str, bytes: &[u8]) -> Dump {
    match read(path, bytes, &Naming::default()) {
        Piece::Dump(dump) => *dump,
        other => panic!("{path}: {other:?}"),
    }
}

fn why(bytes: &[u8]) -> String {
    match read(DUMP, bytes, &Naming::default()) {
        Piece::Unusable(unusable) => unusable.why,
        other => panic!("{other:?}"),
    }
}

/// One entry as a recorder has it.
#[derive(Clone, Debug)]
struct Model {
    id: i64,
    time: i64,
    group: usize,
    op: usize,
    state: usize,
    sizes: Vec<Vec<i64>>,
    frames: Vec<(usize, i64)>,
    duration_ms: Option<f64>,
    extra: Option<(usize, i64)>,
}

const OPS: &[&str] =
    &["nccl:all_reduce", "gloo:brand_new", "nccl2:send 0->1", "no_library", "weird \u{1F40D} \"name\"\n:x"];
const STATES: &[&str] = &["scheduled", "started", "completed", "melted"];
const GROUPS: &[(&str, &str)] = &[("0", "default_pg"), ("1", "tp_0"), ("", ""), ("0", "other")];
const EXTRAS: &[&str] = &["new_field", "another", "frames2"];
const FILES: &[&str] = &["/opt/train.py", "<string>", "/opt/a/b.py"];

fn model() -> impl Strategy<Value = Model> {
    let sizes = vec(vec(prop_oneof![0..5000_i64, Just(5_000_000_000_i64)], 0..4), 0..3);
    let frames = vec((0..FILES.len(), 0..70_000_i64), 0..4);
    let duration = proptest::option::of(prop_oneof![0.0..1e6_f64, Just(f64::INFINITY)]);
    let extra = proptest::option::of((0..EXTRAS.len(), any::<i64>()));
    let base = (0..100_000_i64, 0..i64::MAX, 0..GROUPS.len(), 0..OPS.len(), 0..STATES.len());
    (base, sizes, frames, duration, extra).prop_map(|(base, sizes, frames, duration_ms, extra)| {
        let (id, time, group, op, state) = base;
        Model { id, time, group, op, state, sizes, frames, duration_ms, extra }
    })
}

fn entry(model: &Model) -> Data {
    let sizes = Data::List(model.sizes.iter().map(|t| Data::List(t.iter().map(|&n| Data::Int(n)).collect())).collect());
    let frame = |&(file, line): &(usize, i64)| {
        Data::Dict(vec![("line", Data::Int(line)), ("name", Data::text("f")), ("filename", Data::text(FILES[file]))])
    };
    let (name, desc) = GROUPS[model.group];
    let mut pairs = vec![
        ("frames", Data::List(model.frames.iter().map(frame).collect())),
        ("record_id", Data::Int(model.id)),
        ("pg_id", Data::Int(model.group as i64)),
        ("process_group", Data::Tuple(vec![Data::text(name), Data::text(desc)])),
        ("collective_seq_id", Data::Int(model.id + 1)),
        ("profiling_name", Data::text(OPS[model.op])),
        ("time_created_ns", Data::Int(model.time)),
        ("input_sizes", sizes.clone()),
        ("input_dtypes", Data::List(vec![Data::text("Float"); model.sizes.len()])),
        ("output_sizes", sizes),
        ("output_dtypes", Data::List(vec![])),
        ("state", Data::text(STATES[model.state])),
        ("time_discovered_started_ns", Data::None),
        ("retired", Data::Bool(model.state == 2)),
    ];
    if let Some(ms) = model.duration_ms {
        pairs.push(("duration_ms", Data::Real(ms)));
    }
    if let Some((name, value)) = model.extra {
        pairs.push((EXTRAS[name], Data::List(vec![Data::Int(value), Data::None])));
    }
    Data::Dict(pairs)
}

fn whole(models: &[Model]) -> Data {
    Data::Dict(vec![
        ("version", Data::text("2.10")),
        ("pg_config", Data::Dict(vec![])),
        ("comm_lib_version", Data::text("2.27.5")),
        ("entries", Data::List(models.iter().map(entry).collect())),
    ])
}

fn check(dump: &Dump, models: &[Model]) {
    assert_eq!(dump.entries.len(), models.len());
    for (entry, model) in dump.entries.iter().zip(models) {
        assert_eq!(entry.record_id, model.id as u64);
        assert_eq!(entry.created_at, HostTime(model.time as u64));
        assert_eq!(&*dump.ops[entry.op as usize].text, OPS[model.op]);
        let group = &dump.groups[entry.group as usize];
        assert_eq!((&*group.name, &*group.desc), GROUPS[model.group]);
        let states = [EntryState::Scheduled, EntryState::Started, EntryState::Completed, EntryState::Other];
        assert_eq!((entry.state, entry.retired), (states[model.state], model.state == 2));
        let shape = &dump.shapes[entry.shape as usize];
        let sizes: Vec<Box<[i64]>> = model.sizes.iter().map(|sizes| sizes.clone().into()).collect();
        assert_eq!((&shape.inputs, &shape.outputs, shape.input_dtypes.len()), (&sizes, &sizes, sizes.len()));
        let stack = dump.stacks.get(entry.stack as usize).map(|stack| &stack[..]).unwrap_or_default();
        let frames: Vec<(&str, u32)> =
            stack.iter().map(|&frame| &dump.frames[frame as usize]).map(|frame| (&*frame.file, frame.line)).collect();
        let expected: Vec<(&str, u32)> = model.frames.iter().map(|&(file, line)| (FILES[file], line as u32)).collect();
        assert_eq!(frames, expected);
        match model.duration_ms {
            Some(ms) => assert_eq!(entry.duration_us, (ms * 1e3) as f32),
            None => assert!(entry.duration_us.is_nan()),
        }
    }
    let known = |field: &std::sync::Arc<str>| EXTRAS.contains(&&**field);
    assert!(dump.unknown_fields.iter().all(known), "{:?}", dump.unknown_fields);
    assert_eq!(dump.unknown_fields.is_empty(), models.iter().all(|model| model.extra.is_none()));
}

/// A dump without what only its file tells.
fn comparable(mut dump: Dump) -> String {
    dump.source = Default::default();
    format!("{dump:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_form_of_a_dump_reads_the_same(models in vec(model(), 0..40)) {
        let data = whole(&models);
        let text = json(&data);
        let from_json = dump("trace_3.json", text.as_bytes());
        check(&from_json, &models);
        let expected = comparable(from_json);
        for protocol in [2, 3, 4, 5] {
            let dump = dump(DUMP, &pickle(&data, protocol));
            check(&dump, &models);
            prop_assert_eq!(comparable(dump), expected.clone(), "protocol {}", protocol);
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_unusable_and_says_where(cut in 2..1000_usize, protocol in 2..=5_u8) {
        let models = vec![Model { id: 1, time: 5, group: 0, op: 0, state: 0, sizes: vec![vec![1]], frames: vec![],
            duration_ms: None, extra: None }];
        let bytes = pickle(&whole(&models), protocol);
        let cut = cut % (bytes.len() - 2) + 2;
        let why = why(&bytes[..cut]);
        prop_assert!(why.starts_with(&format!("byte {}", cut.min(bytes.len()))) || why.starts_with("byte "), "{}", why);
        prop_assert!(why.contains("ends here"), "{}", why);
        let text = json(&whole(&models));
        let cut = cut % (text.len() - 1) + 1;
        let piece = read("trace_3.json", &text.as_bytes()[..cut], &Naming::default());
        prop_assert!(matches!(&piece, Piece::Unusable(unusable) if unusable.rank.is_some()), "{:?}", piece);
    }
}

#[test]
fn lists_that_come_in_batches_are_whole() {
    let model = |id| Model {
        id,
        time: id * 7,
        group: 0,
        op: 0,
        state: 2,
        sizes: vec![vec![id % 3]],
        frames: vec![(0, id % 5)],
        duration_ms: None,
        extra: None,
    };
    for count in [999, 1000, 1001, 1002, 2000, 2001, 2500] {
        let models: Vec<Model> = (0..count).map(model).collect();
        for protocol in [2, 4] {
            let dump = dump(DUMP, &pickle(&whole(&models), protocol));
            check(&dump, &models);
            assert_eq!((dump.shapes.len(), dump.stacks.len(), dump.frames.len()), (3, 5, 5));
        }
    }
}

#[test]
fn opcodes_that_run_code_are_named_and_refused() {
    let refused: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n", "GLOBAL (0x63)"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL (0x93)"),
        (b"NN R", "0x20 is no pickle opcode"),
        (b"NNR", "REDUCE (0x52)"),
        (b"NNb", "BUILD (0x62)"),
        (b"(ios\nsystem\n", "INST (0x69)"),
        (b"(No", "OBJ (0x6f)"),
        (b"NN\x81", "NEWOBJ (0x81)"),
        (b"NNN\x92", "NEWOBJ_EX (0x92)"),
        (b"\x82\x01", "EXT1 (0x82)"),
        (b"\x83\x01\x00", "EXT2 (0x83)"),
        (b"\x84\x01\x00\x00\x00", "EXT4 (0x84)"),
        (b"Pname\n", "PERSID (0x50)"),
        (b"NQ", "BINPERSID (0x51)"),
        (b"\x97", "NEXT_BUFFER (0x97)"),
        (b"N\x98", "READONLY_BUFFER (0x98)"),
        (b"I01\n", "INT (0x49)"),
    ];
    for (code, name) in refused {
        // Alone, and deep inside what looks like a dump.
        let bytes = [&b"\x80\x04"[..], code, b"."].concat();
        assert!(why(&bytes).contains(name), "{name}: {}", why(&bytes));
        let inside = [&b"\x80\x02}q\x00(X\x07\x00\x00\x00entries]q\x01("[..], code, b"eu."].concat();
        assert!(why(&inside).contains(name), "{name}: {}", why(&inside));
    }
}

#[test]
fn what_no_recorder_writes_is_refused() {
    for (bytes, expected) in [
        (&b"\x80\x02]q\x00h\x00a."[..], "byte 7: a list that contains itself"),
        (b"\x80\x02]q\x00(h\x00K\x01e.", "byte 10: a list that contains itself"),
        (b"\x80\x02]q\x00]q\x01h\x00a0h\x00Na.", "changes after it was put into another"),
        (b"\x80\x02h\x07.", "memo 7 is used before it is written"),
        (b"\x80\x02]r\x00\x10\x00\x00.", "memo 4096 right after 0"),
        (b"\x80\x02u.", "never began"),
        (b"\x80\x02(u.", "without its operand"),
        (b"\x80\x02}(Nu.", "a key without a value"),
        (b"\x80\x02N(NNu.", "no open dict"),
        (b"\x80\x02N(NNe.", "no open list"),
        (b"\x80\x02NN.", "left open"),
        (b"\x80\x02(N.", "left open"),
        (b"\x80\x02.", "without its operand"),
        (b"\x80\x06N.", "pickle protocol 6"),
        (b"\x80\x02N.", "a pickle, but no dump"),
        (b"\x80\x02}X\x07\x00\x00\x00entriesK\x01s.", "`entries` is no list"),
    ] {
        assert!(why(bytes).contains(expected), "{bytes:?}: {}", why(bytes));
    }
    let deep = [&b"\x80\x02"[..], &b"(".repeat(65)].concat();
    assert!(why(&deep).contains("more than 64 levels"));
}
