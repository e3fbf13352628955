//! How one NCCL version acts: what its profiler calls look like, and how it cuts operations into channels and steps.
//!
//! `MYCROFT_TESTBED_NCCL=2.23|2.26|2.27|2.29|2.30` chooses a row of [`PERSONALITIES`]. Without it the library is what it was
//! before there were personalities ([`Personality::plain`]): it takes the newest interface that the plugin has, cuts by
//! its own simple rules, and shows nothing of the oddities below.

/// Names the personality.
pub const ENV: &str = "MYCROFT_TESTBED_NCCL";
/// Overrides [`Personality::setup_ms`].
pub const ENV_SETUP_MS: &str = "MYCROFT_TESTBED_NCCL_SETUP_MS";

/// What differs between NCCL versions. Each field names NCCL's file where it can be read, in the release of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Personality {
    /// What [`ENV`] says; "default" for the library's own.
    pub name: &'static str,
    /// The release that the row was compared with.
    pub release: &'static str,
    /// The newest profiler interface that this version asks a plugin for; it takes older ones, too (`plugin/profiler.cc`).
    pub abi: u8,
    /// ProxyOp states 0 to 7 with their counts (up to 2.26) instead of in-progress and peer-wait (`transport/net.cc`).
    pub op_states: bool,
    /// Steps are raw steps instead of slices, and each slice is told as several (2.23; `misc/profiler.cc`).
    pub raw_steps: bool,
    /// API events exist and tasks hang under them (2.28 and later; `plugin/profiler.cc`).
    pub api_events: bool,
    /// A ProxyOp starts when the proxy first works on it (up to 2.26), not when it is appended (`proxy.cc`).
    pub op_starts_late: bool,
    /// A pass that finds several receives done stops only the first one's step (2.26; `recvProxyProgress`: the number of the
    /// step is read before the loop).
    pub stops_one_receive_a_pass: bool,
    /// Of the point-to-point operations of one kernel that share a channel and a direction only the first gets a ProxyOp
    /// event, and only it gets ProxyStep events (2.27; `proxy.cc`, `ncclProxyOpToArgs` returns early for the others).
    pub one_op_a_channel: bool,
    /// A Broadcast gets API events only, unless `NCCL_ALLGATHERV_ENABLE=0` (2.29, 2.30; `enqueue.cc`: its task is made
    /// without an activation mask).
    pub hides_broadcast: bool,
    /// `finalize` is called by a thread of its own (2.26; `init.cc`, communicators are reclaimed by a job).
    pub finalizes_elsewhere: bool,
    /// AllGather and Broadcast are told in bytes (`enqueue.cc`, `taskAppend`); the descriptor says the most channels that the
    /// operation may use before 2.27, those that it does use from then on.
    pub tells_most_channels: bool,
    /// Operations are cut as NCCL cuts them: algorithm, protocol, channels and threads by size (`graph/tuning.cc`,
    /// `enqueue.cc`), double tree over hosts with chains inside (`graph/trees.cc`), order and channels of transfers by the
    /// peer-to-peer schedule (`init.cc`).
    pub nccl_plan: bool,
    /// A transfer uses at most two channels a peer, less with many ranks (2.29 and later; `graph/paths.cc`). Before: all.
    pub few_p2p_channels: bool,
    /// What the first operation of a communicator waits for its connections when a plugin is loaded, in milliseconds. Seen:
    /// 500 to 2,000 ms in all versions with any plugin. 500 ms is the poll interval of NCCL's proxy service thread
    /// (`proxy.cc`), the smallest wait that one missed wake-up explains.
    pub setup_ms: u64,
}

const BASE: Personality = Personality {
    name: "default",
    release: "",
    abi: 6,
    op_states: false,
    raw_steps: false,
    api_events: false,
    op_starts_late: false,
    stops_one_receive_a_pass: false,
    one_op_a_channel: false,
    hides_broadcast: false,
    finalizes_elsewhere: false,
    tells_most_channels: false,
    nccl_plan: false,
    few_p2p_channels: false,
    setup_ms: 0,
};

const NCCL: Personality = Personality { nccl_plan: true, setup_ms: 500, ..BASE };

const V2_26: Personality = Personality {
    name: "2.26",
    release: "2.26.2",
    abi: 3,
    op_states: true,
    op_starts_late: true,
    stops_one_receive_a_pass: true,
    finalizes_elsewhere: true,
    tells_most_channels: true,
    ..NCCL
};

const V2_29: Personality = Personality {
    name: "2.29",
    release: "2.29.7",
    api_events: true,
    hides_broadcast: true,
    few_p2p_channels: true,
    ..NCCL
};

/// All rows.
pub const PERSONALITIES: [Personality; 5] = [
    Personality {
        name: "2.23",
        release: "2.23.4",
        abi: 1,
        raw_steps: true,
        stops_one_receive_a_pass: false,
        finalizes_elsewhere: false,
        ..V2_26
    },
    V2_26,
    Personality { name: "2.27", release: "2.27.5", abi: 4, one_op_a_channel: true, ..NCCL },
    V2_29,
    Personality { name: "2.30", release: "2.30.7", ..V2_29 },
];

impl Personality {
    /// The library's own, under an interface version: each gets the events of its own NCCL release.
    #[must_use]
    pub fn plain(abi: u8) -> Personality {
        Personality { op_states: abi <= 3, raw_steps: abi == 1, api_events: abi >= 5, ..BASE }
    }

    /// The row of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Personality> {
        PERSONALITIES.into_iter().find(|row| row.name == name)
    }

    /// What [`ENV`] says: none where it is not set or empty.
    ///
    /// # Errors
    /// The value names no row; says which there are.
    pub fn from_env() -> Result<Option<Personality>, String> {
        let Ok(name) = std::env::var(ENV) else { return Ok(None) };
        if name.is_empty() {
            return Ok(None);
        }
        let known = PERSONALITIES.map(|row| row.name).join(", ");
        Personality::named(&name).map(Some).ok_or_else(|| format!("{ENV}={name}: expected one of {known}"))
    }

    /// What [`ENV`] says; a value that names nothing is told and not followed.
    #[must_use]
    pub fn current() -> Personality {
        let wanted = Personality::from_env().unwrap_or_else(|why| {
            crate::log::warn(&format!("{why}; the default is used"));
            None
        });
        wanted.unwrap_or(BASE)
    }

    /// What `ncclGetVersion` says: 22304 for 2.23.4.
    #[must_use]
    pub fn version(&self) -> i32 {
        let mut parts = self.release.split('.').map_while(|part| part.parse::<i32>().ok());
        match (parts.next(), parts.next(), parts.next()) {
            (Some(major), Some(minor), Some(patch)) => major * 10_000 + minor * 100 + patch,
            _ => crate::abi::VERSION,
        }
    }

    /// The personality that a plugin with interface `abi` meets.
    pub(crate) fn under(self, abi: u8) -> Personality {
        if self.nccl_plan { self } else { Personality::plain(abi) }
    }

    /// Whether the calls of a Broadcast get no event but those of the API.
    pub(crate) fn hides(&self, func: crate::abi::Func) -> bool {
        let switched_off = || std::env::var("NCCL_ALLGATHERV_ENABLE").is_ok_and(|v| v.trim() == "0");
        self.hides_broadcast && func == crate::abi::Func::Broadcast && !switched_off()
    }

    /// How long the first operation waits for its connections.
    pub(crate) fn setup(&self) -> std::time::Duration {
        let told = std::env::var(ENV_SETUP_MS).ok().and_then(|v| v.trim().parse().ok());
        std::time::Duration::from_millis(told.filter(|_| self.nccl_plan).unwrap_or(self.setup_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_name_and_the_default_none() {
        for row in PERSONALITIES {
            assert_eq!(Personality::named(row.name), Some(row));
            assert!(row.release.starts_with(row.name) && row.nccl_plan);
            assert_eq!(row.op_states, row.abi <= 3);
            assert_eq!(row.api_events, row.abi >= 5);
        }
        let versions = PERSONALITIES.map(|row| row.version());
        assert_eq!(versions, [22_304, 22_602, 22_705, 22_907, 23_007]);
        assert_eq!(BASE.version(), crate::abi::VERSION);
        assert_eq!(Personality::named("2.28"), None);
        assert!(!Personality::plain(4).nccl_plan && Personality::plain(1).raw_steps);
    }
}
