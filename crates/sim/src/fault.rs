//! Faults: what can be broken, where, how badly and when (Mycroft section 7.1 and three more).
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The ten kinds of fault. The first seven are the paper's (Mycroft section 7.1, #1 to #7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// #1: the host's link goes down and stays down.
    NicDown,
    /// #2: the host's NIC moves only a fraction of what it could.
    NicBandwidth,
    /// #3: one rank copies slowly between device memory and the transport's slots.
    PcieDowngrade,
    /// #4: one rank's device computes slower.
    GpuPower,
    /// #5: all ranks of a host compute slower.
    BackgroundCompute,
    /// #6: other traffic shares the NICs of two hosts.
    BackgroundTraffic,
    /// #7: one rank's proxy thread falls asleep for a second now and then.
    ProxyDelay,
    /// One rank's device stops for good.
    GpuHang,
    /// One rank's process is killed.
    RankCrash,
    /// One rank's main thread never issues its next collective.
    RankStuck,
}

/// Whether a fault belongs to one rank or to a whole host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultLevel {
    /// One rank is the culprit.
    Rank,
    /// One host is the culprit.
    Host,
    /// Two hosts are.
    HostPair,
}

impl FaultKind {
    /// Every kind, the paper's seven first.
    pub const ALL: [FaultKind; 10] = [
        FaultKind::NicDown,
        FaultKind::NicBandwidth,
        FaultKind::PcieDowngrade,
        FaultKind::GpuPower,
        FaultKind::BackgroundCompute,
        FaultKind::BackgroundTraffic,
        FaultKind::ProxyDelay,
        FaultKind::GpuHang,
        FaultKind::RankCrash,
        FaultKind::RankStuck,
    ];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            FaultKind::NicDown => "nic-down",
            FaultKind::NicBandwidth => "nic-bandwidth",
            FaultKind::PcieDowngrade => "pcie-downgrade",
            FaultKind::GpuPower => "gpu-power",
            FaultKind::BackgroundCompute => "background-compute",
            FaultKind::BackgroundTraffic => "background-traffic",
            FaultKind::ProxyDelay => "proxy-delay",
            FaultKind::GpuHang => "gpu-hang",
            FaultKind::RankCrash => "rank-crash",
            FaultKind::RankStuck => "rank-stuck",
        }
    }

    /// Who the culprit is.
    pub fn level(self) -> FaultLevel {
        match self {
            FaultKind::NicDown | FaultKind::NicBandwidth | FaultKind::BackgroundCompute => FaultLevel::Host,
            FaultKind::BackgroundTraffic => FaultLevel::HostPair,
            _ => FaultLevel::Rank,
        }
    }

    /// Whether the job stops altogether (else it goes on, slower).
    pub fn stops_job(self) -> bool {
        matches!(self, FaultKind::NicDown | FaultKind::GpuHang | FaultKind::RankCrash | FaultKind::RankStuck)
    }

    /// What `severity` means for this kind, for help texts and error messages.
    pub fn severity_meaning(self) -> &'static str {
        match self {
            FaultKind::NicBandwidth => "how many times slower the NIC is",
            FaultKind::PcieDowngrade => "how many times slower the copy is than 64 MB/s",
            FaultKind::GpuPower | FaultKind::BackgroundCompute => "how many times longer compute takes",
            FaultKind::BackgroundTraffic => "other traffic, in multiples of the NIC's capacity",
            FaultKind::ProxyDelay => "percent of the sent steps that sleep for a second",
            _ => "not used: the fault is there or not",
        }
    }

    /// Severity used when none is given: large enough that an iteration takes at least 1.5 times as long on the
    /// shapes in `scenarios/`.
    pub fn default_severity(self) -> f64 {
        match self {
            FaultKind::NicBandwidth => 10.0,
            FaultKind::PcieDowngrade => 16.0,
            FaultKind::GpuPower | FaultKind::BackgroundCompute => 4.0,
            FaultKind::BackgroundTraffic => 0.95,
            FaultKind::ProxyDelay => 10.0,
            _ => 1.0,
        }
    }

    /// The severities that make sense, least and greatest.
    pub fn severity_range(self) -> (f64, f64) {
        match self {
            FaultKind::NicBandwidth | FaultKind::PcieDowngrade => (1.1, 1000.0),
            FaultKind::GpuPower | FaultKind::BackgroundCompute => (1.1, 100.0),
            FaultKind::BackgroundTraffic => (0.1, 0.98),
            FaultKind::ProxyDelay => (0.0001, 100.0),
            _ => (0.0, 1000.0),
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultKind, String> {
        FaultKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.as_str()).collect();
            format!("unknown fault `{text}`: expected one of {}", known.join(", "))
        })
    }
}

/// One fault of a scenario. On the command line: `KIND@hostN[+hostM][:rankR][,severity=X]`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What breaks.
    pub kind: FaultKind,
    /// Index of the host where it breaks.
    #[serde(default)]
    pub host: u32,
    /// Global rank, for faults of one rank; the first rank of the host when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The other host, for `background-traffic`; when absent the host half the cluster away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_host: Option<u32>,
    /// How bad; see [`FaultKind::severity_meaning`]. The kind's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<f64>,
    /// Seconds between the job's first finished warm-up iteration and the fault.
    #[serde(default = "Fault::default_after_s")]
    pub after_s: f64,
}

impl Fault {
    /// A fault of `kind` on `host` with defaults for the rest.
    pub fn new(kind: FaultKind, host: u32) -> Fault {
        Fault { kind, host, rank: None, peer_host: None, severity: None, after_s: Fault::default_after_s() }
    }

    /// How bad it is.
    pub fn severity(&self) -> f64 {
        self.severity.unwrap_or_else(|| self.kind.default_severity())
    }

    /// Default of `after_s`: a healthy baseline of about twenty iterations first.
    pub fn default_after_s() -> f64 {
        8.0
    }

    /// The culprit rank on hosts of `ranks_per_host` ranks, for faults of one rank.
    pub fn culprit_rank(&self, ranks_per_host: u32) -> Option<u32> {
        (self.kind.level() == FaultLevel::Rank).then(|| self.rank.unwrap_or(self.host * ranks_per_host))
    }

    /// The culprit hosts (one, or two for `background-traffic`) in a cluster of `hosts`.
    pub fn culprit_hosts(&self, hosts: u32) -> Vec<u32> {
        match self.kind.level() {
            FaultLevel::HostPair => {
                let peer = self.peer_host.unwrap_or((self.host + (hosts / 2).max(1)) % hosts.max(1));
                let mut both = vec![self.host, peer];
                both.sort_unstable();
                both
            }
            _ => vec![self.host],
        }
    }

    /// Checks the fault against a cluster's shape; the error is one line that names the field.
    pub fn check(&self, hosts: u32, ranks_per_host: u32) -> Result<(), String> {
        let kind = self.kind;
        if self.host >= hosts {
            return Err(format!("fault.host = {}: expected 0 to {} ({hosts} hosts)", self.host, hosts - 1));
        }
        let (first, last) = (self.host * ranks_per_host, (self.host + 1) * ranks_per_host - 1);
        match self.rank {
            Some(rank) if kind.level() != FaultLevel::Rank => {
                return Err(format!("fault.rank = {rank}: {kind} is a fault of a host; leave the rank out"));
            }
            Some(rank) if !(first..=last).contains(&rank) => {
                return Err(format!("fault.rank = {rank}: host {} has the global ranks {first} to {last}", self.host));
            }
            _ => {}
        }
        match self.peer_host {
            Some(peer) if kind.level() != FaultLevel::HostPair => {
                return Err(format!("fault.peer_host = {peer}: only background-traffic has a second host, not {kind}"));
            }
            Some(peer) if peer >= hosts || peer == self.host => {
                return Err(format!("fault.peer_host = {peer}: expected another host, 0 to {}", hosts - 1));
            }
            None if kind.level() == FaultLevel::HostPair && hosts < 2 => {
                return Err("fault.kind = background-traffic: needs two hosts".to_owned());
            }
            _ => {}
        }
        let (least, greatest) = kind.severity_range();
        let severity = self.severity();
        if !(least..=greatest).contains(&severity) {
            return Err(format!(
                "fault.severity = {severity}: expected {least} to {greatest} for {kind} ({})",
                kind.severity_meaning()
            ));
        }
        if !(0.0..=86_400.0).contains(&self.after_s) {
            return Err(format!("fault.after_s = {}: expected seconds, 0 to 86400", self.after_s));
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@host{}", self.kind, self.host)?;
        if let Some(peer) = self.peer_host {
            write!(f, "+host{peer}")?;
        }
        if let Some(rank) = self.rank {
            write!(f, ":rank{rank}")?;
        }
        if let Some(severity) = self.severity {
            write!(f, ",severity={severity}")?;
        }
        Ok(())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        const FORM: &str = "expected KIND@hostN[+hostM][:rankR][,severity=X]";
        let mut parts = text.split(',');
        let (kind, place) = match parts.next().unwrap_or_default().split_once('@') {
            Some((kind, place)) => (kind, place),
            None => (text.split(',').next().unwrap_or_default(), "host0"),
        };
        let mut fault = Fault::new(kind.parse()?, 0);
        let (hosts, rank) = match place.split_once(':') {
            Some((hosts, rank)) => (hosts, Some(rank)),
            None => (place, None),
        };
        let (host, peer) = match hosts.split_once('+') {
            Some((host, peer)) => (host, Some(peer)),
            None => (hosts, None),
        };
        fault.host = numbered(host, "host").ok_or_else(|| format!("fault `{text}`: `{host}`: {FORM}"))?;
        if let Some(peer) = peer {
            let number = numbered(peer, "host").ok_or_else(|| format!("fault `{text}`: `{peer}`: {FORM}"))?;
            fault.peer_host = Some(number);
        }
        if let Some(rank) = rank {
            let number = numbered(rank, "rank").ok_or_else(|| format!("fault `{text}`: `{rank}`: {FORM}"))?;
            fault.rank = Some(number);
        }
        for option in parts {
            let severity = option.strip_prefix("severity=").and_then(|number| number.parse::<f64>().ok());
            match severity.filter(|number| number.is_finite()) {
                Some(number) => fault.severity = Some(number),
                None => return Err(format!("fault `{text}`: `{option}`: {FORM}")),
            }
        }
        Ok(fault)
    }
}

/// The number after `word`, as in `host3`; digits only.
fn numbered(text: &str, word: &str) -> Option<u32> {
    let digits = text.strip_prefix(word)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_form_round_trips() {
        for text in [
            "nic-down@host1",
            "gpu-power@host2:rank9,severity=3.5",
            "background-traffic@host0+host2",
            "proxy-delay@host0,severity=0.5",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        assert_eq!("gpu-hang".parse::<Fault>().unwrap().host, 0);
    }

    #[test]
    fn wrong_forms_say_what_was_expected() {
        for text in ["nic-dwn@host1", "nic-down@1", "nic-down@host", "nic-down@host+1", "nic-down@host1,sev=2", ""] {
            assert!(text.parse::<Fault>().unwrap_err().contains("expected"), "{text}");
        }
    }

    #[test]
    fn places_are_checked_against_the_cluster() {
        let check = |text: &str| text.parse::<Fault>().unwrap().check(4, 4);
        assert!(check("gpu-power@host2:rank9").is_ok());
        assert!(check("gpu-power@host2:rank3").unwrap_err().contains("8 to 11"));
        assert!(check("nic-down@host4").unwrap_err().contains("0 to 3"));
        assert!(check("nic-down@host1:rank4").unwrap_err().contains("leave the rank out"));
        assert!(check("background-traffic@host1+host1").is_err());
        assert!(check("gpu-power@host1,severity=0.5").unwrap_err().contains("1.1"));
    }

    #[test]
    fn culprits_have_defaults() {
        assert_eq!(Fault::new(FaultKind::GpuPower, 2).culprit_rank(4), Some(8));
        assert_eq!(Fault::new(FaultKind::NicDown, 2).culprit_rank(4), None);
        assert_eq!(Fault::new(FaultKind::BackgroundTraffic, 3).culprit_hosts(4), vec![1, 3]);
        assert_eq!(Fault::new(FaultKind::BackgroundTraffic, 0).culprit_hosts(2), vec![0, 1]);
    }
}
