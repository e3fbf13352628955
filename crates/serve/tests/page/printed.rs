//! An answer from what a job printed, read and judged as `mycroft autopsy` does.
use mycroft_diagnose::stacks::{Autopsy, Question, autopsy};
use mycroft_formats::{Naming, assemble, read};
use std::fmt::Write as _;

/// A rank whose loader raises; its peers time out in what it does not issue, and everybody is ended.
pub(crate) fn log(peers: u32) -> String {
    let mut text = String::from(
        "2026-07-14 11:09:58,201 [rank2]: Traceback (most recent call last):\n\
         2026-07-14 11:09:58,201 [rank2]:   File \"/srv/train/data.py\", line 90, in next_batch\n\
         2026-07-14 11:09:58,201 [rank2]:     return row['labels']\n\
         2026-07-14 11:09:58,201 [rank2]: KeyError: 'labels'\n",
    );
    for rank in (0..peers).filter(|rank| *rank != 2) {
        let _ = write!(
            text,
            "[rank{rank}]:[E714 11:20:{:02}.104 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=2048, NumelOut=2048, Timeout(ms)=600000) ran for 600011 \
             milliseconds before timing out.\n\
             [rank{rank}]:[E714 11:20:{:02}.304 ProcessGroupNCCL.cpp:2252] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  \
             failure detected by watchdog at work sequence id: 41 PG status: last enqueued work: 42, last completed work: 40\n",
            rank % 40,
            rank % 40
        );
    }
    text.push_str("W0714 11:20:58.5 elastic/multiprocessing/api.py:908 Sending process 71 closing signal SIGTERM\n");
    text
}

/// The answer to a log; empty: to nothing.
pub(crate) fn answer(log: &str) -> Autopsy {
    let piece = read("job.log", log.as_bytes(), &Naming::default());
    let bundle = assemble(vec![piece]).expect("no clash");
    autopsy(&bundle, &Question { grid: true })
}
