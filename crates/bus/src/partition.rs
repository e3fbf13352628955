//! Which partition a job is in: murmur2 of its name, as Kafka's own producers and `partitioner=murmur2` of librdkafka reckon.

/// The partition of a job in a topic of so many (at least one).
pub fn partition_of(job: &str, partitions: u32) -> u32 {
    (murmur2(job.as_bytes()) & 0x7fff_ffff) % partitions.max(1)
}

/// MurmurHash2 with Kafka's seed.
fn murmur2(bytes: &[u8]) -> u32 {
    const MIX: u32 = 0x5bd1_e995;
    // Names are some bytes long: what does not fit 32 bits is no name.
    let mut hash = 0x9747_b28c ^ (bytes.len() as u32);
    let mut chunks = bytes.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = chunk.iter().rev().fold(0u32, |k, byte| k << 8 | u32::from(*byte));
        k = k.wrapping_mul(MIX);
        k ^= k >> 24;
        hash = hash.wrapping_mul(MIX) ^ k.wrapping_mul(MIX);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0u32, |k, byte| k << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(MIX);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MIX);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of Kafka's own tests (`UtilsTest.testMurmur2`).
    #[test]
    fn names_hash_as_kafka_hashes_them() {
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }

    #[test]
    fn a_job_is_in_one_partition() {
        assert!((1..50).all(|partitions| partition_of("train-7", partitions) < partitions));
        assert_eq!(partition_of("train-7", 0), 0);
    }
}
