//! Answers to draw: a small deadlock, and one as large as the promise says.
use mycroft_diagnose::stacks::{
    Autopsy, Cause, Cell, CellMark, Conduct, GroupGrid, Outcome, RankRow, Role, StackGroup,
};
use mycroft_diagnose::{BlastEntry, Caveat, Reason};
use mycroft_record::dump::Frame;
use mycroft_record::{Category, Place, Rank, Suspect, What};
use std::collections::BTreeMap;

fn frame(name: &str, file: &str, line: u32) -> Frame {
    Frame { name: name.into(), file: file.into(), line }
}

pub(crate) fn ranks(numbers: &[u32]) -> Vec<Rank> {
    numbers.iter().copied().map(Rank).collect()
}

pub(crate) fn wait(waiting: &[u32], waits_for: &[u32], text: &str) -> BlastEntry {
    BlastEntry { waiting: ranks(waiting), waits_for: ranks(waits_for), op: None, kind: None, text: text.into() }
}

pub(crate) fn blame(answer: &mut Autopsy, rank: u32, host: &str, confidence: f64, conduct: Conduct) {
    let place = Place::Rank { rank: Rank(rank), host: host.into() };
    answer.suspects.push(Suspect { place, confidence });
    answer.conduct.insert(Rank(rank), conduct);
}

/// An answer without content.
pub(crate) fn empty(outcome: Outcome) -> Autopsy {
    Autopsy {
        hosts: BTreeMap::new(),
        printed: 0,
        traced: 0,
        lines: Vec::new(),
        lines_left_out: 0,
        outcome,
        category: None,
        cause: None,
        suspects: Vec::new(),
        conduct: BTreeMap::new(),
        group: String::new(),
        seq: None,
        collective: String::new(),
        pace: Vec::new(),
        because: Vec::new(),
        do_next: Vec::new(),
        ranks: Vec::new(),
        missing_dumps: Vec::new(),
        unread: Vec::new(),
        caveats: Vec::new(),
        blast_radius: Vec::new(),
        op_names: Vec::new(),
        frames: Vec::new(),
        call_stacks: Vec::new(),
        grid: Vec::new(),
        stack_groups: Vec::new(),
    }
}

/// Call stacks of a training step: innermost first, eight ways through it.
fn code(answer: &mut Autopsy) {
    let wrapper = frame("wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83);
    let call =
        |name| frame(name, "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2_905);
    answer.frames = vec![
        frame("<module>", "/srv/train/pretrain.py", 240),
        frame("main", "/srv/train/pretrain.py", 211),
        frame("train_step", "/srv/train/loop.py", 88),
        wrapper,
        call("all_reduce"),
        call("all_gather_into_tensor"),
        call("reduce_scatter_tensor"),
        call("broadcast"),
        frame("reduce_gradients", "/srv/train/optimizer.py", 142),
        frame("gather_parameters", "/srv/train/fsdp.py", 77),
        frame("scatter_gradients", "/srv/train/fsdp.py", 131),
        frame("log_metrics", "/srv/train/metrics.py", 35),
        frame("save_checkpoint", "/srv/train/checkpoint.py", 64),
        frame("clip_norm", "/srv/train/optimizer.py", 201),
        frame("sync_loss", "/srv/train/loop.py", 131),
        frame("forward", "/srv/train/moe.py", 59),
    ];
    answer.op_names =
        ["nccl:all_reduce", "nccl:all_gather_into_tensor", "nccl:reduce_scatter_tensor", "nccl:broadcast"]
            .map(str::to_owned)
            .to_vec();
    answer.call_stacks = vec![
        vec![4, 3, 8, 2, 1, 0],
        vec![5, 3, 9, 2, 1, 0],
        vec![6, 3, 10, 2, 1, 0],
        vec![7, 3, 12, 1, 0],
        vec![4, 3, 11, 2, 1, 0],
        vec![4, 3, 13, 8, 2, 1, 0],
        vec![4, 3, 14, 2, 1, 0],
        vec![5, 3, 15, 2, 1, 0],
    ];
}

/// Operation and call stack of the n-th column, as a training step repeats them.
const STEP: &[(u32, u32)] = &[(1, 1), (1, 7), (1, 1), (2, 2), (2, 2), (0, 5), (0, 0), (0, 6), (0, 4)];

/// Four ranks: rank 2 saves a checkpoint where the others reduce, and two tensor-parallel pairs are fine.
pub(crate) fn small() -> Autopsy {
    let mut answer = empty(Outcome::Fault(What::Desync));
    code(&mut answer);
    answer.category = Some(Category::CodeDivergence);
    answer.cause = Some(Cause::Divergence);
    answer.group = "default_pg".into();
    answer.seq = Some(9);
    answer.collective = "all_reduce".into();
    let at = Some(frame("save_checkpoint", "/srv/train/checkpoint.py", 64));
    blame(&mut answer, 2, "node-b", 0.93, Conduct { role: Role::Odd, doing: "saving a checkpoint".into(), at });
    let reason = |rule: &'static str, text: &str| Reason { rule: rule.into(), text: text.into(), evidence: Vec::new() };
    answer.because = vec![
        reason("stacks.type-differs", "at default_pg #9 rank 2 issued broadcast, ranks 0, 1, 3 all_reduce"),
        reason(
            "stacks.paths-part",
            "the paths part in train_step: save_checkpoint on rank 2, reduce_gradients on the others",
        ),
    ];
    answer.do_next = vec![
        "Look at checkpoint.py:64: save_checkpoint is reached on rank 2 only; a collective there must be reached by all ranks.".into(),
        "Run again with TORCH_DISTRIBUTED_DEBUG=DETAIL to have the mismatch raised where it happens.".into(),
    ];
    answer.ranks = ranks(&[0, 1, 2, 3]);
    let text = "start times are not recorded, so a running kernel and a queued one look the same";
    answer.caveats = vec![Caveat::new("no-start-times", text).switch("TORCH_NCCL_ENABLE_TIMING=1")];
    answer.blast_radius = vec![wait(&[0, 1, 3], &[2], "all_reduce default_pg #9")];
    let row = |rank: u32| RankRow {
        rank: Rank(rank),
        cells: (0..9)
            .map(|column| {
                let (op, stack) = STEP[column as usize % STEP.len()];
                let last = column == 8;
                let odd = last && rank == 2;
                let mark = if odd { CellMark::Odd } else { CellMark::Plain };
                let (op, stack) = if odd { (3, 3) } else { (op, stack) };
                Cell { column, op, stack, state: if last { 0 } else { 2 }, mark }
            })
            .collect(),
    };
    let world = GroupGrid {
        label: "default_pg".into(),
        rows: (0..4).map(row).collect(),
        columns: (1..=9).map(|seq| format!("#{seq}")).collect(),
        first_wrong: Some(8),
    };
    answer.grid = vec![world, pair("tp_0", 0), pair("tp_1", 2)];
    answer.stack_groups = stack_groups();
    answer
}

fn pair(label: &str, first: u32) -> GroupGrid {
    let cell = |column| Cell { column, op: 1, stack: 1, state: 2, mark: CellMark::Plain };
    GroupGrid {
        label: label.into(),
        rows: (first..first + 2).map(|rank| RankRow { rank: Rank(rank), cells: (0..4).map(cell).collect() }).collect(),
        columns: (1..=4).map(|seq| format!("#{seq}")).collect(),
        first_wrong: None,
    }
}

fn stack_groups() -> Vec<StackGroup> {
    let waiting = [
        frame("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2_905),
        frame("wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83),
        frame("reduce_gradients", "/srv/train/optimizer.py", 142),
        frame("train_step", "/srv/train/loop.py", 88),
        frame("main", "/srv/train/pretrain.py", 211),
        frame("<module>", "/srv/train/pretrain.py", 240),
    ];
    let saving = [
        frame("fsync", "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", 963),
        frame("save_checkpoint", "/srv/train/checkpoint.py", 64),
        frame("main", "/srv/train/pretrain.py", 214),
        frame("<module>", "/srv/train/pretrain.py", 240),
    ];
    vec![
        StackGroup {
            ranks: ranks(&[0, 1, 3]),
            frames: waiting.to_vec(),
            odd: false,
            doing: "waiting in all_reduce".into(),
        },
        StackGroup { ranks: ranks(&[2]), frames: saving.to_vec(), odd: true, doing: "saving a checkpoint".into() },
    ]
}

/// Four ranks that wait for each other in a circle over four groups.
pub(crate) fn deadlock() -> Autopsy {
    let mut answer = empty(Outcome::Fault(What::Deadlock));
    answer.cause = Some(Cause::CrossGroupOrder);
    answer.category = Some(Category::CodeDivergence);
    answer.group = "tp_01".into();
    answer.seq = Some(3);
    answer.collective = "all_reduce".into();
    answer.ranks = ranks(&[0, 1, 2, 3, 4, 5]);
    answer.blast_radius = vec![
        wait(&[0], &[1], "all_reduce tp_01 #3"),
        wait(&[1], &[3], "all_reduce dp_13 #3"),
        wait(&[3], &[2], "all_reduce tp_23 #3"),
        wait(&[2], &[0], "all_reduce dp_02 #3"),
        wait(&[4, 5], &[0, 3], "barrier default_pg #12"),
    ];
    for rank in [1, 2] {
        blame(&mut answer, rank, "", 0.5, Conduct { role: Role::InCycle, doing: String::new(), at: None });
    }
    answer
}

/// 1,024 ranks, 2,000 operations each in one group and 500 in each of two families of groups: 3 M cells that compress no
/// better than real ones: rows start at different columns, have odd cells here and there, and end at different states.
pub(crate) fn large() -> Autopsy {
    let mut answer = small();
    answer.ranks = (0..1_024).map(Rank).collect();
    let conduct = answer.conduct.remove(&Rank(2)).expect("the small sample blames rank 2");
    answer.suspects.clear();
    blame(&mut answer, 513, "node-b", 0.93, conduct);
    answer.seq = Some(44_300);
    let waiting: Vec<u32> = (0..1_024).filter(|&rank| rank != 513).collect();
    answer.blast_radius = vec![wait(&waiting, &[513], "all_reduce default_pg #44300")];
    answer.stack_groups[0].ranks = ranks(&waiting);
    answer.stack_groups[1].ranks = ranks(&[513]);
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    answer.grid = vec![wide("default_pg", (0..1_024).collect(), 2_000, 42_800, Some(1_500), &mut noise)];
    for tp in 0..128 {
        let members = (tp * 8..tp * 8 + 8).collect();
        answer.grid.push(wide(&format!("tp_{tp}"), members, 500, 900_000 + u64::from(tp) * 7, None, &mut noise));
    }
    for dp in 0..8 {
        let members = (0..128).map(|i| i * 8 + dp).collect();
        answer.grid.push(wide(&format!("dp_{dp}"), members, 500, 11_000 + u64::from(dp) * 3, None, &mut noise));
    }
    answer
}

fn wide(label: &str, members: Vec<u32>, columns: u32, first: u64, wrong: Option<u32>, noise: &mut Noise) -> GroupGrid {
    let row = |rank: u32, noise: &mut Noise| {
        let start = noise.below(24) as u32;
        let absent = wrong.filter(|_| rank == 513);
        let mut cells = Vec::new();
        for column in start..columns {
            let (mut op, mut stack) = STEP[((column + column / 40) as usize) % STEP.len()];
            if noise.below(60) == 0 {
                (op, stack) = STEP[noise.below(STEP.len() as u64) as usize];
            }
            let mut cell = Cell { column, op, stack, state: 2, mark: CellMark::Plain };
            if let Some(wrong) = absent
                && column >= wrong
            {
                cell.mark = if column == wrong { CellMark::Missing } else { CellMark::Plain };
                cell.state = 0;
                if column > wrong {
                    break;
                }
            } else if column + 6 > columns {
                cell.state = u8::from(noise.below(3) == 0);
            } else if wrong == Some(column) {
                cell.mark = CellMark::First;
            }
            cells.push(cell);
        }
        RankRow { rank: Rank(rank), cells }
    };
    GroupGrid {
        label: label.into(),
        rows: members.into_iter().map(|rank| row(rank, noise)).collect(),
        columns: (0..u64::from(columns)).map(|i| format!("#{}", first + i)).collect(),
        first_wrong: wrong,
    }
}

/// xorshift64: the same sample each time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
