//! Numbers of a capture, in the order of bytes of whoever wrote it.

/// Which byte comes first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// The lowest.
    #[default]
    Little,
    /// The highest.
    Big,
}

impl Order {
    /// Two bytes at a place; 0 beyond the end, which the caller has checked.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let two = array::<2>(bytes, at);
        if self == Order::Little { u16::from_le_bytes(two) } else { u16::from_be_bytes(two) }
    }

    /// Four bytes.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let four = array::<4>(bytes, at);
        if self == Order::Little { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) }
    }

    /// Eight bytes.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let eight = array::<8>(bytes, at);
        if self == Order::Little { u64::from_le_bytes(eight) } else { u64::from_be_bytes(eight) }
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = at.checked_add(N).and_then(|end| bytes.get(at..end));
    found.and_then(|found| found.try_into().ok()).unwrap_or([0; N])
}
