//! Copies in a tree of ranks whose parent is not seen.
use super::{COPY_SHADOW, WAY_RATIO};
use crate::fact::Fact;
use std::borrow::Cow;

/// The facts without copies of ranks that may wait for a parent in their own host, where those of a rank whose parent is seen
/// are slow: its slots wait for nobody unseen, and those of who waits for it from elsewhere do so for as long as all takes. The
/// other way around it shows nothing: of both directions to all that a rank waits for, one is quick.
pub(super) fn without(facts: &[Fact]) -> Cow<'_, [Fact]> {
    let copies = |of_unseen: bool| {
        facts.iter().filter_map(move |fact| match fact {
            Fact::CopyExcess { now_ms, base_ms, unseen, .. } if *unseen == of_unseen => Some((*now_ms, *base_ms)),
            _ => None,
        })
    };
    let most_ms = copies(true).map(|(now_ms, base_ms)| now_ms - base_ms).fold(0.0, f64::max);
    let tells = |(now_ms, base_ms): (f64, f64)| {
        now_ms >= WAY_RATIO * base_ms.max(1.0) || now_ms - base_ms > COPY_SHADOW * most_ms
    };
    if most_ms == 0.0 || !copies(false).any(tells) {
        return Cow::Borrowed(facts);
    }
    let is_left = |fact: &&Fact| !matches!(fact, Fact::CopyExcess { unseen: true, .. });
    Cow::Owned(facts.iter().filter(is_left).cloned().collect())
}
