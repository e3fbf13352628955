//! Words of a scenario: what is chosen among few.
use serde::{Deserialize, Serialize};

/// How hosts are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Network namespaces where the user may make them, else loopback.
    #[default]
    Auto,
    /// Network namespaces joined by a bridge.
    Netns,
    /// Addresses 127.0.0.x, with faults applied inside the transport.
    Loopback,
}

/// Algorithm for AllReduce, as `NCCL_ALGO` selects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algo {
    /// Ring.
    #[default]
    Ring,
    /// Double binary tree.
    Tree,
}

/// How data-parallel ranks agree on gradients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DpMode {
    /// ReduceScatter of gradients, AllGather of parameters (distributed optimizer).
    #[default]
    ReduceScatter,
    /// AllReduce of gradients.
    AllReduce,
    /// Fully sharded: parameters are gathered for each layer, gradients scattered after each (simulator only).
    Fsdp,
}

/// In which order a pipeline stage works off its micro-batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One forward, one backward.
    #[default]
    OneFOneB,
    /// The same over several chunks of layers per stage (simulator only).
    Interleaved,
}

macro_rules! text_enum {
    ($name:ident, $what:literal, $($text:literal => $variant:ident),+) => {
        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err(format!(concat!("unknown ", $what, " `{}`: expected one of ", $($text, " "),+), text)
                        .trim_end()
                        .to_owned()),
                }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }
    };
}
text_enum!(Transport, "transport", "auto" => Auto, "netns" => Netns, "loopback" => Loopback);
text_enum!(Algo, "algorithm", "ring" => Ring, "tree" => Tree);
text_enum!(DpMode, "data-parallel mode", "reduce-scatter" => ReduceScatter, "all-reduce" => AllReduce, "fsdp" => Fsdp);
text_enum!(Schedule, "schedule", "one-f-one-b" => OneFOneB, "interleaved" => Interleaved);
