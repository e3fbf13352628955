//! Which line of the program ends iterations.
use super::recurrence::{Recurrence, Weight, is_even, is_steady, may_recur, mean_period, recurs};
use super::{ITERATION_MAX_NS, Iterations, LAYER_NS_MAX, LAYERS_MIN, Marker, Signature, YOUNG_ENDS, period};
use crate::timeline::past::Past;
use mycroft_record::{CommId, HostTime};

impl Iterations {
    /// The rarest collective that still recurs (`MARKER_MIN` times, less than `ITERATION_MAX_NS` apart). None as long as
    /// a rarer one may still come again: the first iteration must not be cut into its layers.
    pub(super) fn choose_marker(&mut self, past: &Past) {
        let (oldest, newest) = (self.oldest, self.newest);
        let large = |seen: &&Recurrence| seen.weight == Weight::Large;
        // The host runs ahead: a collective that is issued and was never seen to end may be the one that ends iterations.
        let ended = |comm: CommId| self.signatures.keys().iter().any(|signature| signature.0 == comm);
        let coming = newest.since_ns(oldest) <= ITERATION_MAX_NS && past.collectives().any(|comm| !ended(comm));
        let unsettled = coming || self.seen.iter().filter(large).any(|seen| may_recur(seen, oldest, newest));
        // What was chosen in an uneven warm-up and is even now marks iterations, whatever makes it uneven later.
        let chosen = self.marker.and_then(|marker| self.known(&marker.signature)).filter(large);
        let even = chosen.is_some_and(|seen| (YOUNG_ENDS / 8..YOUNG_ENDS).contains(&seen.ends.len()) && is_even(seen));
        let steady = even || chosen.is_some_and(is_steady);
        self.marker.iter_mut().for_each(|marker| marker.is_seen(even, steady));
        let best = self.rarest(Weight::Large);
        let small = self.rarest(Weight::Small);
        // Small ones mark iterations where the others are only layers, or where there are no others.
        let in_layers = |best: &(Signature, u64)| {
            let sure = self.marker.filter(|marker| marker.sure).and_then(|marker| self.known(&marker.signature));
            let is_sure = sure.is_some_and(|seen| recurs(seen, newest) && seen.count <= 2 * best.1 + 1);
            !is_sure && !self.known(&best.0).is_some_and(is_even)
        };
        let best = match (best, small) {
            (Some(best), Some(small)) if best.1 > LAYERS_MIN * small.1 && in_layers(&best) => Some(small),
            (best, small) => best.or(small).or_else(|| self.rarest(Weight::PointToPoint)),
        };
        let Some((best, count)) = best else { return };
        let current = self.marker.and_then(|marker| self.known(&marker.signature));
        // Signatures of one iteration differ by one in count while it runs: keep the marker unless clearly rarer.
        // While an iteration crawls, what comes in every fourth only seems to come still.
        let is_sure = self.marker.is_some_and(|marker| marker.sure);
        let crawls = |seen: &Recurrence| !recurs(seen, newest) && self.is_within_iteration(seen.ends.back());
        // What comes several times while one iteration runs, and did not before, is not rarer than what ends it. The limit is in the middle
        // between as often and half as often.
        let since = self.known(&best).and_then(|seen| seen.ends.front().copied()).unwrap_or_default();
        let not_rarer = |seen: &Recurrence| 2 * seen.since(since) <= 3 * count + 2 || (is_sure && crawls(seen));
        let young = current.is_none_or(|seen| seen.ends.len() < YOUNG_ENDS);
        let keep = current.is_some_and(|seen| {
            (recurs(seen, newest) || crawls(seen)) && not_rarer(seen) && !self.gives_way(seen, &best, young)
        });
        let signature = match (self.marker, keep) {
            (Some(marker), true) => marker.signature,
            _ => best,
        };
        let next = match self.marker {
            // One that has shown its rhythm does not give way to what may never come again.
            _ if unsettled && young => self.marker.filter(|marker| marker.sure && marker.steady),
            // A fault makes every rhythm uneven: what was good when all was well stays.
            Some(marker) if marker.signature == signature => Some(marker),
            _ => self.with_period(past, signature),
        };
        if self.marker == next {
            return;
        }
        self.marker = next;
        self.generation += 1;
        self.list.clear();
        self.total = 0;
        self.settled = HostTime::NONE;
    }

    /// The marker that a signature makes: one that comes several times in each period of the program ends an iteration
    /// only as many times later. None for what comes too often to be more than a layer and has no known period.
    fn with_period(&mut self, past: &Past, signature: Signature) -> Option<Marker> {
        let number = self.signatures.find(&signature)?;
        let seen = &self.seen[usize::from(number)];
        let known = self.every.is_some_and(|(known, _)| known == signature);
        let is_large = seen.weight == Weight::Large && !known;
        if seen.weight == Weight::Small || (is_large && (is_even(seen) || self.is_once(number))) {
            return Some(Marker { signature, every: 1, sure: seen.weight == Weight::Large, steady: false });
        }
        if !known {
            self.every = period::of(&self.raw, past, number).map(|every| (signature, every));
        }
        let seen = &self.seen[usize::from(number)];
        let alone = seen.weight == Weight::Large && mean_period(seen) >= LAYER_NS_MAX;
        match self.every {
            Some((_, every)) => Some(Marker { signature, every, sure: true, steady: false }),
            None => alone.then_some(Marker { signature, every: 1, sure: false, steady: false }),
        }
    }
}
