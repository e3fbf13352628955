//! One frame of an agent as frames of one job each, none larger than a broker takes.
use mycroft_record::{Batch, JobName};
use mycroft_wire::codec;

/// Largest frame of a record. Brokers take 1 MB by default (`message.max.bytes`), with the record's own head.
pub(super) const FRAME_BYTES_MAX: usize = 900_000;

/// Frames of one job each, in their order: the same bytes where there is one job, and room.
///
/// # Errors
/// What is wrong with the frame: it can never be sent.
pub(super) fn split(frame: &[u8]) -> Result<Vec<(JobName, Vec<u8>)>, String> {
    let batches = codec::decode(frame).map_err(|error| error.to_string())?.batches;
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let job = first.source.job.clone();
    if frame.len() <= FRAME_BYTES_MAX && batches.iter().all(|batch| batch.source.job == job) {
        return Ok(vec![(job, frame.to_vec())]);
    }
    let mut jobs: Vec<(JobName, Vec<Batch>)> = Vec::new();
    for batch in batches {
        match jobs.iter_mut().find(|(job, _)| *job == batch.source.job) {
            Some((_, batches)) => batches.push(batch),
            None => jobs.push((batch.source.job.clone(), vec![batch])),
        }
    }
    let mut out = Vec::new();
    for (job, batches) in jobs {
        fit(&job, batches, &mut out)?;
    }
    Ok(out)
}

/// Halves what does not fit: batches, and of one batch its records.
fn fit(job: &JobName, mut batches: Vec<Batch>, out: &mut Vec<(JobName, Vec<u8>)>) -> Result<(), String> {
    let frame = codec::encode(&batches).map_err(|error| error.to_string())?;
    if frame.len() <= FRAME_BYTES_MAX {
        out.push((job.clone(), frame));
        return Ok(());
    }
    let behind = if let [one] = &mut batches[..] {
        if one.records.len() < 2 {
            return Err(format!("one record takes {} bytes", frame.len()));
        }
        let records = one.records.split_off(one.records.len() / 2);
        vec![Batch { source: one.source.clone(), collected_at: one.collected_at, records }]
    } else {
        batches.split_off(batches.len() / 2)
    };
    fit(job, batches, out)?;
    fit(job, behind, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{HostTime, Record, Source, StepMark};

    fn batch(job: &str, host: &str, records: u64) -> Batch {
        // Steps that nothing predicts, so that they take room.
        let mark = |n: u64| {
            let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            Record::StepMark(StepMark { at: HostTime(1000), step: mixed ^ mixed >> 27 })
        };
        let source = Source { job: job.into(), host: host.into(), process: None };
        Batch { source, collected_at: HostTime(1000), records: (0..records).map(mark).collect() }
    }

    #[test]
    fn a_frame_of_one_job_goes_as_it_came() {
        let frame = codec::encode(&[batch("a", "h0", 3), batch("a", "h1", 2)]).expect("it fits");
        assert_eq!(split(&frame), Ok(vec![("a".into(), frame)]));
    }

    #[test]
    fn jobs_of_a_host_go_apart_and_keep_their_order() {
        let frame = codec::encode(&[batch("a", "h0", 3), batch("b", "h0", 1), batch("a", "h0", 2)]).expect("it fits");
        let parts = split(&frame).expect("frames");
        let batches = |at: usize| codec::decode(&parts[at].1).expect("a frame").batches;
        assert_eq!(parts.iter().map(|(job, _)| job.to_string()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(batches(0), [batch("a", "h0", 3), batch("a", "h0", 2)]);
        assert_eq!(batches(1), [batch("b", "h0", 1)]);
        assert!(split(b"no frame").is_err());
    }

    #[test]
    fn what_a_broker_would_not_take_goes_in_pieces() {
        let batches = [batch("a", "h0", 200_000), batch("a", "h1", 5), batch("a", "h2", 50_000)];
        let frame = codec::encode(&batches).expect("it fits");
        assert!(frame.len() > FRAME_BYTES_MAX, "{}", frame.len());
        let parts = split(&frame).expect("frames");
        assert!(parts.len() > 2 && parts.iter().all(|(_, part)| part.len() <= FRAME_BYTES_MAX));
        let of = |host: &str| {
            let all = parts.iter().flat_map(|(_, part)| codec::decode(part).expect("a frame").batches);
            all.filter(|batch| &*batch.source.host == host).flat_map(|batch| batch.records).collect::<Vec<_>>()
        };
        assert!(batches.iter().all(|batch| of(&batch.source.host) == batch.records));
    }
}
