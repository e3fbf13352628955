//! Whether the fields of a scenario fit together. Errors are one line each: the field, its value, what was expected.
use crate::fault::Fault;
use crate::scenario::{DpMode, Scenario, Schedule};

/// Most hosts: 131,072 ranks at 8 to a host.
pub const HOSTS_MAX: u32 = 16_384;
/// Most ranks: what 10^5 GPUs round up to. The simulator keeps some kilobytes for each.
pub const RANKS_MAX: u32 = 131_072;
/// Greatest message, bytes: the gradients of half a billion parameters in two bytes each.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// Most hosts on the testbed: the control block's limit is 1024, a bridge's is 1024 ports.
pub const TESTBED_HOSTS_MAX: u32 = 64;
/// Most ranks on the testbed: each is a process of a few threads; 256 of them are what two cores can start within a
/// minute.
pub const TESTBED_RANKS_MAX: u32 = 256;
/// Greatest message on the testbed, bytes: 64 MB, so that a few per rank fit any machine.
pub const TESTBED_MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Most faults of one scenario: a few for each minute of the longest run that anybody reads.
const FAULTS_MAX: usize = 64;

impl Scenario {
    /// Whether the simulator can play it.
    ///
    /// # Errors
    /// The first rule of the scenario that is broken, naming the field.
    pub fn check(&self) -> Result<(), String> {
        self.check_shape()?;
        self.check_schedule()?;
        self.check_numbers()?;
        self.check_cluster()?;
        self.check_life()?;
        if self.faults.len() > FAULTS_MAX {
            return Err(format!("faults = {} tables: expected at most {FAULTS_MAX}", self.faults.len()));
        }
        if let Some(fault) = &self.fault {
            fault.check(self).map_err(|why| format!("fault.{why}"))?;
        }
        for (index, fault) in self.faults.iter().enumerate() {
            fault.check(self).map_err(|why| format!("faults[{index}].{why}"))?;
        }
        Ok(())
    }

    /// Whether the testbed can play it too: smaller limits, and nothing that only the simulator has.
    ///
    /// # Errors
    /// The first rule of the testbed that is broken, naming the field.
    pub fn check_testbed(&self) -> Result<(), String> {
        self.check()?;
        let message_bytes = self.tp_bytes.max(self.pp_bytes).max(self.dp_bytes).max(self.ep_bytes);
        for (field, value, most) in [
            ("hosts", u64::from(self.hosts), u64::from(TESTBED_HOSTS_MAX)),
            ("hosts x ranks_per_host", u64::from(self.world()), u64::from(TESTBED_RANKS_MAX)),
            ("greatest of *_bytes", message_bytes, TESTBED_MESSAGE_BYTES_MAX),
        ] {
            if value > most {
                return Err(format!("{field} = {value}: expected at most {most} on the testbed"));
            }
        }
        let plain = Scenario::default();
        let only_simulated = [
            ("cp", self.cp != plain.cp),
            ("schedule", self.schedule != plain.schedule),
            ("virtual_stages", self.virtual_stages != plain.virtual_stages),
            ("dp_mode = fsdp", self.dp_mode == DpMode::Fsdp),
            ("cluster", self.cluster != plain.cluster),
            ("life", self.life != plain.life),
            ("faults", !self.faults.is_empty()),
        ];
        if let Some((field, _)) = only_simulated.iter().find(|(_, used)| *used) {
            return Err(format!("{field}: only the simulator plays this; leave it out, or use `mycroft sim run`"));
        }
        self.fault.as_ref().map_or(Ok(()), Fault::check_testbed).map_err(|why| format!("fault.{why}"))
    }

    fn check_shape(&self) -> Result<(), String> {
        let name_ok = self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if self.name.is_empty() || self.name.len() > 64 || !name_ok {
            return Err(format!("name = {:?}: expected 1 to 64 letters, digits, `-`, `_` or `.`", self.name));
        }
        for (field, value, most) in [
            ("hosts", self.hosts, HOSTS_MAX),
            ("ranks_per_host", self.ranks_per_host, RANKS_MAX),
            ("tp", self.tp, RANKS_MAX),
            ("pp", self.pp, RANKS_MAX),
            ("dp", self.dp, RANKS_MAX),
            ("cp", self.cp, RANKS_MAX),
            ("channels", self.channels, 32),
            ("micro_batches", self.micro_batches, 256),
            ("layers", self.layers, 64),
            ("virtual_stages", self.virtual_stages, 64),
        ] {
            whole(field, value, 1, most)?;
        }
        let world = self.world();
        if world > RANKS_MAX {
            return Err(format!("hosts x ranks_per_host = {world}: expected at most {RANKS_MAX} ranks"));
        }
        let sizes = [("tp", self.tp), ("cp", self.cp), ("pp", self.pp), ("dp", self.dp)];
        let product = sizes.iter().fold(1u64, |product, (_, size)| product.saturating_mul(u64::from(*size)));
        if u64::from(world) != product {
            let shown: Vec<_> = sizes.iter().filter(|(name, size)| *name != "cp" || *size > 1).collect();
            let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
            let values: Vec<String> = shown.iter().map(|(_, size)| size.to_string()).collect();
            return Err(format!(
                "{} = {} = {product}: expected hosts x ranks_per_host = {world}",
                names.join(" x "),
                values.join(" x ")
            ));
        }
        if self.ep != 0 && !self.moe {
            return Err(format!("ep = {}: only with moe = true", self.ep));
        }
        if self.moe && (self.dp < 2 || !self.dp.is_multiple_of(self.layout().ep.max(1))) {
            return Err(format!("ep = {}: expected a divisor of dp = {}, which is at least 2", self.ep, self.dp));
        }
        Ok(())
    }

    /// The interleaved schedule, as Megatron has it: whole chunks, and micro-batches in rounds of the pipeline's length.
    fn check_schedule(&self) -> Result<(), String> {
        match self.schedule {
            Schedule::OneFOneB if self.virtual_stages > 1 => {
                Err(format!("virtual_stages = {}: only with schedule = \"interleaved\"", self.virtual_stages))
            }
            Schedule::OneFOneB => Ok(()),
            Schedule::Interleaved if self.virtual_stages < 2 => Err(format!(
                "virtual_stages = {}: expected at least 2 for the interleaved schedule",
                self.virtual_stages
            )),
            Schedule::Interleaved if self.pp < 2 => {
                Err(format!("pp = {}: expected at least 2 for the interleaved schedule", self.pp))
            }
            Schedule::Interleaved if !self.layers.is_multiple_of(self.virtual_stages) => {
                Err(format!("virtual_stages = {}: expected a divisor of layers = {}", self.virtual_stages, self.layers))
            }
            Schedule::Interleaved if !self.micro_batches.is_multiple_of(self.pp) => Err(format!(
                "micro_batches = {}: expected a multiple of pp = {} for the interleaved schedule",
                self.micro_batches, self.pp
            )),
            Schedule::Interleaved => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), String> {
        for (field, value, most) in [
            ("forward_ms", self.forward_ms, 60_000.0),
            ("backward_ms", self.backward_ms, 60_000.0),
            ("optimizer_ms", self.optimizer_ms, 10_000.0),
            ("warm_up_factor", self.warm_up_factor, 100.0),
            ("jitter", self.jitter, 0.5),
            ("duration_s", self.duration_s, 86_400.0),
        ] {
            number(field, value, 0.0, most)?;
        }
        for (field, value) in [
            ("tp_bytes", self.tp_bytes),
            ("pp_bytes", self.pp_bytes),
            ("dp_bytes", self.dp_bytes),
            ("ep_bytes", self.ep_bytes),
        ] {
            if !(4..=MESSAGE_BYTES_MAX).contains(&value) {
                return Err(format!("{field} = {value}: expected 4 to {MESSAGE_BYTES_MAX} bytes"));
            }
        }
        bytes_per_sec("nic_bytes_per_sec", self.nic_bytes_per_sec)?;
        for (field, value) in [("start_skew_ms", self.start_skew_ms), ("checkpoint_ms", self.checkpoint_ms)] {
            if value > 60_000 {
                return Err(format!("{field} = {value}: expected at most 60000 milliseconds"));
            }
        }
        Ok(())
    }

    fn check_cluster(&self) -> Result<(), String> {
        let cluster = &self.cluster;
        if cluster.nics_per_host == 0 || !self.ranks_per_host.is_multiple_of(cluster.nics_per_host) {
            return Err(format!(
                "cluster.nics_per_host = {}: expected a divisor of ranks_per_host = {}",
                cluster.nics_per_host, self.ranks_per_host
            ));
        }
        whole("cluster.hosts_per_leaf", cluster.hosts_per_leaf, 1, HOSTS_MAX)?;
        if cluster.slot_bytes != 0 && !(4096..=MESSAGE_BYTES_MAX).contains(&cluster.slot_bytes) {
            return Err(format!("cluster.slot_bytes = {}: expected 0, or 4096 to 1073741824", cluster.slot_bytes));
        }
        number("cluster.oversubscription", cluster.oversubscription, 1.0, 100.0)?;
        number("cluster.latency_us", cluster.latency_us, 0.0, 10_000.0)?;
        bytes_per_sec("cluster.copy_bytes_per_sec", cluster.copy_bytes_per_sec)?;
        bytes_per_sec("cluster.nvlink_bytes_per_sec", cluster.nvlink_bytes_per_sec)?;
        number("cluster.rdma_spread", cluster.rdma_spread, 0.0, 0.5)?;
        number("cluster.nvlink_spread", cluster.nvlink_spread, 0.0, 0.5)?;
        // A second and a tenth of a percent: a machine without any time service.
        number("cluster.clock_offset_us", cluster.clock_offset_us, 0.0, 1_000_000.0)?;
        number("cluster.clock_drift_ppm", cluster.clock_drift_ppm, 0.0, 1000.0)
    }

    fn check_life(&self) -> Result<(), String> {
        let life = &self.life;
        number("life.straggle_share", life.straggle_share, 0.0, 1.0)?;
        let least_factor = if life.straggle_share > 0.0 { 1.0 } else { 0.0 };
        number("life.straggle_factor", life.straggle_factor, least_factor, 100.0)?;
        number("life.gc_ms", life.gc_ms, 0.0, 60_000.0)?;
        whole("life.eval_micro_batches", life.eval_micro_batches, u32::from(life.eval_every > 0), 256)?;
        number("life.sequence_imbalance", life.sequence_imbalance, 0.0, 0.9)?;
        number("life.routing_imbalance", life.routing_imbalance, 0.0, 0.9)?;
        if life.routing_imbalance > 0.0 && !self.moe {
            return Err(format!("life.routing_imbalance = {}: only with moe = true", life.routing_imbalance));
        }
        if !life.micro_batches.is_empty() {
            self.check_division()?;
        }
        if !life.places.is_empty() {
            self.check_places()?;
        }
        whole("life.size_classes", life.size_classes, 0, 64)?;
        number("life.size_spread", life.size_spread, 0.0, 0.9)?;
        number("life.last_stage", life.last_stage, 0.0, 10.0)?;
        number("life.first_connect_ms", life.first_connect_ms, 0.0, 600_000.0)
    }
}

impl Scenario {
    /// Micro-batches for each replica: one at least, and only where replicas meet once per iteration.
    fn check_division(&self) -> Result<(), String> {
        let counts = &self.life.micro_batches;
        if counts.len() as u64 != u64::from(self.dp) {
            return Err(format!("life.micro_batches has {} numbers: expected dp = {}", counts.len(), self.dp));
        }
        counts.iter().try_for_each(|count| whole("life.micro_batches", *count, 1, 256))?;
        if self.moe || self.dp_mode == DpMode::Fsdp || self.schedule == Schedule::Interleaved {
            return Err("life.micro_batches: only without moe, fsdp and the interleaved schedule".to_owned());
        }
        let (sum, batch) = (counts.iter().sum::<u32>(), self.dp * self.micro_batches);
        if sum != batch {
            return Err(format!("life.micro_batches are {sum} together: expected dp x micro_batches = {batch}"));
        }
        Ok(())
    }

    /// Each host once.
    fn check_places(&self) -> Result<(), String> {
        let mut sorted = self.life.places.clone();
        sorted.sort_unstable();
        if sorted.into_iter().eq(0..self.hosts) {
            return Ok(());
        }
        Err(format!("life.places: expected each host from 0 to {} once", self.hosts - 1))
    }
}

fn whole(field: &str, value: u32, least: u32, most: u32) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} = {value}: expected {least} to {most}"))
}

fn number(field: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} = {value}: expected {least} to {most}"))
}

fn bytes_per_sec(field: &str, value: u64) -> Result<(), String> {
    if value >= 100_000 {
        return Ok(());
    }
    Err(format!("{field} = {value}: expected at least 100000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_testbed_takes_what_it_can_play_and_names_what_it_cannot() {
        assert_eq!(Scenario::default().check_testbed(), Ok(()));
        let refused = |text: &str| Scenario::parse("s.toml", text).unwrap().check_testbed().unwrap_err();
        for (text, wanted) in [
            ("hosts = 65\ndp = 65\ntp = 1\npp = 4", "hosts = 65: expected at most 64 on the testbed"),
            ("hosts = 64\nranks_per_host = 8\ndp = 64", "hosts x ranks_per_host = 512: expected at most 256"),
            ("dp_bytes = 70000000", "*_bytes = 70000000: expected at most 67108864 on the testbed"),
            ("tp = 2\ncp = 2", "cp: only the simulator plays this"),
            ("schedule = \"interleaved\"\nvirtual_stages = 2", "schedule: only the simulator"),
            ("dp_mode = \"fsdp\"", "dp_mode = fsdp: only the simulator"),
            ("[cluster]\nfabric = \"rail\"", "cluster: only the simulator"),
            ("[life]\ngc_every = 7\ngc_ms = 3.0", "life: only the simulator"),
            ("[[faults]]\nkind = \"gpu-power\"", "faults: only the simulator"),
            ("[fault]\nkind = \"gpu-power\"\nlasts_s = 5.0", "fault.lasts_s = 5: only the simulator"),
            ("[fault]\nkind = \"data-wait\"", "fault.kind = data-wait: only the simulator"),
            ("[fault]\nkind = \"gpu-power\"\nramp_s = 5.0", "fault.ramp_s = 5: only the simulator"),
        ] {
            let error = refused(text);
            assert!(error.contains(wanted) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
