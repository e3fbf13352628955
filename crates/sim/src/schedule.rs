//! The order of work of one pipeline stage: one forward, one backward (1F1B), as Megatron's
//! `forward_backward_pipelining_without_interleaving`.
//!
//! Sends and receives that belong together are one group, so that a single in-order stream per rank cannot deadlock.

/// One thing a stage does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Forward pass of a micro-batch.
    Forward(u32),
    /// Backward pass of a micro-batch.
    Backward(u32),
    /// One group of sends and receives with the neighbour stages.
    Exchange(Exchange),
}

/// Which messages an exchange has; activations go to the next stage, gradients to the previous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Exchange {
    /// Send activations on.
    pub send_next: bool,
    /// Receive gradients.
    pub recv_next: bool,
    /// Send gradients back.
    pub send_prev: bool,
    /// Receive activations.
    pub recv_prev: bool,
}

/// The actions of stage `stage` of `stages` for one iteration of `micro_batches`.
pub fn one_f_one_b(stage: u32, stages: u32, micro_batches: u32) -> Vec<Action> {
    let mut plan = Plan { actions: Vec::new(), first: stage == 0, last: stage + 1 == stages };
    let warm_up = (stages - stage - 1).min(micro_batches);
    let steady = micro_batches - warm_up;
    for micro_batch in 0..warm_up {
        plan.exchange(Exchange { recv_prev: true, ..Exchange::default() });
        plan.actions.push(Action::Forward(micro_batch));
        plan.exchange(Exchange { send_next: true, ..Exchange::default() });
    }
    if steady > 0 {
        plan.exchange(Exchange { recv_prev: true, ..Exchange::default() });
    }
    for i in 0..steady {
        plan.actions.push(Action::Forward(warm_up + i));
        plan.exchange(Exchange { send_next: true, recv_next: true, ..Exchange::default() });
        plan.actions.push(Action::Backward(i));
        let more = i + 1 < steady;
        plan.exchange(Exchange { send_prev: true, recv_prev: more, ..Exchange::default() });
    }
    for i in steady..micro_batches {
        plan.exchange(Exchange { recv_next: true, ..Exchange::default() });
        plan.actions.push(Action::Backward(i));
        plan.exchange(Exchange { send_prev: true, ..Exchange::default() });
    }
    plan.actions
}

struct Plan {
    actions: Vec<Action>,
    first: bool,
    last: bool,
}

impl Plan {
    /// Adds an exchange without the messages that the first and the last stage do not have.
    fn exchange(&mut self, mut exchange: Exchange) {
        exchange.send_prev &= !self.first;
        exchange.recv_prev &= !self.first;
        exchange.send_next &= !self.last;
        exchange.recv_next &= !self.last;
        if exchange != Exchange::default() {
            self.actions.push(Action::Exchange(exchange));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs all stages with one in-order stream each; a group completes when each of its messages has met its match.
    /// Says how many actions were left when nothing moved any more.
    fn stuck_actions(stages: u32, micro_batches: u32) -> usize {
        let plans: Vec<Vec<Action>> = (0..stages).map(|s| one_f_one_b(s, stages, micro_batches)).collect();
        let mut at = vec![0usize; plans.len()];
        // Halves of the current group still unmatched, per stage: send_next, recv_next, send_prev, recv_prev.
        let mut open: Vec<Option<Exchange>> = vec![None; plans.len()];
        loop {
            let mut moved = false;
            for stage in 0..plans.len() {
                match (plans[stage].get(at[stage]), open[stage]) {
                    (Some(Action::Exchange(exchange)), None) => open[stage] = Some(*exchange),
                    (Some(Action::Exchange(_)), Some(exchange)) if exchange == Exchange::default() => {
                        open[stage] = None;
                        at[stage] += 1;
                    }
                    (Some(Action::Forward(_) | Action::Backward(_)), _) => at[stage] += 1,
                    _ => continue,
                }
                moved = true;
            }
            for stage in 1..plans.len() {
                let (left, right) = open.split_at_mut(stage);
                if let (Some(a), Some(b)) = (&mut left[stage - 1], &mut right[0]) {
                    if a.send_next && b.recv_prev {
                        (a.send_next, b.recv_prev, moved) = (false, false, true);
                    }
                    if a.recv_next && b.send_prev {
                        (a.recv_next, b.send_prev, moved) = (false, false, true);
                    }
                }
            }
            if !moved {
                return plans.iter().zip(&at).map(|(plan, at)| plan.len() - at).sum();
            }
        }
    }

    #[test]
    fn no_pipeline_deadlocks_on_one_stream() {
        for stages in 1..=8 {
            for micro_batches in 1..=12 {
                assert_eq!(stuck_actions(stages, micro_batches), 0, "{stages} stages, {micro_batches} micro-batches");
            }
        }
    }

    #[test]
    fn every_micro_batch_goes_forward_once_and_then_back_once() {
        for stage in 0..4 {
            let plan = one_f_one_b(stage, 4, 6);
            for micro_batch in 0..6 {
                let forward = plan.iter().position(|a| *a == Action::Forward(micro_batch)).unwrap();
                let backward = plan.iter().position(|a| *a == Action::Backward(micro_batch)).unwrap();
                assert!(forward < backward);
            }
            assert_eq!(plan.iter().filter(|a| !matches!(a, Action::Exchange(_))).count(), 12);
        }
    }

    #[test]
    fn a_single_stage_exchanges_nothing() {
        assert!(one_f_one_b(0, 1, 3).iter().all(|action| !matches!(action, Action::Exchange(_))));
    }
}
