//! Operations by name and places in a program, as recorders and logs tell them.
use crate::kind::OpKind;
use std::sync::Arc;

/// `profiling_name`, taken apart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OpName {
    /// As written, e.g. `nccl:all_reduce` or `nccl:send 0->1`.
    pub text: Arc<str>,
    /// Library before the last colon, e.g. `nccl`.
    pub lib: Arc<str>,
    /// Operation without library and peers, e.g. `all_reduce`, `send`, `_reduce_scatter_base`.
    pub op: Arc<str>,
    /// The operation in our words; `Unknown` for names this version does not know and for those that have no word.
    pub kind: OpKind,
    /// Point-to-point: group rank that sends; `None` for any source.
    pub src: Option<u32>,
    /// Point-to-point: group rank that receives.
    pub dst: Option<u32>,
}

/// One line of a call stack.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Frame {
    /// Function, e.g. `all_reduce` or `<module>`.
    pub name: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Line; 0 where not known.
    pub line: u32,
}
