//! Ctrl-C and SIGTERM as a flag: whoever started something sees it and cleans up.
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

    /// Nobody will ask.
    #[cfg(test)]
    pub(crate) fn never() -> Stop {
        Stop(Arc::default())
    }

    /// Whether somebody asked us to stop.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
