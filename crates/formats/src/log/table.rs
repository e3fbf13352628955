//! Words and what a line that holds them is evidence for.
use mycroft_record::printed::Kind;

/// Words of single lines, first hit wins.
pub(super) const LINES: &[(&str, Kind)] = &[
    ("CUDA out of memory", Kind::DeviceMemory),
    ("HIP out of memory", Kind::DeviceMemory),
    ("OutOfMemoryError", Kind::DeviceMemory),
    ("oom_kill", Kind::HostMemory),
    ("oom-kill", Kind::HostMemory),
    ("ut of memory: Killed", Kind::HostMemory),
    ("uncorrectable ECC error", Kind::Device),
    ("uncorrectable NVLink error", Kind::Device),
    ("got signal: 2", Kind::Interrupt),
    ("KeyboardInterrupt", Kind::Interrupt),
    ("got signal: ", Kind::Teardown),
    ("watchdog got stuck for", Kind::Watchdog),
    ("Heartbeat monitor timed out", Kind::Watchdog),
    ("DUE TO TIME LIMIT", Kind::Cancelled),
    ("DUE TO PREEMPTION", Kind::Cancelled),
    ("DUE TO NODE FAILURE", Kind::Cancelled),
    ("CANCELLED AT", Kind::Cancelled),
    ("srun: error: ", Kind::Ended),
    ("failed (exitcode", Kind::Ended),
    ("Root Cause (first observed failure)", Kind::Ended),
    ("exitcode  :", Kind::Ended),
    ("Worker exit type", Kind::Ended),
    ("ChildFailedError", Kind::Ended),
    ("closing signal SIGTERM", Kind::Teardown),
    ("NCCL operations have failed or timed out", Kind::TimedOut),
    ("taking the entire process down", Kind::TimedOut),
    ("Stack trace of the failed collective", Kind::TimedOut),
    ("First PG on this rank to signal dumping", Kind::TimedOut),
    ("preparing to dump debug info", Kind::Spoke),
    ("flight recorder dump signal from another rank", Kind::Spoke),
    ("Segmentation fault", Kind::Teardown),
    ("Fatal Python error: Aborted", Kind::Teardown),
    ("received SIGABRT", Kind::Teardown),
    ("SIGSEGV", Kind::Teardown),
    ("Connection closed by peer", Kind::PeerGone),
    ("DistBackendError", Kind::PeerGone),
];

/// Words of an exception that say that it follows from what befell somebody else, or from the collective itself.
const FOLLOWS: &[&str] = &[
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "Watchdog caught",
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Socket Timeout",
    "NCCL error",
    "NCCL communicator was aborted",
    "ncclRemoteError",
    "ncclSystemError",
    "but received errors",
    "inconsistent 0 params",
    "Timed out waiting",
    "NCCL Error",
    "store->get(",
    "TCPStore",
    "Application timeout caused",
    "RayTaskError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "ConnectionResetError",
    "BrokenPipeError",
    "EOFError",
    "ActorDiedError",
    "WorkerCrashedError",
    "CalledProcessError",
    "DataLoader worker",
    "monitoredBarrier",
    "Detected mismatch between collectives",
];

/// What an exception is evidence for, by its last line.
pub(super) fn of_exception(text: &str) -> Kind {
    let memory = ["out of memory", "OutOfMemoryError"].iter().any(|words| text.contains(words));
    match text {
        _ if text.contains("SignalException") && text.contains("signal: 2") => Kind::Interrupt,
        _ if text.contains("SignalException") => Kind::Teardown,
        _ if text.starts_with("KeyboardInterrupt") => Kind::Interrupt,
        _ if text.contains("ChildFailedError") || text.starts_with("SystemExit") => Kind::Ended,
        _ if memory => Kind::DeviceMemory,
        _ if FOLLOWS.iter().any(|words| text.contains(words)) => Kind::PeerGone,
        _ => Kind::Exception,
    }
}

/// Words without which no line tells anything. Each has seven bytes or more, for the search of four bytes at a time.
pub(super) const TRIGGERS: &[&str] = &[
    "Watchdog caught",
    "work sequence id:",
    "detected by watchdog",
    "Timeout at NCCL",
    "dump signal due",
    "failed to pass",
    "join collective",
    "running collective",
    "Traceback (most",
    "Got completion",
    "NVRM: Xid",
    "NCCL WARN",
    "Init START",
    "Init COMPLETE",
    "ncclRemoteError",
    "ncclSystemError",
    "ncclUnhandledCudaError",
    "ncclInternalError",
    "socketProgress",
    "Message truncated",
    "Mismatched collective",
    "out of memory",
    "Out of memory",
    "OutOfMemoryError",
    "oom_kill",
    "oom-kill",
    "uncorrectable",
    "got signal",
    "KeyboardInterrupt",
    "watchdog got stuck",
    "Heartbeat monitor",
    "CANCELLED AT",
    "srun: error",
    "failed (exitcode",
    "Root Cause",
    "exitcode  :",
    "Worker exit type",
    "ChildFailedError",
    "SIGTERM",
    "NCCL operations have",
    "taking the entire",
    "Stack trace of the failed",
    "First PG on this rank",
    "preparing to dump",
    "flight recorder dump",
    "Segmentation fault",
    "Fatal Python error",
    "SIGABRT",
    "SIGSEGV",
    "Connection closed",
    "Connection reset",
    "DistBackendError",
    "elapsed time per",
    "tflops: ",
    "iter time (s)",
    "SamplesPerSec=",
    "train_step_timing",
    "timing_s/step",
    "step_time",
    "step time",
    "iter_time",
    "iteration_time",
    "iteration time",
    "data_time",
    "time (ms) |",
    ", time ",
    "have launched up to",
    "operation counts",
    "RUNNING ",
    "Missing communicator",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_reached_by_a_trigger() {
        for (words, _) in LINES {
            let known = TRIGGERS.iter().any(|trigger| words.contains(trigger) || words.contains(trigger.trim_end()));
            let partly = [
                "HIP out of memory",
                "ut of memory: Killed",
                "DUE TO TIME LIMIT",
                "DUE TO PREEMPTION",
                "DUE TO NODE FAILURE",
                "exitcode  :",
            ];
            assert!(known || partly.contains(words), "{words}");
        }
        assert!(TRIGGERS.iter().all(|words| words.len() >= 7));
    }

    #[test]
    fn exceptions_are_told_from_their_consequences() {
        assert_eq!(of_exception("torch.OutOfMemoryError: CUDA out of memory. Tried"), Kind::DeviceMemory);
        assert_eq!(of_exception("KeyError: 'loss'"), Kind::Exception);
        assert_eq!(of_exception("RuntimeError: [pair.cc:547] Connection closed by peer [10.0.0.7]:3"), Kind::PeerGone);
        assert_eq!(of_exception("torch.distributed.elastic.SignalException: Process 4 got signal: 2"), Kind::Interrupt);
        assert_eq!(of_exception("torch.distributed.elastic.SignalException: Process 4 got signal: 15"), Kind::Teardown);
    }
}
