//! A completed operation as it is kept: its times relative to its end.
use mycroft_record::HostTime;

/// A time relative to an operation's end in 32 bits: up to 16 ms after it (a device's clock is known to less than a
/// millisecond), to the nanosecond up to 2.1 s before it, to 1,024 ns up to 36 minutes, no longer than that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span(u32);

/// Set where the unit is 1,024 ns.
const COARSE: u32 = 1 << 31;
/// How far after the end a time may be, nanoseconds.
const AFTER_END_NS: u64 = 1 << 24;

impl Span {
    /// Of no time at all.
    const UNKNOWN: Span = Span(u32::MAX);

    pub(super) fn of(end: HostTime, at: HostTime) -> Span {
        let ns = (end + AFTER_END_NS).since_ns(at);
        match u32::try_from(ns) {
            Ok(ns) if ns < COARSE => Span(ns),
            _ => Span(COARSE | (ns >> 10).min(u64::from(COARSE - 1)) as u32),
        }
    }

    pub(super) fn at(self, end: HostTime) -> HostTime {
        let ns = if self.0 & COARSE == 0 { u64::from(self.0) } else { u64::from(self.0 & !COARSE) << 10 };
        end + AFTER_END_NS - ns
    }
}

/// A completed operation, in 28 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// The end, high and low half.
    pub(super) ended_at: [u32; 2],
    /// The other times, relative to the end.
    pub(super) enqueued: Span,
    pub(super) started: Span,
    /// When the device left it; the wire may be busy longer.
    pub(super) left: Span,
    pub(super) seq: u32,
    pub(crate) counter: u16,
    /// Its signature's number, `NO_MARK` when there are too many; `SMALL` and `STARTED` besides.
    pub(super) mark: u16,
}

/// Bits of `Raw::mark` that tell the signature; all of them: none.
pub(super) const NO_MARK: u16 = 0x1fff;
/// It goes around a ring.
pub(super) const RING: u16 = 1 << 13;
/// See `Weight::Small`.
pub(super) const SMALL: u16 = 1 << 15;
/// The time of its start is known.
pub(super) const STARTED: u16 = 1 << 14;

impl Raw {
    pub(crate) fn ended_at(&self) -> HostTime {
        HostTime(u64::from(self.ended_at[0]) << 32 | u64::from(self.ended_at[1]))
    }

    pub(super) fn started_at(&self) -> HostTime {
        self.started.at(self.ended_at())
    }

    /// When the device began it, by its kernel or by its flows.
    pub(super) fn began(&self) -> Option<HostTime> {
        (self.started != Span::UNKNOWN).then(|| self.started_at())
    }

    pub(super) fn is(&self, flag: u16) -> bool {
        self.mark & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_SEC;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// To the nanosecond from 16 ms after the end to 2.1 s before it, to a microsecond up to 36 minutes.
        #[test]
        fn spans_keep_what_matters(before in 0u64..4_000 * NANOS_PER_SEC, after in 0u64..AFTER_END_NS) {
            let end = HostTime(1_700_000_000 * NANOS_PER_SEC);
            prop_assert_eq!(Span::of(end, end + after).at(end), end + after);
            let at = end - before;
            let kept = Span::of(end, at).at(end);
            if before < (1 << 31) - AFTER_END_NS {
                prop_assert_eq!(kept, at);
            } else if before < (1 << 41) - AFTER_END_NS {
                prop_assert!(kept >= at && kept.since_ns(at) < 1024);
            } else {
                prop_assert!(end.since_ns(kept) >= (1 << 41) - AFTER_END_NS - 1024, "as long ago as it can be");
            }
        }
    }

    #[test]
    fn an_operation_takes_28_bytes() {
        assert_eq!(size_of::<Raw>(), 28);
    }
}

/// What collectives of one communicator took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Local {
    /// The communicator's order counter: of several the one that took most.
    pub counter: u16,
    pub us: f32,
}
