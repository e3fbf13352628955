//! Inputs with the shape of public cases: words and numbers of our own.
use serde_json::{Value, json};

/// Path and content of each file.
pub(crate) struct Made(pub(crate) Vec<(String, String)>);

/// What the watchdog of a rank prints.
fn timed_out(rank: u32, seq: u64, op: &str, elements: u64) -> String {
    format!(
        "[rank{rank}]:[E714 11:20:{rank:02}.104219411 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective \
         operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={elements}, NumelOut={elements}, \
         Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
    )
}

/// Where a rank stands in the group `guid(desc)` of which it is member `member`.
fn stands(rank: u32, (guid, desc): (&str, &str), member: u32, seq: u64, status: (i64, i64)) -> String {
    format!(
        "[rank{rank}]:[E714 11:20:{rank:02}.104919411 ProcessGroupNCCL.cpp:2252] [PG ID 1 PG GUID {guid}({desc}) Rank \
         {member}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {}, last completed \
         work: {}\n",
        status.0, status.1
    )
}

const WORLD: (&str, &str) = ("0", "default_pg");

/// A rank that waits in operation `seq` of the world.
fn waits(rank: u32, seq: u64) -> String {
    timed_out(rank, seq, "ALLREDUCE", 2048) + &stands(rank, WORLD, rank, seq, (seq as i64 + 1, seq as i64 - 1))
}

/// A traceback that ends in `last`.
fn traceback(rank: u32, file: &str, line: u32, call: &str, last: &str) -> String {
    let at = format!("[rank{rank}]: ");
    format!(
        "{at}Traceback (most recent call last):\n{at}  File \"/opt/job/{file}\", line {line}, in step\n{at}    go()\n{call}\
         {at}{last}\n"
    )
}

fn inside(rank: u32, call: &str) -> String {
    format!(
        "[rank{rank}]:   File \"/v/lib/torch/distributed/distributed_c10d.py\", line 4000, in {call}\n[rank{rank}]:     x\n"
    )
}

fn log(text: impl Into<String>) -> Made {
    Made(vec![("job.log".to_owned(), text.into())])
}

pub(crate) fn case(name: &str) -> Made {
    match name.split_once('_') {
        Some(("log", _)) => logs(name),
        Some(("ras", "behind")) => log(RAS),
        Some(("ras", "json")) => Made(vec![("ras.json".to_owned(), ras_json(&[2, 6], &[]))]),
        Some(("ras", _)) => Made(vec![("ras.json".to_owned(), ras_json(&[], &[3]))]),
        Some(("stacks", _)) => stacks(name),
        _ => dumps(name),
    }
}

fn logs(name: &str) -> Made {
    let all = |ranks: &[u32], seq| ranks.iter().map(|rank| waits(*rank, seq)).collect::<String>();
    let begun = "[rank0]: iteration 5\n";
    match name {
        "log_size" => log((0..4)
            .map(|rank| timed_out(rank, 77, "ALLREDUCE", if rank == 3 { 4096 } else { 2048 }) + &stands(rank, WORLD, rank, 77, (77, 76)))
            .collect::<String>()),
        // As the text of an issue wraps them.
        "log_wrapped" => log((0..4)
            .map(|rank| {
                let text = timed_out(rank, 77, "ALLREDUCE", if rank == 3 { 4096 } else { 2048 });
                text.replace("OpType=", "\nOpType=").replace("ran for ", "ran\n  for ") + &stands(rank, WORLD, rank, 77, (77, 76))
            })
            .collect::<String>()
            .replace("ran\n  for ", "\nran for ")),
        "log_silent" => log(all(&[0, 1, 3], 41)),
        "log_one_of_many" => log(all(&[7], 41)),
        "log_elsewhere" => log(all(&[0, 1, 2, 3, 4], 41) + &told(5, 40) + &traceback(5, "barrier.py", 12, &inside(5, "all_gather"),
            "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:3")),
        "log_exception" => log(traceback(2, "data.py", 90, "", "KeyError: 'labels'") + &all(&[0, 1, 3], 41)),
        "log_everybody" => log((0..4).map(|rank| traceback(rank, "conf.py", 9, "", "ValueError: no such mode")).collect::<String>()),
        "log_memory" => log((0..2).map(|rank| traceback(rank, "moe.py", 70, "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 352.00 MiB")).collect::<String>()
            + &all(&[2, 3], 41)),
        "log_handled" => log(traceback(1, "opt.py", 3, "", "ImportError: no fused kernels") + &all(&[0, 1, 2, 3], 41)),
        "log_interrupted" => log(all(&[0], 41) + &(0..2).map(|rank| traceback(rank, "t.py", 5, "", "KeyboardInterrupt")).collect::<String>()),
        "log_xid" => Made(vec![
            ("job.log".to_owned(), begun.to_owned() + &all(&[0, 1], 41)),
            ("dmesg.txt".to_owned(), "Jul 14 11:09:58 gpu7 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=4471, name=python, GPU has fallen off the bus.\n".to_owned()),
        ]),
        "log_port" => log((1..3).map(|host| format!(
            "[2026-07-14 11:12:0{host}] n{host}:71:72 [3] transport/net_ib.cc:2453 NCCL WARN NET/IB: Got completion from peer \
             10.0.0.9<51161> with status=12 opcode=32614 len=32614 vendor err 129 (Send) localGid ::ffff:10.0.9.{host} \
             remoteGids::ffff:10.0.9.9 hca mlx5_2\n")).collect::<String>()),
        // Members 0, 1 and 3 of a group of ranks 4, 5, 6, 7: member 2 is rank 6.
        "log_subgroup" => log([(4, 0), (5, 1), (7, 3)].iter().map(|(rank, member)| {
            timed_out(*rank, 900, "ALLREDUCE", 64).replace(&format!("[Rank {rank}]"), &format!("[Rank {member}]"))
                + &stands(*rank, ("13", "tp_1"), *member, 900, (900, 899))
        }).collect::<String>()),
        "log_heartbeat" => log("[rank1]:[F714 11:20:01.1 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 1] \
            [PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress \
            in monitoring enqueued collectives.\n"),
        "log_barrier" => log("[rank0]: RuntimeError: Rank 3 failed to pass monitoredBarrier in 600000 ms\n\
            [rank1]: RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv \
            from rank 0. Please check rank 0 logs for faulty rank.\n"),
        "log_init" => log((0..15).map(|rank| format!(
            "n{}:7{rank}:9{rank} [0] NCCL INFO ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks 15 cudaDev 0 nvmlDev 0 \
             busId 1000 commId 0xc0ffee - Init START\n", rank / 8)).collect::<String>()),
        "log_nonsense" => log("[rank62]:[E714 11:20:01.1 ProcessGroupNCCL.cpp:2252] [PG ID 0 PG GUID 0(default_pg) Rank 62]  failure \
            detected by watchdog at work sequence id: 27 PG status: last enqueued work: 26, last completed work: 126\n\
            [rank62]: RuntimeError: NCCL error\nsrun: error: n3: task 62: Aborted (core dumped)\n"),
        _ => panic!("{name}"),
    }
}

/// A rank whose own watchdog has nothing to complain of.
pub(crate) fn told(rank: u32, last: i64) -> String {
    format!(
        "[rank{rank}]:[E714 11:20:30.562 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump \
         signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL \
         work: {last}, last completed NCCL work: {last}.This is most likely caused by incorrect usages of collectives.\n"
    )
}

const RAS: &str = "Communicators... (0.00s)\n\
    Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    \
    0         1         2         4         8         8   RUNNING  MISMATCH\n\n\
    Warnings\n========\n\n#0-0 (beef00beef) MISMATCH\n  \
    Communicator ranks have different AllReduce operation counts\n  \
    7 ranks have launched up to operation 512\n  \
    1 ranks have launched up to operation 511\n  \
    Rank 5 -- GPU 1 managed by process 4711 on node 10.0.0.2\n";

/// Eight ranks, of which some are one all_reduce behind, and some are not heard of.
fn ras_json(behind: &[u32], missing: &[u32]) -> String {
    let rank = |rank: u32| {
        let count = 510 - u64::from(behind.contains(&rank));
        json!({"rank": rank, "host": "10.0.0.1", "pid": 40 + rank, "collective_counts": {"Broadcast": 3, "AllReduce": count}})
    };
    let heard: Vec<Value> = (0..8).filter(|number| !missing.contains(number)).map(rank).collect();
    let lost: Vec<Value> = missing.iter().map(|rank| json!({"rank": rank, "host": "10.0.0.2"})).collect();
    // In the order in which RAS writes, which a map of JSON does not keep.
    format!(
        "{{\"nccl_version\": \"2.30.7\", \"communicators\": [{{\"hash\": \"0xab\", \"size\": 8, \"ranks\": [{}], \
         \"missing_ranks\": [{}]}}], \"ras\": {{\"timeouts_count\": 0}}}}",
        heard.iter().map(in_order).collect::<Vec<_>>().join(", "),
        lost.iter().map(in_order).collect::<Vec<_>>().join(", ")
    )
}

/// A rank of RAS, its number first and its counts last.
fn in_order(rank: &Value) -> String {
    let counts =
        rank.get("collective_counts").map_or_else(String::new, |counts| format!(", \"collective_counts\": {counts}"));
    format!("{{\"rank\": {}, \"host\": {}{counts}}}", rank["rank"], rank["host"])
}

// ------------------------------------------------------------------------------------------------------------ stacks

fn pyspy(pid: u32, frames: &[&str]) -> String {
    let frames: String = frames.iter().map(|frame| format!("    {frame}\n")).collect();
    format!(
        "Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): \"MainThread\"\n{frames}"
    )
}

const WAITING: &[&str] =
    &["all_reduce (torch/distributed/distributed_c10d.py:2810)", "step (train.py:40)", "<module> (train.py:90)"];

fn stacks(name: &str) -> Made {
    let loader =
        &["wait (threading.py:320)", "_try_get_data (torch/utils/data/dataloader.py:1200)", "step (train.py:30)"][..];
    let gather = &["all_gather_into_tensor (torch/distributed/distributed_c10d.py:3900)", "sync (batch.py:40)"][..];
    let of = |rank: u32| match name {
        "stacks_loader" if rank == 0 => loader,
        "stacks_loader" => WAITING,
        _ => gather,
    };
    Made((0..8).map(|rank| (format!("rank_{rank}.txt"), pyspy(100 + rank, of(rank)))).collect())
}

// ------------------------------------------------------------------------------------------------------------- dumps

/// What a rank did in one group: sequence number, operation, elements, state.
type Call<'a> = (u64, &'a str, u64, &'a str);

struct Group<'a> {
    name: &'a str,
    ranks: &'a str,
    enqueued: u64,
    completed: u64,
    calls: Vec<Call<'a>>,
}

fn dump(groups: &[Group<'_>]) -> String {
    let mut entries: Vec<Value> = Vec::new();
    let (mut config, mut status) = (serde_json::Map::new(), serde_json::Map::new());
    for (id, group) in groups.iter().enumerate() {
        let desc = if id == 0 { "default_pg" } else { group.name };
        config.insert(group.name.to_owned(), json!({"name": group.name, "desc": desc, "ranks": group.ranks}));
        status.insert(
            id.to_string(),
            json!({"last_enqueued_collective": group.enqueued, "last_started_collective": -1, "last_completed_collective": group.completed}),
        );
        for (seq, op, elements, state) in &group.calls {
            let done = *state == "completed";
            entries.push(json!({
                "record_id": entries.len(), "pg_id": id, "process_group": [group.name, desc], "collective_seq_id": seq,
                "p2p_seq_id": 0, "op_id": seq, "profiling_name": format!("nccl:{op}"),
                "time_created_ns": 1_795_000_000_000_000_000_u64 + seq * 1_000_000, "input_sizes": [[elements]],
                "input_dtypes": ["Float"], "output_sizes": [[elements]], "output_dtypes": ["Float"], "state": state,
                "time_discovered_started_ns": null, "time_discovered_completed_ns": if done { json!(1_795_000_000_000_900_000_u64 + seq * 1_000_000) } else { Value::Null },
                "retired": done, "timeout_ms": 600_000, "is_p2p": false
            }));
        }
    }
    json!({"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": config, "pg_status": status, "entries": entries}).to_string()
}

const DONE: &str = "completed";
const OPEN: &str = "scheduled";

/// A dump of the world with these calls; the status counts them all, and as completed those that are.
fn world<'a>(ranks: &'a str, calls: Vec<Call<'a>>) -> Group<'a> {
    let enqueued = calls.last().map_or(0, |call| call.0);
    let completed = calls.iter().filter(|call| call.3 == DONE).map(|call| call.0).max().unwrap_or(0);
    Group { name: "0", ranks, enqueued, completed, calls }
}

fn past<'a>(to: u64, op: &'a str, elements: u64) -> Vec<Call<'a>> {
    (1..=to).map(|seq| (seq, op, elements, DONE)).collect()
}

fn with<'a>(mut calls: Vec<Call<'a>>, more: &[Call<'a>]) -> Vec<Call<'a>> {
    calls.extend_from_slice(more);
    calls
}

fn files(of: impl Fn(u32) -> Option<String>, ranks: u32) -> Vec<(String, String)> {
    (0..ranks).filter_map(|rank| Some((format!("trace_rank_{rank}.json"), of(rank)?))).collect()
}

const TWO: &str = "[0, 1]";
const FOUR: &str = "[0, 1, 2, 3]";
const EIGHT: &str = "[0, 1, 2, 3, 4, 5, 6, 7]";

fn one(ranks: &str, calls: Vec<Call<'_>>) -> Option<String> {
    Some(dump(&[world(ranks, calls)]))
}

fn dumps(name: &str) -> Made {
    Made(match name {
        "dumps_missing_one" => files(missing_one, 2),
        "dumps_in_call" => files(in_call, 2),
        "dumps_main_only" => files(
            |rank| {
                one(
                    FOUR,
                    with(past(9, "all_reduce", 64), &[if rank == 0 { (10, "all_gather", 8, OPEN) } else { OTHERS }]),
                )
            },
            4,
        ),
        "dumps_experts" => files(
            |rank| {
                let sizes = [4096, 4096, 8192, 1024, 2048, 512, 8192, 256];
                let last = (10, "_all_gather_base", sizes[rank as usize], OPEN);
                one(EIGHT, with(past(9, "_all_gather_base", 64), &[last]))
            },
            8,
        ),
        "dumps_drift" => files(drift, 3),
        "dumps_two_groups" => files(two_groups, 2),
        "dumps_micro_batches" => files(
            |rank| {
                let last = if rank == 0 { (10, "all_reduce", 1, OPEN) } else { (10, "_all_gather_base", 64, OPEN) };
                one(FOUR, with(past(9, "_all_gather_base", 64), &[last]))
            },
            4,
        ),
        "dumps_wrong_label" => {
            let place = |rank| format!("node{rank}/trace_rank_0.json");
            vec![(place(0), labelled(0)), (place(1), labelled(1))]
        }
        "dumps_teardown" => teardown(),
        _ => panic!("{name}"),
    })
}

/// The gradient's all_reduce.
const OTHERS: Call<'static> = (10, "all_reduce", 64, OPEN);

fn missing_one(rank: u32) -> Option<String> {
    let gather = |seq, state| (seq, "_all_gather_base", 512, state);
    let first = vec![gather(288_685, DONE)];
    one(TWO, if rank == 0 { first } else { with(first, &[gather(288_686, OPEN)]) })
}

fn in_call(rank: u32) -> Option<String> {
    let calls = with(past(9, "all_reduce", 64), &[OTHERS]);
    let more = [(11, "all_reduce", 64, OPEN), (12, "all_reduce", 64, OPEN)];
    let mut group = world(TWO, if rank == 1 { with(calls, &more) } else { calls });
    group.enqueued = if rank == 0 { 9 } else { 12 };
    Some(dump(&[group]))
}

fn drift(rank: u32) -> Option<String> {
    let pattern = |step: u64| if step.is_multiple_of(2) { ("all_reduce", 4) } else { ("reduce_scatter", 64) };
    let shift = u64::from(rank == 1);
    let calls = (1..12).map(|seq| {
        let (op, elements) = pattern(if seq > 10 { seq + shift } else { seq });
        (seq, op, elements, if seq == 11 { OPEN } else { DONE })
    });
    one("[0, 1, 2]", calls.collect())
}

fn two_groups(_: u32) -> Option<String> {
    let open = |name| {
        let calls = with(past(9, "all_reduce", 64), &[OTHERS]);
        Group { name, ranks: TWO, enqueued: 10, completed: 9, calls }
    };
    Some(dump(&[open("0"), open("5")]))
}

/// A transfer at the beginning says whose dump it is.
fn labelled(rank: u32) -> String {
    let calls = past(9, "all_reduce", 64);
    let calls = if rank == 0 { with(calls, &[OTHERS]) } else { calls };
    let mut value: Value = serde_json::from_str(&dump(&[world(TWO, calls)])).unwrap();
    let mut entry = value["entries"][0].clone();
    entry["profiling_name"] = json!(format!("nccl:{}", if rank == 0 { "send 0->1" } else { "recv 1<-0" }));
    (entry["is_p2p"], entry["p2p_seq_id"]) = (json!(true), json!(1));
    entry["time_created_ns"] = json!(1_795_000_000_000_000_000_u64 + u64::from(rank));
    let entries = value["entries"].as_array_mut().unwrap();
    entries.insert(0, entry);
    for (number, entry) in entries.iter_mut().enumerate() {
        entry["record_id"] = json!(number);
        entry["time_created_ns"] = json!(entry["time_created_ns"].as_u64().unwrap() + u64::from(rank));
    }
    value.to_string()
}

fn teardown() -> Vec<(String, String)> {
    let stack = [
        "destroy_process_group (torch/distributed/distributed_c10d.py:2200)",
        "cleanup (train.py:70)",
        "main (train.py:60)",
    ];
    let calls = || with(past(9, "all_reduce", 64), &[OTHERS]);
    let mut out = files(|rank| if rank < 2 { None } else { one(FOUR, calls()) }, 4);
    out.extend((0..2).map(|rank| (format!("pyspy_rank_{rank}.txt"), pyspy(50 + rank, &stack))));
    out
}
