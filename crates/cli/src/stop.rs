//! Ctrl-C and SIGTERM as a flag: whoever started something sees it and cleans up.
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::error;

/// How often it is looked whether somebody asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The process could not do all that it should.
const EXIT_FAILED: u8 = 1;

/// Set once somebody asked us to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens to SIGINT, SIGTERM and SIGHUP. A second signal ends the process at once.
    pub(crate) fn on_signals() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // Order matters: the first registration ends the process only when the flag is already set.
            signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
                .context("cannot listen to signals")?;
            signal_hook::flag::register(signal, flag.clone()).context("cannot listen to signals")?;
        }
        Ok(Stop(flag))
    }

    /// Ends the process, a daemon with a log, when it has not ended so long after it was asked to; `what` says what is given up.
    pub(crate) fn within(&self, limit: Duration, what: &'static str) -> Result<()> {
        let asked = self.clone();
        let watch = move || {
            while !asked.asked() {
                std::thread::sleep(LOOK_EVERY);
            }
            std::thread::sleep(limit);
            error!("not ended {} s after it was asked to: {what}", limit.as_secs_f32());
            std::process::exit(i32::from(EXIT_FAILED));
        };
        std::thread::Builder::new().spawn(watch).context("cannot start a thread")?;
        Ok(())
    }

    /// Nobody will ask.
    #[cfg(test)]
    pub(crate) fn never() -> Stop {
        Stop(Arc::default())
    }

    /// Waits until somebody asks us to stop.
    pub(crate) fn wait(&self) {
        while !self.asked() {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether somebody asked us to stop.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
