//! Batches to bytes and back.
use mycroft_record::Batch;

/// Why batches could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// More than one frame may hold; send fewer batches at once.
    #[error("encoding a frame: {records} records, at most {max} fit; split the batches")]
    TooManyRecords {
        /// How many there were.
        records: usize,
        /// The limit.
        max: usize,
    },
}

/// Encodes batches into one frame. Batches of several processes of a host compress better together.
pub fn encode(batches: &[Batch]) -> Result<Vec<u8>, EncodeError> {
    let _ = batches;
    Ok(Vec::new())
}
