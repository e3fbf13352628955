//! Faults: what can be broken, where, how badly and when (Mycroft section 7.1 and three more).
use crate::profile::NEVER;
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

    /// Whether it needs a network to show at all.
    pub fn needs_network(self) -> bool {
        matches!(
            self,
            FaultKind::NicDown | FaultKind::NicBandwidth | FaultKind::BackgroundTraffic | FaultKind::ProxyDelay
        )
    }

    /// Whether it never ends: a process that is gone does not come back.
    pub fn is_final(self) -> bool {
        matches!(self, FaultKind::GpuHang | FaultKind::RankCrash | FaultKind::RankStuck)
    }

    /// Whether there is more or less of it, so that it can come on slowly.
    pub fn has_strength(self) -> bool {
        !self.is_final() && self != FaultKind::NicDown
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

/// One fault of a scenario. On the command line: `KIND@hostN[+hostM][:rankR][,severity=X]`, and `after`, `lasts`, `ramp`,
/// `every` in seconds like `severity`.
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
    /// Seconds between the job's first finished warm-up iteration and the fault (simulator: between the job's start and
    /// the fault).
    #[serde(default = "Fault::default_after_s")]
    pub after_s: f64,
    /// How long it lasts, seconds; for good when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<f64>,
    /// Over how many seconds it comes on, and goes away again where it ends; at once when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp_s: Option<f64>,
    /// It comes back every so many seconds, each time for `lasts_s`; once when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<f64>,
}

/// Steps in which a fault with `ramp_s` comes on.
pub const RAMP_STEPS: u32 = 8;
/// Longest time of a fault, seconds: a day, as the longest scenario.
const SECONDS_MAX: f64 = 86_400.0;

/// A stretch of time in which a fault acts with one strength.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    /// From, nanoseconds of the simulation.
    pub from: u64,
    /// Until; [`NEVER`] for good.
    pub until: u64,
    /// Share of the full severity, above 0, at most 1.
    pub strength: f64,
}

impl Fault {
    /// A fault of `kind` on `host` with defaults for the rest.
    pub fn new(kind: FaultKind, host: u32) -> Fault {
        Fault {
            kind,
            host,
            rank: None,
            peer_host: None,
            severity: None,
            after_s: Fault::default_after_s(),
            lasts_s: None,
            ramp_s: None,
            every_s: None,
        }
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

    /// When it acts, in the first `duration_s` seconds: stretches in time order that do not overlap.
    pub fn stretches(&self, duration_s: f64) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut begin = self.after_s;
        loop {
            self.occurrence(begin, &mut stretches);
            match self.every_s {
                Some(every) if self.lasts_s.is_some() && begin + every < duration_s => begin += every,
                _ => return stretches,
            }
        }
    }

    /// One occurrence: comes on in steps, lasts, goes away in steps.
    fn occurrence(&self, begin: f64, stretches: &mut Vec<Stretch>) {
        let end = self.lasts_s.map_or(NEVER, |lasts| nanos(begin + lasts));
        let Some(ramp) = self.ramp_s else {
            stretches.push(Stretch { from: nanos(begin), until: end, strength: 1.0 });
            return;
        };
        let steps = f64::from(RAMP_STEPS);
        for step in 0..RAMP_STEPS {
            let (from, strength) = (begin + ramp * f64::from(step) / steps, f64::from(step + 1) / steps);
            let last = step + 1 == RAMP_STEPS;
            let until = if last { end } else { nanos(begin + ramp * f64::from(step + 1) / steps) };
            stretches.push(Stretch { from: nanos(from), until, strength });
        }
        let Some(lasts) = self.lasts_s else { return };
        for step in 1..RAMP_STEPS {
            let at = |step: u32| nanos(begin + lasts + ramp * f64::from(step - 1) / steps);
            let strength = f64::from(RAMP_STEPS - step) / steps;
            stretches.push(Stretch { from: at(step), until: at(step + 1), strength });
        }
    }

    /// Checks the fault against a cluster's shape; the error is one line that names the field.
    pub fn check(&self, hosts: u32, ranks_per_host: u32) -> Result<(), String> {
        self.check_place(hosts, ranks_per_host)
            .and_then(|()| self.check_profile())
            .map_err(|why| format!("fault.{why}"))
    }

    /// Whether the testbed can do it; it must have passed [`Fault::check`].
    pub(crate) fn check_testbed(&self) -> Result<(), String> {
        for (field, value) in [("lasts_s", self.lasts_s), ("ramp_s", self.ramp_s), ("every_s", self.every_s)] {
            if let Some(value) = value {
                return Err(format!("fault.{field} = {value}: only the simulator plays this; leave it out"));
            }
        }
        Ok(())
    }

    /// Whether severity and times make sense; the error begins with the field.
    pub(crate) fn check_profile(&self) -> Result<(), String> {
        let kind = self.kind;
        let (least, greatest) = kind.severity_range();
        let severity = self.severity();
        if !(least..=greatest).contains(&severity) {
            return Err(format!(
                "severity = {severity}: expected {least} to {greatest} for {kind} ({})",
                kind.severity_meaning()
            ));
        }
        if !(0.0..=SECONDS_MAX).contains(&self.after_s) {
            return Err(format!("after_s = {}: expected seconds, 0 to {SECONDS_MAX}", self.after_s));
        }
        for (field, value) in [("lasts_s", self.lasts_s), ("ramp_s", self.ramp_s), ("every_s", self.every_s)] {
            if let Some(value) = value
                && !(value > 0.0 && value <= SECONDS_MAX)
            {
                return Err(format!("{field} = {value}: expected seconds, more than 0, at most {SECONDS_MAX}"));
            }
        }
        let lasts = self.lasts_s.unwrap_or(f64::INFINITY);
        match (self.lasts_s, self.ramp_s, self.every_s) {
            (Some(lasts), _, _) if kind.is_final() => Err(format!("lasts_s = {lasts}: {kind} is for good")),
            (_, Some(ramp), _) if !kind.has_strength() => Err(format!("ramp_s = {ramp}: {kind} is there or not")),
            (_, Some(ramp), _) if ramp > lasts => Err(format!("ramp_s = {ramp}: expected at most lasts_s = {lasts}")),
            (None, _, Some(every)) => Err(format!("every_s = {every}: only with lasts_s")),
            (_, ramp, Some(every)) if every <= lasts + ramp.unwrap_or(0.0) => {
                Err(format!("every_s = {every}: expected more than lasts_s + ramp_s"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the cluster has the fault's place; the error begins with the field.
    pub(crate) fn check_place(&self, hosts: u32, ranks_per_host: u32) -> Result<(), String> {
        let kind = self.kind;
        if self.host >= hosts {
            return Err(format!("host = {}: expected 0 to {} ({hosts} hosts)", self.host, hosts - 1));
        }
        let (first, last) = (self.host * ranks_per_host, (self.host + 1) * ranks_per_host - 1);
        match self.rank {
            Some(rank) if kind.level() != FaultLevel::Rank => {
                return Err(format!("rank = {rank}: {kind} is a fault of a host; leave the rank out"));
            }
            Some(rank) if !(first..=last).contains(&rank) => {
                return Err(format!("rank = {rank}: host {} has the global ranks {first} to {last}", self.host));
            }
            _ => {}
        }
        match self.peer_host {
            Some(peer) if kind.level() != FaultLevel::HostPair => {
                return Err(format!("peer_host = {peer}: only background-traffic has a second host, not {kind}"));
            }
            Some(peer) if peer >= hosts || peer == self.host => {
                return Err(format!("peer_host = {peer}: expected another host, 0 to {}", hosts - 1));
            }
            None if kind.level() == FaultLevel::HostPair && hosts < 2 => {
                return Err("kind = background-traffic: needs two hosts".to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
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
        let options =
            [("severity", self.severity), ("lasts", self.lasts_s), ("ramp", self.ramp_s), ("every", self.every_s)];
        for (name, value) in options {
            if let Some(value) = value {
                write!(f, ",{name}={value}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        const FORM: &str = "expected KIND@hostN[+hostM][:rankR][,severity=X][,after=S][,lasts=S][,ramp=S][,every=S]";
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
            let wrong = || format!("fault `{text}`: `{option}`: {FORM}");
            let (name, number) = option.split_once('=').ok_or_else(wrong)?;
            let number = number.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(wrong)?;
            match name {
                "severity" => fault.severity = Some(number),
                "after" => fault.after_s = number,
                "lasts" => fault.lasts_s = Some(number),
                "ramp" => fault.ramp_s = Some(number),
                "every" => fault.every_s = Some(number),
                _ => return Err(wrong()),
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
            "nic-bandwidth@host0,severity=4,lasts=30,ramp=5.5,every=60",
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
        assert!(check("gpu-power@host1,severity=0.5").unwrap_err().contains("fault.severity = 0.5: expected 1.1"));
        for (text, wanted) in [
            ("gpu-power,lasts=0", "fault.lasts_s = 0: expected seconds"),
            ("gpu-hang,lasts=5", "fault.lasts_s = 5: gpu-hang is for good"),
            ("nic-down,ramp=5", "fault.ramp_s = 5: nic-down is there or not"),
            ("gpu-power,lasts=5,ramp=6", "fault.ramp_s = 6: expected at most lasts_s = 5"),
            ("gpu-power,every=5", "fault.every_s = 5: only with lasts_s"),
            ("gpu-power,lasts=5,ramp=2,every=7", "fault.every_s = 7: expected more than"),
            ("gpu-power,after=-1", "fault.after_s = -1: expected seconds"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn culprits_have_defaults() {
        assert_eq!(Fault::new(FaultKind::GpuPower, 2).culprit_rank(4), Some(8));
        assert_eq!(Fault::new(FaultKind::NicDown, 2).culprit_rank(4), None);
        assert_eq!(Fault::new(FaultKind::BackgroundTraffic, 3).culprit_hosts(4), vec![1, 3]);
        assert_eq!(Fault::new(FaultKind::BackgroundTraffic, 0).culprit_hosts(2), vec![0, 1]);
    }
}
