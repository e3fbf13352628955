//! Keeping processors awake: a loop at idle priority on each.
//!
//! A core that sleeps wakes up later at one time than at another, on a virtual machine by tens of microseconds, and what
//! it had cached may be gone. NCCL's proxy threads spin, so that a training host's cores do not sleep. Ranks here do, and
//! with these loops beside them iterations vary less and the tracer's events run as they do there.
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Loops until dropped. The kernel lets them run only while nobody else wants the core (SCHED_IDLE).
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts one loop for each core that this process may use.
    ///
    /// # Errors
    /// A thread could not be started, or not be given that priority.
    pub fn start() -> io::Result<Awake> {
        let cores = std::thread::available_parallelism()?.get();
        let mut awake = Awake { stop: Arc::default(), threads: Vec::new() };
        let (told, results) = std::sync::mpsc::channel();
        for _ in 0..cores {
            let (stop, told) = (Arc::clone(&awake.stop), told.clone());
            let spin = move || {
                let idle = be_idle();
                let is_idle = idle.is_ok();
                // Whoever started this thread waits for the words of all.
                let _ = told.send(idle);
                drop(told);
                while is_idle && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let name = "mycroft-awake".to_owned();
            awake.threads.push(std::thread::Builder::new().name(name).spawn(spin)?);
        }
        drop(told);
        results.into_iter().collect::<io::Result<()>>()?;
        Ok(awake)
    }
}

/// Gives the calling thread the priority of a loop that nobody waits for.
fn be_idle() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a parameter of this frame; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_run_at_idle_priority_and_end() {
        let loops = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            // Field 41: the scheduling policy.
            let policies = stats.filter_map(|stat| {
                let (name, rest) = stat.rsplit_once(')')?;
                name.ends_with("(mycroft-awake").then(|| rest.split_whitespace().nth(38).unwrap().to_owned())
            });
            policies.collect::<Vec<_>>()
        };
        let awake = Awake::start().unwrap();
        let expected = vec![libc::SCHED_IDLE.to_string(); std::thread::available_parallelism().unwrap().get()];
        assert_eq!(loops(), expected);
        let stop = Arc::clone(&awake.stop);
        drop(awake);
        assert_eq!(Arc::strong_count(&stop), 1, "the threads are gone");
    }
}
