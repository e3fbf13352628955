//! Reads a file whole: as long as it says it is, and not without end.
use std::fs::File;
use std::io::Read;

/// Largest file that is read: a recorder of 1 M entries (500 times the default) with stacks is 240 MB.
pub(super) const FILE_BYTES_MAX: u64 = 512 << 20;
/// How much longer than it was a file may become while it is read: a log that a job still writes.
pub(super) const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// All of a file of `size` bytes, as far as the limits go; memory is taken as the file's length says, not doubled.
pub(super) fn read_whole(file: File, size: u64, bytes: &mut Vec<u8>) -> Result<(), String> {
    if size > FILE_BYTES_MAX {
        return Err(format!("{size} bytes, at most {FILE_BYTES_MAX} are read"));
    }
    let cannot_read = |error| format!("cannot be read: {error}");
    let room = usize::try_from(size).map_err(|error| error.to_string())?;
    bytes.try_reserve_exact(room).map_err(|_| format!("{size} bytes: no memory for them"))?;
    let mut file = file;
    file.by_ref().take(size).read_to_end(bytes).map_err(cannot_read)?;
    let mut more = vec![0; 64 << 10];
    loop {
        let count = file.read(&mut more).map_err(cannot_read)?;
        if count == 0 {
            return Ok(());
        }
        let whole = bytes.len() as u64 + count as u64;
        if whole > (size + GROWTH_BYTES_MAX).min(FILE_BYTES_MAX) {
            return Err(format!("longer than the {size} bytes that its length says: it grows, or has no end"));
        }
        bytes.try_reserve_exact(count).map_err(|_| format!("{whole} bytes: no memory for them"))?;
        bytes.extend_from_slice(&more[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `/proc` has no length, and some have no end.
    #[test]
    fn a_length_is_a_promise() {
        let file = File::open("/dev/zero").expect("it can be opened");
        let mut bytes = Vec::new();
        let why = read_whole(file, 100, &mut bytes).expect_err("it has no end");
        assert!(why.contains("100 bytes") && bytes.capacity() < 2 * GROWTH_BYTES_MAX as usize, "{why}");
        let file = File::open("/dev/zero").expect("it can be opened");
        let mut bytes = Vec::new();
        assert!(read_whole(file, FILE_BYTES_MAX + 1, &mut bytes).is_err() && bytes.capacity() == 0);
    }
}
