//! Findings: the words of a verdict, shared by everything that makes, scores or shows one.
use crate::ids::{HostName, Rank};
use crate::time::HostTime;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }
        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];
            /// The stable word.
            pub fn as_str(self) -> &'static str { match self { $($name::$variant => $text,)+ } }
            /// The value of a word.
            pub fn from_text(text: &str) -> Option<$name> { match text { $($text => Some($name::$variant),)+ _ => None } }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}

words!(
    /// What is wrong.
    What {
        /// Nothing completes any more.
        Hang, "hang";
        /// Everything completes, later than it used to.
        Slowdown, "slowdown";
        /// Ranks disagree on what operation number n is.
        Desync, "desync";
        /// A cycle of waiting.
        Deadlock, "deadlock";
        /// A process died.
        Crash, "crash";
    }
);

words!(
    /// What kind of fault (the paper, Table 4).
    Category {
        /// The rank's host thread never issued the operation its peers wait in.
        NotStarted, "not-started";
        /// The device computes slowly or not at all.
        Gpu, "gpu";
        /// The copy between device memory and the transport's slots is slow (PCIe, copy engine).
        GpuCopy, "gpu-copy";
        /// The host's proxy thread does not move data that is ready.
        HostThread, "host-thread";
        /// Data is ready or sent but not delivered: sender's NIC, its link, or its port.
        NetworkSend, "network-send";
        /// Data does not arrive at this host although senders transmit.
        NetworkReceive, "network-receive";
        /// Links between several hosts are slow together: other traffic, a switch.
        NetworkCongestion, "network-congestion";
        /// The process is gone.
        ProcessExit, "process-exit";
        /// The remote side of a connection.
        Peer, "peer";
        /// Sizes, types or splits differ between ranks.
        ArgumentMismatch, "argument-mismatch";
        /// Ranks took different branches.
        CodeDivergence, "code-divergence";
        /// Waiting for input data.
        DataLoading, "data-loading";
        /// Not told apart.
        Unknown, "unknown";
    }
);

/// What is blamed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// One rank (its GPU or process), and its host where known.
    Rank {
        /// Global rank.
        rank: Rank,
        /// Its host, empty if not known.
        host: HostName,
    },
    /// A whole host.
    Host {
        /// The host.
        host: HostName,
    },
    /// The network between two hosts, neither of which stands out.
    Link {
        /// The host that sends.
        from: HostName,
        /// The host that receives.
        to: HostName,
    },
}

impl Place {
    /// The rank, where one rank is blamed.
    pub fn rank(&self) -> Option<Rank> {
        match self {
            Place::Rank { rank, .. } => Some(*rank),
            Place::Host { .. } | Place::Link { .. } => None,
        }
    }

    /// The host that is blamed, or that the blamed rank runs on; `None` for a link, and where it is not known.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Place::Rank { host, .. } | Place::Host { host } => Some(host).filter(|host| !host.is_empty()),
            Place::Link { .. } => None,
        }
    }
}

/// A suspect with how sure we are.
#[derive(Clone, PartialEq, Debug)]
pub struct Suspect {
    /// What is blamed.
    pub place: Place,
    /// 0..=1.
    pub confidence: f64,
}

/// The one-line form of a verdict: enough to page somebody or to score a test.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What is wrong.
    pub what: What,
    /// What kind of fault.
    pub category: Category,
    /// Most likely first.
    pub suspects: Vec<Suspect>,
    /// When it began.
    pub since: HostTime,
    /// When the case was opened.
    pub detected_at: HostTime,
    /// When the suspect and category were settled; `NONE` while they are not.
    pub diagnosed_at: HostTime,
}
