//! Limits of the measurement, each with its arithmetic, and the length of an epoch (Pulse, sections 4.2 and 4.3).

/// Nanoseconds of an epoch unless another length is asked for (Pulse, section 4.3).
pub const EPOCH_NS_DEFAULT: u64 = 32_000;
/// Shortest epoch, nanoseconds: a packet of 4 KB takes 82 ns at 400 Gb/s; below a microsecond an epoch is a packet.
pub const EPOCH_NS_MIN: u64 = 1_000;
/// Longest epoch, nanoseconds: gaps that stragglers make end at a millisecond (Pulse, section 6.1); ten show them coarse.
pub const EPOCH_NS_MAX: u64 = 10_000_000;

/// Bytes of one unit at 32 us and below. 65,535 units of 32 bytes in 32 us are 65.5 GB/s, 524 Gb/s: more than a port of
/// 400 Gb/s sends, so the 16 bits of an epoch do not overflow (Pulse, section 4.3).
pub const UNIT_BYTES_MIN: u64 = 32;
/// Most units in an epoch: 16 bits.
pub const UNITS_MAX: u64 = u16::MAX as u64;
/// Bytes per second of the fastest port that an epoch must hold: 400 Gb/s.
pub const PORT_BYTES_PER_SEC: u64 = 50_000_000_000;

/// Nanoseconds between two polls: the host asks each second (Pulse, section 4.3).
pub const POLL_NS: u64 = 1_000_000_000;
/// Epochs of a chunk, the piece in which a flow gets memory: 1 KiB; 16.4 ms at 32 us.
pub const CHUNK_EPOCHS: usize = 512;
/// Chunks that a flow's window may reach beyond what a poll period needs: one that the period's end cuts, and one for events
/// that come while a poll is late.
pub const CHUNKS_SPARE: usize = 2;
/// Chunks that the pool takes from the allocator at once: 256 KiB.
pub const BATCH_CHUNKS: usize = 256;

/// Flows that can each fill every epoch of a poll period (Pulse, section 4.3).
pub const FULL_FLOWS: usize = 2_000;
/// Most flows at a time, full or not: 65,536 x about 0.7 KiB of state and window = 45 MiB.
pub const FLOWS_MAX: usize = 1 << 16;

/// Epochs with bytes that were sent before, of all flows between two polls, that are told of: 24 bytes each, 24 MiB; those of 33 flows
/// that send all the time and lose packets all the time.
pub const RESENT_MAX: usize = 1 << 20;

/// Entries of a queue pair number: 24 bits.
pub const QUEUE_PAIRS: usize = 1 << 24;
/// Entries of a page of the direct-address table: 4 KiB.
pub const PAGE_ENTRIES: usize = 1 << 10;

/// Bytes that the measurement of [`FULL_FLOWS`] full flows may take (Pulse, section 4.3: 64 MB of table and 2,000 x 31,250
/// x 2 bytes; in its units 184 MB). Here, at 32 us and a second: 64 chunks of 1 KiB x 2,000 = 131.1 MB in batches, 2,000
/// pages of 4 KiB at worst = 8.2 MB, 16,384 places of pages = 0.3 MB, and 2,000 x 0.5 KiB of windows and state = 1 MB:
/// 140.6 MB.
pub const MEMORY_BYTES_MAX: usize = 184_000_000;

const _: () = {
    let window = POLL_NS.div_ceil(EPOCH_NS_DEFAULT * CHUNK_EPOCHS as u64) + CHUNKS_SPARE as u64;
    let epochs = FULL_FLOWS as u64 * window * CHUNK_EPOCHS as u64 * 2;
    let pages = FULL_FLOWS * PAGE_ENTRIES * 4 + QUEUE_PAIRS / PAGE_ENTRIES * 16;
    let states = FULL_FLOWS * 512;
    assert!(epochs + pages as u64 + states as u64 <= MEMORY_BYTES_MAX as u64);
    assert!(UNIT_BYTES_MIN * UNITS_MAX >= PORT_BYTES_PER_SEC / 1_000 * EPOCH_NS_DEFAULT / 1_000_000);
};

/// How time and volume are cut: the length of an epoch, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grain {
    epoch_ns: u64,
    unit_bytes: u64,
}

impl Default for Grain {
    fn default() -> Grain {
        Grain { epoch_ns: EPOCH_NS_DEFAULT, unit_bytes: UNIT_BYTES_MIN }
    }
}

impl Grain {
    /// Epochs of `epoch_ns` nanoseconds; none where that is outside [`EPOCH_NS_MIN`] to [`EPOCH_NS_MAX`]. The unit is the
    /// smallest power of two, from [`UNIT_BYTES_MIN`], of which 65,535 hold what a port of 400 Gb/s sends in an epoch.
    #[must_use]
    pub fn new(epoch_ns: u64) -> Option<Grain> {
        if !(EPOCH_NS_MIN..=EPOCH_NS_MAX).contains(&epoch_ns) {
            return None;
        }
        let most = PORT_BYTES_PER_SEC / 1_000 * epoch_ns / 1_000_000;
        let mut unit_bytes = UNIT_BYTES_MIN;
        while unit_bytes * UNITS_MAX < most {
            unit_bytes *= 2;
        }
        Some(Grain { epoch_ns, unit_bytes })
    }

    /// Nanoseconds of an epoch.
    #[must_use]
    pub fn epoch_ns(self) -> u64 {
        self.epoch_ns
    }

    /// Bytes of a unit, a power of two.
    #[must_use]
    pub fn unit_bytes(self) -> u64 {
        self.unit_bytes
    }

    /// The epoch of a time in nanoseconds.
    #[must_use]
    pub fn epoch(self, time_ns: u64) -> u64 {
        time_ns / self.epoch_ns
    }

    /// Chunks of a flow's window: a poll period and [`CHUNKS_SPARE`].
    #[must_use]
    pub fn window_chunks(self) -> usize {
        let chunk_ns = self.epoch_ns * CHUNK_EPOCHS as u64;
        usize::try_from(POLL_NS.div_ceil(chunk_ns)).unwrap_or(usize::MAX).saturating_add(CHUNKS_SPARE)
    }

    /// Most chunks that the pool gives out: those of [`FULL_FLOWS`] full windows.
    #[must_use]
    pub fn chunks_max(self) -> usize {
        self.window_chunks() * FULL_FLOWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_grows_with_the_epoch_so_that_a_port_fits() {
        let unit = |epoch_ns| Grain::new(epoch_ns).map(Grain::unit_bytes);
        assert_eq!(unit(8_000), Some(32));
        assert_eq!(unit(32_000), Some(32));
        assert_eq!(unit(64_000), Some(64));
        assert_eq!(unit(1_024_000), Some(1024));
        assert_eq!(unit(EPOCH_NS_MIN - 1), None);
        assert_eq!(unit(EPOCH_NS_MAX + 1), None);
        assert_eq!(Grain::new(EPOCH_NS_DEFAULT), Some(Grain::default()));
    }

    #[test]
    fn a_window_holds_a_poll_period() {
        assert_eq!(Grain::default().window_chunks(), 64);
        assert_eq!(Grain::new(EPOCH_NS_MAX).map(Grain::window_chunks), Some(3));
    }
}
