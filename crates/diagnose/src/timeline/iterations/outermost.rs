//! Which line of the program comes once in each iteration: what tells it from the lines of layers.
use super::recurrence::{Recurrence, Weight, is_regular, recurs};
use super::{Iterations, MARKER_MIN, Marker, NO_MARK, SMALL, Signature};

/// A layer has as many collectives at least: attention and feed-forward, forward and backward (Megatron-LM, tensor parallel).
const OF_A_LAYER: u64 = 4;
/// Intervals of a line that tell what is in one.
const INTERVALS_MIN: usize = 4;
/// Intervals with as many operations as most, within this share, are alike: operations side by side end in either order ..
const AS_MANY: f64 = 0.15;
/// .. and with so many hundredths of all operations in alike intervals nothing longer recurs. Of layers those between two iterations hold a
/// third at least: the forward passes of all of them.
const ALIKE_PERCENT: usize = 85;

impl Marker {
    /// Keeps what its first ends were like.
    pub(super) fn is_seen(&mut self, even: bool, steady: bool) {
        (self.sure, self.steady) = (self.sure | even, self.steady | steady);
    }
}

impl Iterations {
    /// Whether what ends iterations, and was never steady, gives way to a line that comes regularly: one of several sizes of a line
    /// seemed to be the rarest as long as nothing was regular.
    pub(super) fn gives_way(&self, seen: &Recurrence, best: &Signature, young: bool) -> bool {
        let is_open = self.marker.is_some_and(|marker| !marker.steady && (young || !marker.sure));
        is_open && !is_regular(seen) && self.known(best).is_some_and(is_regular)
    }

    /// The rarest line of a weight that recurs. One that comes regularly goes before a rarer one that does not, unless it is
    /// a layer's beside it: where sizes vary, each size comes now and then.
    pub(super) fn rarest(&self, weight: Weight) -> Option<(Signature, u64)> {
        let numbered = self.seen.iter().enumerate().map(|(number, seen)| (*self.signatures.key(number as u16), seen));
        let does_recur = |(_, seen): &(Signature, &Recurrence)| {
            seen.weight == weight && seen.count >= MARKER_MIN && recurs(seen, self.newest)
        };
        let mut recurring: Vec<(Signature, &Recurrence)> = numbered.filter(does_recur).collect();
        recurring.sort_unstable_by_key(|(signature, seen)| (seen.count, *signature));
        let (rarest, least) = recurring.first().map(|(signature, seen)| (*signature, seen.count))?;
        // Rhythms are looked at only as far as needed: they are asked for at every look.
        let mut outer = recurring.iter().take_while(|(_, seen)| seen.count < OF_A_LAYER * least);
        let regular = if weight == Weight::Large { outer.find(|(_, seen)| is_regular(seen)) } else { None };
        Some(regular.map_or((rarest, least), |(signature, seen)| (*signature, seen.count)))
    }

    /// Whether a line comes once in whatever recurs: nearly all operations lie between two of its ends with as many between
    /// them as between most. Unknown, and so not told, of a rank that does nothing else.
    pub(super) fn is_once(&self, number: u16) -> bool {
        // What came before its first end is in no interval, and what has come since its last may be more than one.
        let (mut within, mut first, mut since) = (Vec::new(), None, 0);
        for op in self.raw.iter().filter(|op| !op.is(SMALL)) {
            if op.mark & NO_MARK != number {
                since += 1;
            } else if first.is_none() {
                first = Some(std::mem::take(&mut since));
            } else {
                within.push(std::mem::take(&mut since));
            }
        }
        let Some(first) = first else { return false };
        let all: usize = first + within.iter().sum::<usize>() + within.len() + since;
        let mut sorted = within.clone();
        sorted.sort_unstable();
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
        let off = ((usual as f64 * AS_MANY) as usize).max(1);
        let ends = [first, since].into_iter().filter(|count| *count <= usual + off).sum::<usize>();
        let alike =
            within.iter().filter(|count| count.abs_diff(usual) <= off).map(|count| count + 1).sum::<usize>() + ends;
        let is_alone = self.seen.len() < 2;
        within.len() >= INTERVALS_MIN && !is_alone && 100 * alike >= ALIKE_PERCENT * all
    }
}

#[cfg(test)]
mod tests;
