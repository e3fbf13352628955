//! A gigabyte of what a job of 1,024 ranks prints, made here: mostly lines that tell nothing, and at the end a watchdog.
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Ranks of the job.
pub(super) const RANKS: u32 = 1024;
/// The rank that never comes.
pub(super) const MISSING: u32 = 513;
/// Length of the log, bytes.
pub(super) const BYTES: u64 = 1 << 30;
/// The operation at which all others wait.
const SEQ: u64 = 81_920;

/// Kinds of lines of which logs of real jobs consist, most of them of NCCL's start and of loggers.
fn line(out: &mut impl Write, nth: u64) -> std::io::Result<usize> {
    let (rank, step) = (nth * 7 % u64::from(RANKS), nth / 64);
    let (host, local) = (rank / 8, rank % 8);
    let text = match nth % 64 {
        0 => format!(
            " [2026-01-05 10:{:02}:{:02}] iteration {step:8}/  500000 | consumed samples: {:12} | elapsed time per \
             iteration (ms): {}.{} | learning rate: 1.0E-05 | lm loss: 2.{} | grad norm: 1.1 |\n",
            step / 60 % 60,
            step % 60,
            step * 512,
            2000 + nth % 37,
            nth % 10,
            nth % 999
        ),
        1..=3 => format!("\r 41%|####      | {step}/500000 [10:15<14:45,  2.0{}s/it]", nth % 10),
        4..=30 => format!(
            "[rank{rank}]: node{host}:{}:{} [{local}] NCCL INFO Channel {:02}/0 : {rank}[{local}] -> {}[0] [send] via \
             NET/IB/{local}/GDRDMA/Shared\n",
            4000 + local,
            5000 + local,
            nth % 16,
            (rank + 8) % u64::from(RANKS)
        ),
        31..=50 => format!(
            "[rank{rank}]: 2026-01-05 10:00:{:02},123 - trainer.data - INFO - shard {nth} of epoch 3: 4096 sequences, \
             mean length 1873, packing 0.97\n",
            nth % 60
        ),
        51..=60 => format!("[rank{rank}]: memory allocated 61.{} GiB, reserved 70.1 GiB, step {step}\n", nth % 100),
        _ => "[rank0]: WARNING:root:tokenizers: the current process got forked, disabling parallelism\n".to_owned(),
    };
    out.write_all(text.as_bytes())?;
    Ok(text.len())
}

/// Writes it; how many bytes it has.
pub(super) fn write(path: &Path) -> Result<u64> {
    let writing = || format!("writing {}", path.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).with_context(writing)?);
    let (mut bytes, mut nth) = (0, 0);
    while bytes < BYTES {
        bytes += line(&mut out, nth).with_context(writing)? as u64;
        nth += 1;
    }
    for rank in (0..RANKS).filter(|rank| *rank != MISSING) {
        let text = format!(
            "\n[rank{rank}]:[E105 10:31:00.123456 ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum={SEQ}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, \
             Timeout(ms)=600000) ran for 600{:03} milliseconds before timing out.",
            rank % 1000
        );
        bytes += text.len() as u64;
        out.write_all(text.as_bytes()).with_context(writing)?;
    }
    out.flush().with_context(writing)?;
    Ok(bytes)
}
