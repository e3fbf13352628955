//! The experiments of Pulse, appendix E, Table 4: three jobs, their failures and how bad each is.
use mycroft_sim::{Cluster, Fault, FaultKind, Life, Scenario};

/// A port of 400 Gb/s, bytes per second.
const NIC_BYTES_PER_SEC: u64 = 50_000_000_000;
/// PCIe gen5 x16 over that: 64 GB/s to 50 GB/s.
const PCIE_HEADROOM: f64 = 1.28;
/// The failure comes after so many seconds of a healthy job, and the capture ends after so many.
const BEGIN_S: f64 = 1.0;
const END_S: f64 = 3.5;
/// Shares of experts that are more or less busy (Pulse, section 7.2.4).
const IMBALANCE: f64 = 0.3;

/// One of the paper's jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// GPT-2, tensor parallel 8 x data parallel 4 x pipeline 2 on 64 GPUs.
    Gpt2,
    /// Mixtral, tensor parallel 8 x data and expert parallel 4 on 32 GPUs.
    Mixtral,
    /// Four GPUs of four hosts that exchange.
    Exchange,
}

/// What a failure is, which its answer must say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nature {
    /// Healthy.
    None,
    /// Computation stops.
    StopsComputing,
    /// Computation is slow.
    ComputesSlowly,
    /// Communication stops.
    StopsSending,
    /// Communication is slow.
    SendsSlowly,
}

/// One experiment.
pub(crate) struct Experiment {
    /// The job's word.
    pub(crate) job: &'static str,
    /// The failure's, as in the table.
    pub(crate) failure: &'static str,
    /// How bad, as in the table.
    pub(crate) severity: String,
    pub(crate) nature: Nature,
    pub(crate) scenario: Scenario,
}

impl Job {
    const ALL: [Job; 3] = [Job::Gpt2, Job::Mixtral, Job::Exchange];

    fn word(self) -> &'static str {
        match self {
            Job::Gpt2 => "GPT-2",
            Job::Mixtral => "Mixtral",
            Job::Exchange => "exchange",
        }
    }

    /// The job without a failure. Ports, slots and slices are real ones; models are smaller, so that a run takes a second.
    fn scenario(self, seed: u64) -> Scenario {
        let cluster = Cluster {
            nics_per_host: 8,
            latency_us: 5.0,
            copy_bytes_per_sec: 2_000_000_000_000,
            nvlink_bytes_per_sec: 450_000_000_000,
            slot_bytes: 512 << 10,
            ..Cluster::default()
        };
        let large = Scenario {
            seed,
            ranks_per_host: 8,
            tp: 8,
            dp: 4,
            tp_bytes: 64 << 20,
            dp_bytes: 256 << 20,
            nic_bytes_per_sec: NIC_BYTES_PER_SEC,
            duration_s: END_S,
            cluster,
            ..Scenario::default()
        };
        match self {
            Job::Gpt2 => Scenario { hosts: 8, pp: 2, pp_bytes: 64 << 20, ..large },
            Job::Mixtral => Scenario {
                hosts: 4,
                pp: 1,
                moe: true,
                ep: 4,
                ep_bytes: 64 << 20,
                micro_batches: 2,
                life: Life { routing_imbalance: IMBALANCE, ..Life::default() },
                ..large
            },
            // Equal parts to all three others: the simulator has no exchange with two neighbours of a square.
            Job::Exchange => Scenario {
                hosts: 4,
                ranks_per_host: 1,
                tp: 1,
                pp: 1,
                moe: true,
                ep: 4,
                ep_bytes: 1 << 30,
                dp_bytes: 4096,
                layers: 1,
                micro_batches: 1,
                loss_every: 0,
                life: Life { routing_imbalance: 1e-6, ..Life::default() },
                cluster: Cluster { nics_per_host: 1, ..large.cluster.clone() },
                ..large
            },
        }
    }

    /// The next host in its ring of gradients; in an exchange any other.
    fn next_host(self, host: u32) -> u32 {
        host / 4 * 4 + (host + 1) % 4
    }
}

/// All of the table for one seed, and each job without a failure. The seed decides what chance does, and which host it is.
pub(crate) fn all(seed: u64) -> Vec<Experiment> {
    use FaultKind::*;
    use Job::{Exchange, Gpt2, Mixtral};
    let mut out = Drawn { seed, number: 0, experiments: Vec::new() };
    for job in Job::ALL {
        out.add(job, "none", "-", Nature::None, None);
    }
    for job in [Gpt2, Mixtral] {
        out.add(job, "GPU execution error", "-", Nature::StopsComputing, Some((GpuExecutionError, 2.0)));
        out.add(job, "CUDA execution error", "-", Nature::StopsComputing, Some((CudaExecutionError, 2.0)));
        for watts in [350.0, 300.0, 250.0, 200.0] {
            let severity = format!("{watts} W");
            out.add(job, "GPU throttling", &severity, Nature::ComputesSlowly, Some((GpuThrottling, watts)));
        }
        out.add(job, "CPU throttling", "powersave", Nature::ComputesSlowly, Some((CpuThrottling, 4.0)));
        for percent in [90.0, 100.0] {
            let severity = format!("{percent} %");
            out.add(job, "CPU contention", &severity, Nature::ComputesSlowly, Some((CpuContention, percent)));
        }
    }
    for job in [Gpt2, Mixtral, Exchange] {
        out.add(job, "NIC down", "-", Nature::StopsSending, Some((NicDown, 1.0)));
        let mut slow = |failure, percent: u32, kind, severity: f64| {
            out.add(job, failure, &format!("{percent} %"), Nature::SendsSlowly, Some((kind, severity)));
        };
        // With GPUDirect nothing is copied beside the NIC: what limits PCIe limits what the GPU's NIC sends.
        for left in [50, 40, 30, 20] {
            slow("PCIe downgrade", left, MemoryAlignment, 100.0 / (PCIE_HEADROOM * f64::from(left)));
        }
        for taken in [50, 60, 70, 80] {
            slow("PCIe contention", taken, MemoryAlignment, 1.0 / (1.0 - f64::from(taken) / 100.0));
        }
        for left in [50, 60, 70, 80] {
            slow("network congestion", left, NetworkCongestion, 1.0 - f64::from(left) / 100.0);
        }
    }
    out.add(Gpt2, "cross NUMA", "-", Nature::SendsSlowly, Some((CrossNuma, 4.0)));
    out.experiments
}

struct Drawn {
    seed: u64,
    number: u64,
    experiments: Vec<Experiment>,
}

impl Drawn {
    fn add(
        &mut self,
        job: Job,
        failure: &'static str,
        severity: &str,
        nature: Nature,
        fault: Option<(FaultKind, f64)>,
    ) {
        let mut chance = mycroft_sim::Random::stream(self.seed, self.number);
        self.number += 1;
        let mut scenario = job.scenario(self.seed << 8 | self.number);
        if let Some((kind, how_bad)) = fault {
            let host = chance.below(u64::from(scenario.hosts)) as u32;
            let mut fault = Fault::new(kind, host);
            fault.after_s = BEGIN_S;
            if kind != FaultKind::NicDown && kind != FaultKind::CrossNuma {
                fault.severity = Some(how_bad);
            }
            if fault.kind.level() == mycroft_sim::FaultLevel::Rank {
                let local = chance.below(u64::from(scenario.ranks_per_host)) as u32;
                fault.rank = Some(host * scenario.ranks_per_host + local);
            }
            if kind == FaultKind::NetworkCongestion {
                fault.peer_host = Some(job.next_host(host));
            }
            scenario.fault = Some(fault);
        }
        if let Err(why) = scenario.check() {
            panic!("{} with {failure}: {why}", job.word());
        }
        let experiment = Experiment { job: job.word(), failure, severity: severity.to_owned(), nature, scenario };
        self.experiments.push(experiment);
    }
}
