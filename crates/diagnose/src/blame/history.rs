//! What a rank would have done next, going by what it did before: training repeats itself.

/// Operations of context that are an iteration's neighbourhood, and not the whole iteration.
pub(crate) const NEARBY: usize = 8;

/// What followed the last time the longest known context, of up to `context` operations, was seen; `None` where the past
/// does not repeat.
pub(crate) fn expected<T: PartialEq + Copy>(past: &[T], context: usize) -> Option<T> {
    let mut best: Option<(usize, usize)> = None;
    for at in (1..past.len()).rev() {
        let length = past[..at].iter().rev().zip(past.iter().rev()).take(context).take_while(|(a, b)| a == b).count();
        if length > best.map_or(0, |(length, _)| length) {
            best = Some((length, at));
        }
        if length == context {
            break;
        }
    }
    best.map(|(_, at)| past[at])
}

/// Whether `next` is not what the past lets expect; `None` where the past says nothing.
pub(crate) fn deviates<T: PartialEq + Copy>(past: &[T], context: usize, next: T) -> Option<bool> {
    expected(past, context).map(|expected| expected != next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_context_decides() {
        assert_eq!(expected(&[1, 2, 3, 1, 2], 8), Some(3));
        // A context of one is the last time that 2 came.
        assert_eq!(expected(&[1, 2, 9, 7, 2, 3, 1, 2], 1), Some(3));
        // After 2 came 3 lately, but after 1, 2 came 9.
        assert_eq!(expected(&[1, 2, 9, 7, 2, 3, 1, 2], 8), Some(9));
        assert_eq!(deviates(&[1, 2, 1, 2, 1], 8, 2), Some(false));
        assert_eq!(deviates(&[1, 2, 1, 2], 8, 2), Some(true));
    }

    #[test]
    fn a_past_that_does_not_repeat_says_nothing() {
        assert_eq!(expected::<u32>(&[], 8), None);
        assert_eq!(expected(&[1], 8), None);
        assert_eq!(expected(&[1, 2, 3], 8), None);
    }
}
