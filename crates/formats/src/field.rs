//! The keys that dumps and py-spy use.

macro_rules! fields {
    ($($(#[$doc:meta])* $variant:ident = $text:literal;)+) => {
        /// A key this version knows.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Field {
            /// Any other string.
            Unknown,
            $($(#[$doc])* $variant,)+
        }
        impl Field {
            /// The field that this string names.
            pub(crate) fn of(text: &[u8]) -> Field {
                // Longer than every key: not looked at.
                if text.len() > 40 { return Field::Unknown }
                $(if text == $text.as_bytes() { return Field::$variant })+
                Field::Unknown
            }
        }
    };
}

fields! {
    /// Dump: format version.
    Version = "version";
    /// Dump: process groups.
    PgConfig = "pg_config";
    /// Dump: what was last done in each process group.
    PgStatus = "pg_status";
    /// Dump: library version, up to format 2.7.
    NcclVersion = "nccl_version";
    /// Dump: library version.
    CommLibVersion = "comm_lib_version";
    /// Dump: the operations.
    Entries = "entries";
    /// Dump: what `ncclCommDump` said.
    NcclCommState = "nccl_comm_state";
    /// Dump: findings of NVRx.
    HealthCheckResults = "health_check_results";
    /// Group or frame or thread: name.
    Name = "name";
    /// Group: description.
    Desc = "desc";
    /// Group: members.
    Ranks = "ranks";
    /// Status: highest number issued.
    LastEnqueued = "last_enqueued_collective";
    /// Status: highest number seen running.
    LastStarted = "last_started_collective";
    /// Status: highest number finished.
    LastCompleted = "last_completed_collective";
    /// Entry: call stack.
    Frames = "frames";
    /// Entry: number within the recorder.
    RecordId = "record_id";
    /// Entry: group within the process.
    PgId = "pg_id";
    /// Entry: name and description of the group.
    ProcessGroup = "process_group";
    /// Entry or py-spy thread: name.
    ThreadName = "thread_name";
    /// Entry or py-spy thread: pthread id.
    ThreadId = "thread_id";
    /// Entry: order number of a collective.
    CollectiveSeqId = "collective_seq_id";
    /// Entry: order number, before 2.2.
    SeqId = "seq_id";
    /// Entry: order number of a point-to-point operation.
    P2pSeqId = "p2p_seq_id";
    /// Entry: order number of any operation.
    OpId = "op_id";
    /// Entry: library, operation, peers.
    ProfilingName = "profiling_name";
    /// Entry: when it was issued.
    TimeCreated = "time_created_ns";
    /// Entry: time on the device.
    DurationMs = "duration_ms";
    /// Entry: sizes of inputs.
    InputSizes = "input_sizes";
    /// Entry: types of inputs.
    InputDtypes = "input_dtypes";
    /// Entry: sizes of outputs.
    OutputSizes = "output_sizes";
    /// Entry: types of outputs.
    OutputDtypes = "output_dtypes";
    /// Entry: scheduled, started, completed.
    State = "state";
    /// Entry: when it was noticed running.
    TimeStarted = "time_discovered_started_ns";
    /// Entry: when it was noticed finished.
    TimeCompleted = "time_discovered_completed_ns";
    /// Entry: no longer watched.
    Retired = "retired";
    /// Entry: limit of the watchdog.
    TimeoutMs = "timeout_ms";
    /// Entry: point-to-point.
    IsP2p = "is_p2p";
    /// Frame: source file.
    Filename = "filename";
    /// Frame: line.
    Line = "line";
    /// py-spy thread: process.
    Pid = "pid";
    /// py-spy thread: kernel thread id.
    OsThreadId = "os_thread_id";
    /// py-spy thread: on a processor.
    Active = "active";
    /// py-spy thread: holds the interpreter's lock.
    OwnsGil = "owns_gil";
    /// py-spy frame: shared library.
    Module = "module";
    /// py-spy frame: file without its folders.
    ShortFilename = "short_filename";
    /// py-spy frame: local variables.
    Locals = "locals";
    /// py-spy local: is an argument.
    Arg = "arg";
    /// py-spy local: printed value.
    Repr = "repr";
    /// py-spy: process of a thread.
    ProcessInfo = "process_info";
    /// py-spy process: its command line.
    CommandLine = "command_line";
    /// py-spy process: the process that started it.
    Parent = "parent";
    /// NVRx: outcome of a check.
    Status = "status";
    /// NVRx: text of a check.
    Output = "output";
    /// State word.
    Scheduled = "scheduled";
    /// State word.
    Started = "started";
    /// State word.
    Completed = "completed";
}
