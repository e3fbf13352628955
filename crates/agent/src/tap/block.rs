//! What the kernel wrote into a block of a ring (`TPACKET_V3`, Documentation/networking/packet_mmap.rst), in borrowed bytes.
use super::told::{Stamp, TapPacket};
use std::mem::{offset_of, size_of};

/// Where a block says how many packets it has, and where the first one begins.
const COUNT_AT: usize = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, num_pkts);
const FIRST_AT: usize =
    offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt);
/// Where a packet's address lies: behind its header, which is a multiple of the alignment.
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>();
const _: () = assert!(ADDRESS_AT.is_multiple_of(libc::TPACKET_ALIGNMENT));
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Shows each packet of a block, oldest first; how many there were. Offsets that lead out of the block end it.
pub(super) fn packets(block: &[u8], mut each: impl FnMut(&TapPacket<'_>)) -> u64 {
    let count = word(block, COUNT_AT).unwrap_or(0);
    let mut at = word(block, FIRST_AT).map_or(usize::MAX, size);
    let mut seen = 0;
    for _ in 0..count {
        let Some((packet, next)) = block.get(at..).and_then(packet) else { break };
        each(&packet);
        seen += 1;
        at = at.saturating_add(size(next));
    }
    seen
}

/// A packet at the beginning of these bytes, and how far the next one is.
fn packet(bytes: &[u8]) -> Option<(TapPacket<'_>, u32)> {
    let field = |at| word(bytes, at);
    let (seconds, nanos) =
        (field(offset_of!(libc::tpacket3_hdr, tp_sec))?, field(offset_of!(libc::tpacket3_hdr, tp_nsec))?);
    let status = field(offset_of!(libc::tpacket3_hdr, tp_status))?;
    let kept = size(field(offset_of!(libc::tpacket3_hdr, tp_snaplen))?);
    let begin = usize::from(half(bytes, offset_of!(libc::tpacket3_hdr, tp_mac))?);
    let direction = *bytes.get(ADDRESS_AT + offset_of!(libc::sockaddr_ll, sll_pkttype))?;
    let is_hardware = status & libc::TP_STATUS_TS_RAW_HARDWARE != 0;
    let packet = TapPacket {
        time_ns: u64::from(seconds) * NANOS_PER_SEC + u64::from(nanos),
        stamp: if is_hardware { Stamp::Hardware } else { Stamp::Software },
        wire_bytes: field(offset_of!(libc::tpacket3_hdr, tp_len))?,
        bytes: bytes.get(begin..begin.checked_add(kept)?)?,
        is_outgoing: direction == libc::PACKET_OUTGOING,
    };
    Some((packet, field(offset_of!(libc::tpacket3_hdr, tp_next_offset))?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn size(word: u32) -> usize {
    usize::try_from(word).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with packets of so many kept bytes, as the kernel lays it out.
    fn block(kept: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let put = |bytes: &mut Vec<u8>, at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        put(&mut bytes, COUNT_AT, u32::try_from(kept.len()).expect("few"));
        put(&mut bytes, FIRST_AT, 48);
        for (place, kept) in kept.iter().enumerate() {
            let at = 48 + place * 128;
            put(&mut bytes, at, 128);
            put(&mut bytes, at + offset_of!(libc::tpacket3_hdr, tp_sec), 7);
            put(&mut bytes, at + offset_of!(libc::tpacket3_hdr, tp_nsec), 5);
            put(&mut bytes, at + offset_of!(libc::tpacket3_hdr, tp_snaplen), *kept);
            put(&mut bytes, at + offset_of!(libc::tpacket3_hdr, tp_len), 1500);
            put(&mut bytes, at + offset_of!(libc::tpacket3_hdr, tp_status), libc::TP_STATUS_TS_RAW_HARDWARE);
            bytes[at + offset_of!(libc::tpacket3_hdr, tp_mac)] = 82;
            bytes[at + ADDRESS_AT + 10] = if place == 1 { libc::PACKET_OUTGOING } else { libc::PACKET_HOST };
        }
        bytes
    }

    #[test]
    fn packets_of_a_block_come_with_time_length_and_direction() {
        let mut told = Vec::new();
        let count = packets(&block(&[14, 20, 3]), |packet| {
            told.push((packet.time_ns, packet.wire_bytes, packet.bytes.len(), packet.is_outgoing));
            assert_eq!(packet.stamp, Stamp::Hardware);
        });
        assert_eq!(count, 3);
        let time = 7 * NANOS_PER_SEC + 5;
        assert_eq!(told, [(time, 1500, 14, false), (time, 1500, 20, true), (time, 1500, 3, false)]);
    }

    #[test]
    fn offsets_that_lead_out_of_a_block_end_it() {
        let whole = block(&[14, 4000, 3]);
        assert_eq!(packets(&whole, |_| {}), 1, "the second one says more bytes than there are");
        for cut in 0..whole.len() {
            packets(&whole[..cut], |_| {});
        }
        let mut wild = block(&[14]);
        wild[FIRST_AT..FIRST_AT + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(packets(&wild, |_| {}), 0);
    }
}
