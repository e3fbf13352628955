//! One training iteration of one rank: enqueue everything, synchronize, check what came.
use super::groups::Groups;
use crate::error::TestbedError;
use crate::library::{Comm, Nccl, Stream};
use mycroft_sim::schedule::{Action, Exchange, one_f_one_b};
use mycroft_sim::{Coordinates, DpMode, Layout, Random, Scenario};

/// Bytes of an element; all buffers are 32-bit floats.
const ELEMENT_BYTES: u64 = 4;
/// Iteration numbers go into the data modulo this, so that sums over 256 ranks stay exact in 24 bits.
const STAMP_MODULUS: u64 = 1 << 12;
/// Elements of the averaged loss.
const LOSS_COUNT: usize = 4;
/// Stream number of a rank's random source for jitter, apart from other uses of the seed.
const JITTER_STREAM: u64 = 1 << 32;

/// What a rank sends and where it receives, for one kind of operation.
struct Buffers {
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Buffers {
    fn new(from: usize, to: usize, value: f32) -> Buffers {
        Buffers { from: vec![value; from], to: vec![0.0; to] }
    }

    /// Marks the data as this iteration's: the first element carries the number, and old results are wiped.
    fn stamp(&mut self, stamp: f32, value: f32) {
        if let Some(first) = self.from.first_mut() {
            *first = value + stamp;
        }
        if let Some(first) = self.to.first_mut() {
            *first = f32::NAN;
        }
        if let Some(last) = self.to.last_mut() {
            *last = f32::NAN;
        }
    }
}

/// A rank's training loop with everything it needs in each iteration.
pub struct Job<'a> {
    nccl: &'a Nccl,
    scenario: &'a Scenario,
    layout: Layout,
    at: Coordinates,
    stream: Stream,
    actions: Vec<Action>,
    jitter: Random,
    tp: Buffers,
    next: Buffers,
    prev: Buffers,
    gradients: Buffers,
    parameters: Buffers,
    experts: Buffers,
    loss: Buffers,
    /// What the optimizer updates, and what belongs to the position: its number in the first element, and in the last how often
    /// it was updated.
    weights: Vec<f32>,
    /// Micro-batches of an iteration of all replicas, and which of them are this replica's: the first, and how many.
    total: u32,
    share: (u32, u32),
    /// Position in the layout.
    place: u32,
}

/// Elements in `bytes`, at least one.
fn elements(bytes: u64) -> usize {
    (bytes / ELEMENT_BYTES).max(1) as usize
}

/// What a replica's micro-batches add to a gradient: micro-batch i adds i + 1, so that whatever the division the sum over
/// replicas is that of the even one, to the bit.
fn share_sum((first, count): (u32, u32)) -> f32 {
    (count * first + count * (count + 1) / 2) as f32
}

/// Tokens that member `from` of an expert group gives to member `to`: uneven on purpose, at least one.
fn tokens(bytes: u64, size: u32, from: u32, to: u32) -> usize {
    let even = elements(bytes) / size as usize;
    even * (2 + (from * 7 + to * 3) as usize % 3) / 3 + 1
}

impl<'a> Job<'a> {
    /// Prepares buffers and a stream for a rank at a position in the layout.
    ///
    /// # Errors
    /// The library refused memory, a stream or a group.
    pub fn new(nccl: &'a Nccl, scenario: &'a Scenario, rank: u32, place: u32) -> Result<Job<'a>, TestbedError> {
        let layout = scenario.layout();
        let at = layout.coordinates(place);
        let (tp, pp) = (elements(scenario.tp_bytes), elements(scenario.pp_bytes));
        let shard = elements(scenario.dp_bytes).div_ceil(layout.dp as usize).max(2);
        let whole = shard * layout.dp as usize;
        let me = at.dp % layout.ep;
        let given: usize = (0..layout.ep).map(|to| tokens(scenario.ep_bytes, layout.ep, me, to)).sum();
        let taken: usize = (0..layout.ep).map(|from| tokens(scenario.ep_bytes, layout.ep, from, me)).sum();
        let share = (at.dp * scenario.micro_batches, scenario.micro_batches);
        let mut weights = vec![0.0; whole];
        weights[0] = place as f32;
        let gradients_to = if scenario.dp_mode == DpMode::AllReduce { whole } else { shard };
        Ok(Job {
            nccl,
            scenario,
            layout,
            at,
            stream: nccl.stream()?,
            actions: one_f_one_b(at.pp, layout.pp, scenario.micro_batches),
            jitter: Random::stream(scenario.seed, JITTER_STREAM + u64::from(rank)),
            tp: Buffers::new(tp, tp, (at.tp + 1) as f32),
            next: Buffers::new(pp, pp, (at.pp + 1) as f32),
            prev: Buffers::new(pp, pp, (at.pp + 1) as f32),
            gradients: Buffers::new(whole, gradients_to, share_sum(share)),
            parameters: Buffers::new(shard, whole, (at.dp + 1) as f32),
            experts: Buffers::new(given, taken, (me + 1) as f32),
            loss: Buffers::new(LOSS_COUNT, LOSS_COUNT, (at.dp + 1) as f32),
            weights,
            total: scenario.micro_batches * layout.dp,
            share,
            place,
        })
    }

    /// From now on replicas take so many micro-batches each, replica after replica.
    pub fn divide(&mut self, micro_batches: &[u32]) {
        let mine = self.at.dp as usize;
        self.share = (micro_batches[..mine].iter().sum(), micro_batches[mine]);
        self.actions = one_f_one_b(self.at.pp, self.layout.pp, self.share.1);
        self.gradients.from.fill(share_sum(self.share));
    }

    /// The weights, which a job without them cannot go on with.
    pub fn take_weights(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.weights)
    }

    /// Weights of this position that another rank had.
    pub fn give_weights(&mut self, weights: Vec<f32>) {
        self.weights = weights;
    }

    /// Runs iteration `number` to its end and checks the data.
    ///
    /// # Errors
    /// A call of the library failed, or received data are wrong.
    pub fn iteration(&mut self, groups: &Groups, number: u64) -> Result<(), TestbedError> {
        let stamp = (number % STAMP_MODULUS) as f32;
        self.stamp(stamp);
        let warm_up = number < u64::from(self.scenario.warm_up_iterations);
        let pace = if warm_up { self.scenario.warm_up_factor } else { 1.0 };
        let pace = pace * self.jitter.around_one(self.scenario.jitter);
        for index in 0..self.actions.len() {
            match self.actions[index] {
                Action::Forward(_) => self.layers(groups, self.scenario.forward_ms * pace)?,
                Action::Backward(_) => self.layers(groups, self.scenario.backward_ms * pace)?,
                Action::Exchange(exchange) => self.exchange(groups, exchange)?,
            }
        }
        self.gradient_step(groups, pace)?;
        let every = u64::from(self.scenario.loss_every);
        let with_loss = every > 0 && number.is_multiple_of(every) && self.at.pp + 1 == self.layout.pp;
        if let (true, Some(dp)) = (with_loss, &groups.dp) {
            let (from, to) = (self.loss.from.as_ptr(), self.loss.to.as_mut_ptr());
            // SAFETY: both buffers have LOSS_COUNT elements and stay untouched until the synchronize below.
            unsafe { self.nccl.all_reduce(from, to, LOSS_COUNT, dp, self.stream)? };
        }
        self.nccl.synchronize(self.stream)?;
        if let Some(updates) = self.weights.last_mut() {
            *updates += 1.0;
        }
        check("weights", &self.weights, self.place as f32, (number + 1) as f32)?;
        self.verify(groups, stamp, with_loss)
    }

    fn stamp(&mut self, stamp: f32) {
        let (tp, pp, dp) = ((self.at.tp + 1) as f32, (self.at.pp + 1) as f32, (self.at.dp + 1) as f32);
        let expert = (self.at.dp % self.layout.ep + 1) as f32;
        self.tp.stamp(stamp, tp);
        self.next.stamp(stamp, pp);
        self.prev.stamp(stamp, pp);
        self.gradients.stamp(stamp, share_sum(self.share));
        self.parameters.stamp(stamp, dp);
        self.experts.stamp(stamp, expert);
        self.loss.stamp(stamp, dp);
    }

    /// All layers of this stage in one direction: compute, expert exchange there and back, AllReduce.
    fn layers(&mut self, groups: &Groups, layer_ms: f64) -> Result<(), TestbedError> {
        let nanos = (layer_ms * 1e6) as u64;
        let expert = self.expert();
        for _ in 0..self.scenario.layers {
            self.nccl.compute(self.stream, nanos)?;
            if let Some(ep) = &groups.ep {
                Self::expert_exchange(self.nccl, self.scenario, self.stream, &mut self.experts, ep, expert)?;
            }
            if let Some(tp) = &groups.tp {
                let count = self.tp.from.len();
                // SAFETY: both buffers have `count` elements and stay untouched until the iteration's synchronize.
                unsafe {
                    self.nccl.all_reduce(self.tp.from.as_ptr(), self.tp.to.as_mut_ptr(), count, tp, self.stream)?;
                }
            }
        }
        Ok(())
    }

    /// This rank's place in its expert group, and the group's size.
    fn expert(&self) -> (u32, u32) {
        (self.at.dp % self.layout.ep, self.layout.ep)
    }

    /// All-to-all as grouped sends and receives of uneven size; the own part stays where it is.
    fn expert_exchange(
        nccl: &Nccl,
        scenario: &Scenario,
        stream: Stream,
        buffers: &mut Buffers,
        ep: &Comm,
        (me, size): (u32, u32),
    ) -> Result<(), TestbedError> {
        nccl.group(|| {
            let (mut given, mut taken) = (0, 0);
            for peer in 0..size {
                let (give, take) =
                    (tokens(scenario.ep_bytes, size, me, peer), tokens(scenario.ep_bytes, size, peer, me));
                if peer != me {
                    let (from, to) = (&buffers.from[given..given + give], &mut buffers.to[taken..taken + take]);
                    // SAFETY: both parts lie inside the buffers and stay untouched until the iteration's synchronize.
                    unsafe {
                        nccl.send(from.as_ptr(), give, peer, ep, stream)?;
                        nccl.recv(to.as_mut_ptr(), take, peer, ep, stream)?;
                    }
                }
                given += give;
                taken += take;
            }
            Ok(())
        })
    }

    fn exchange(&mut self, groups: &Groups, exchange: Exchange) -> Result<(), TestbedError> {
        let Some(pp) = &groups.pp else { return Ok(()) };
        let (nccl, stream, stage) = (self.nccl, self.stream, self.at.pp);
        let (next, prev) = (&mut self.next, &mut self.prev);
        let count = next.from.len();
        nccl.group(|| {
            // SAFETY: the buffers have `count` elements and stay untouched until the iteration's synchronize; the
            // stage numbers exist because the plan has no exchange past the ends of the pipeline.
            unsafe {
                if exchange.send_next {
                    nccl.send(next.from.as_ptr(), count, stage + 1, pp, stream)?;
                }
                if exchange.recv_next {
                    nccl.recv(next.to.as_mut_ptr(), count, stage + 1, pp, stream)?;
                }
                if exchange.send_prev {
                    nccl.send(prev.from.as_ptr(), count, stage - 1, pp, stream)?;
                }
                if exchange.recv_prev {
                    nccl.recv(prev.to.as_mut_ptr(), count, stage - 1, pp, stream)?;
                }
            }
            Ok(())
        })
    }

    /// Gradients over the data-parallel group, the optimizer, and (sharded) parameters back.
    fn gradient_step(&mut self, groups: &Groups, pace: f64) -> Result<(), TestbedError> {
        let (nccl, stream) = (self.nccl, self.stream);
        let optimizer_ns = (self.scenario.optimizer_ms * pace * 1e6) as u64;
        let Some(dp) = &groups.dp else { return nccl.compute(stream, optimizer_ns) };
        let (gradients, parameters) = (&mut self.gradients, &mut self.parameters);
        let (whole, shard) = (gradients.from.len(), parameters.from.len());
        // SAFETY: `whole` and `shard` are the lengths of the buffers used, which stay untouched until the iteration's
        // synchronize.
        unsafe {
            match self.scenario.dp_mode {
                DpMode::AllReduce => {
                    nccl.all_reduce(gradients.from.as_ptr(), gradients.to.as_mut_ptr(), whole, dp, stream)?;
                    nccl.compute(stream, optimizer_ns)
                }
                // The launcher refuses `fsdp`: only the simulator plays it.
                DpMode::ReduceScatter | DpMode::Fsdp => {
                    nccl.reduce_scatter(gradients.from.as_ptr(), gradients.to.as_mut_ptr(), shard, dp, stream)?;
                    nccl.compute(stream, optimizer_ns)?;
                    nccl.all_gather(parameters.from.as_ptr(), parameters.to.as_mut_ptr(), shard, dp, stream)
                }
            }
        }
    }

    fn verify(&self, groups: &Groups, stamp: f32, with_loss: bool) -> Result<(), TestbedError> {
        let sum = |n: u32| (n * (n + 1) / 2) as f32;
        let (tp, pp, dp) = (self.layout.tp, self.layout.pp, self.layout.dp);
        if groups.tp.is_some() {
            check("tensor-parallel AllReduce", &self.tp.to, tp as f32 * stamp + sum(tp), sum(tp))?;
        }
        if self.at.pp > 0 {
            check("activations", &self.prev.to, stamp + self.at.pp as f32, self.at.pp as f32)?;
        }
        if self.at.pp + 1 < pp {
            let value = (self.at.pp + 2) as f32;
            check("gradients of the next stage", &self.next.to, stamp + value, value)?;
        }
        if groups.dp.is_some() {
            let all_reduced = self.scenario.dp_mode == DpMode::AllReduce;
            // Only the first shard holds the stamped element.
            let first = if all_reduced || self.at.dp == 0 { dp as f32 * stamp } else { 0.0 };
            check("gradients", &self.gradients.to, first + sum(self.total), sum(self.total))?;
            if !all_reduced {
                check("parameters", &self.parameters.to, stamp + 1.0, dp as f32)?;
            }
            if with_loss {
                check("loss", &self.loss.to, dp as f32 * stamp + sum(dp), sum(dp))?;
            }
        }
        self.verify_experts(groups, stamp)
    }

    fn verify_experts(&self, groups: &Groups, stamp: f32) -> Result<(), TestbedError> {
        if groups.ep.is_none() {
            return Ok(());
        }
        let (me, size) = self.expert();
        let mut at = 0;
        for peer in 0..size {
            let take = tokens(self.scenario.ep_bytes, size, peer, me);
            if peer != me {
                let value = (peer + 1) as f32;
                // The stamped element is the first of what a rank gives to member 0.
                let first = if me == 0 { value + stamp } else { value };
                check("expert tokens", &self.experts.to[at..at + take], first, value)?;
            }
            at += take;
        }
        Ok(())
    }
}

/// Compares the first and the last element; a single element is a first one. A buffer of one element whose shard
/// layout makes it last is compared as first only.
fn check(what: &str, data: &[f32], first: f32, last: f32) -> Result<(), TestbedError> {
    let wrong = |place: &str, expected: f32, got: f32| TestbedError::WrongData {
        what: format!("{what}, {place} element"),
        expected: f64::from(expected),
        got: f64::from(got),
    };
    let n = data.len();
    if data[0] != first {
        return Err(wrong("first", first, data[0]));
    }
    if n > 1 && data[n - 1] != last {
        return Err(wrong("last", last, data[n - 1]));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_uneven_and_never_none() {
        let counts: Vec<usize> = (0..4).flat_map(|a| (0..4).map(move |b| tokens(65536, 4, a, b))).collect();
        assert!(counts.iter().all(|&count| count > 0));
        assert!(counts.iter().max() > counts.iter().min());
        assert_eq!(tokens(4, 4, 0, 1), 1);
    }

    #[test]
    fn checks_see_wrong_and_stale_data() {
        assert!(check("x", &[3.0, 9.0, 1.0], 3.0, 1.0).is_ok());
        assert!(check("x", &[3.0], 3.0, 1.0).is_ok());
        assert!(check("x", &[2.0, 1.0], 3.0, 1.0).is_err());
        assert!(check("x", &[3.0, f32::NAN], 3.0, 1.0).unwrap_err().to_string().contains("last element"));
    }
}
