//! Faults of the network, drawn from a seed: packets that are lost or passed by others, a limited rate, and queue pairs that
//! fail after a number of packets.

/// What goes wrong, as `MYCROFT_VERBS_FAULTS` says it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// Share of packets that are lost, in packets of a million.
    pub drop_ppm: u32,
    /// Share of packets that later ones pass by, in packets of a million.
    pub reorder_ppm: u32,
    /// Bytes that leave the device in a second, headers included; 0: as many as will.
    pub bytes_per_sec: u64,
    /// Packets of requests after which a queue pair fails; 0: never.
    pub fail_after: u64,
    /// Where the draws begin.
    pub seed: u64,
}

/// One million.
const MILLION: f64 = 1e6;

impl Faults {
    /// Reads `drop=0.01,reorder=0.02,rate=125000000,fail_after=1000,seed=7`, in any order; what is not said is off.
    ///
    /// # Errors
    /// Names the part that cannot be read.
    pub fn parse(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |why: &str| format!("{part}: {why}");
            let (name, value) = part.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE"))?;
            let number = || value.parse::<u64>().map_err(|_| wrong("expected a whole number"));
            let share = || match value.parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * MILLION) as u32),
                _ => Err(wrong("expected a share between 0 and 1")),
            };
            match name {
                "drop" => faults.drop_ppm = share()?,
                "reorder" => faults.reorder_ppm = share()?,
                "rate" => faults.bytes_per_sec = number()?,
                "fail_after" => faults.fail_after = number()?,
                "seed" => faults.seed = number()?,
                _ => return Err(wrong("expected drop, reorder, rate, fail_after or seed")),
            }
        }
        Ok(faults)
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives.
    Passes,
    /// It does not.
    Lost,
    /// It arrives after so many later ones, or after a while.
    After(u32),
}

/// Most packets that pass one by: three, after which receivers of TCP would call it lost (RFC 5681).
const PASSED_BY_MAX: u64 = 3;
/// What may leave at once beyond the rate: 100 us of it.
const BURST_NS: u64 = 100_000;

/// The network of one device.
#[derive(Debug)]
pub struct Network {
    faults: Faults,
    random: u64,
    /// When all that was sent will have left.
    free_ns: u64,
}

impl Network {
    /// A network with these faults.
    #[must_use]
    pub fn new(faults: Faults) -> Network {
        // xorshift needs a state that is not 0.
        Network { faults, random: faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, free_ns: 0 }
    }

    /// What was asked for.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// xorshift64*: small, seeded, good enough to draw rare events.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn hits(&mut self, ppm: u32) -> bool {
        ppm > 0 && (self.draw() * 1_000_000) >> 32 < u64::from(ppm)
    }

    /// Draws the fate of the next packet.
    pub fn fate(&mut self) -> Fate {
        if self.hits(self.faults.drop_ppm) {
            return Fate::Lost;
        }
        if self.hits(self.faults.reorder_ppm) {
            return Fate::After(1 + (self.draw() % PASSED_BY_MAX) as u32);
        }
        Fate::Passes
    }

    /// Nothing, or until when a packet must wait.
    #[must_use]
    pub fn wait_until_ns(&self, now_ns: u64) -> Option<u64> {
        let until = self.free_ns.saturating_sub(BURST_NS);
        (self.faults.bytes_per_sec > 0 && until > now_ns).then_some(until)
    }

    /// A packet of `bytes` leaves.
    pub fn leaves(&mut self, now_ns: u64, bytes: usize) {
        if let Some(takes_ns) = (bytes as u64 * 1_000_000_000).checked_div(self.faults.bytes_per_sec) {
            self.free_ns = self.free_ns.max(now_ns) + takes_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_refused() {
        let all = Faults { drop_ppm: 10_000, reorder_ppm: 500_000, bytes_per_sec: 5, fail_after: 6, seed: 7 };
        assert_eq!(Faults::parse(" drop=0.01, reorder=.5,rate=5,fail_after=6,seed=7"), Ok(all));
        assert_eq!(Faults::parse(""), Ok(Faults::default()));
        for (wrong, word) in
            [("drop", "NAME=VALUE"), ("drop=2", "share"), ("rate=-1", "whole"), ("x=1", "expected drop")]
        {
            let text = Faults::parse(wrong).unwrap_err();
            assert!(text.contains(word) && text.starts_with(wrong), "{text}");
        }
    }

    #[test]
    fn as_many_as_asked_for_and_the_same_again() {
        let faults = Faults { drop_ppm: 20_000, reorder_ppm: 100_000, seed: 3, ..Faults::default() };
        let fates = || {
            let mut network = Network::new(faults);
            (0..100_000).map(|_| network.fate()).collect::<Vec<_>>()
        };
        let count = |wanted: fn(&Fate) -> bool| fates().iter().filter(|fate| wanted(fate)).count();
        assert!((1_800..2_200).contains(&count(|fate| *fate == Fate::Lost)));
        assert!((9_400..10_200).contains(&count(|fate| matches!(fate, Fate::After(1..=3)))));
        assert_eq!(fates(), fates());
    }

    #[test]
    fn no_more_than_the_rate() {
        let mut network = Network::new(Faults { bytes_per_sec: 1_000_000, ..Faults::default() });
        let (mut now_ns, mut bytes) = (0, 0);
        while now_ns < 1_000_000_000 {
            match network.wait_until_ns(now_ns) {
                Some(until) => now_ns = until,
                None => {
                    network.leaves(now_ns, 1_000);
                    bytes += 1_000;
                }
            }
        }
        assert!((999_000..=1_002_000).contains(&bytes), "{bytes}");
        assert_eq!(Network::new(Faults::default()).wait_until_ns(0), None);
    }
}
