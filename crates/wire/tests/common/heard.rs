//! What a test hears of the servers that it starts, and of no other test's.
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tracing::subscriber::with_default;

/// Lines of the level info and above, as `LEVEL target: message field=value`.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    /// Does something, and hears it and the threads that it starts.
    pub(crate) fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let heard = self.clone();
        let lines = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || heard.clone());
        with_default(lines.finish(), act)
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("nobody panics inside");
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics inside").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
