//! What stopped an operation that all are in, where no flow shows it.
use crate::fact::Fact;
use mycroft_record::{Algorithm, Category, OpClass};

/// A device, as far as that is known; of operations of which no more is seen than that all have issued them, nothing is.
pub(super) fn category(facts: &[Fact]) -> Category {
    // The event of a collective tells its algorithm.
    let is_seen = |fact: &Fact| match fact {
        Fact::StuckInside { op, .. } => {
            let meta = &op.meta;
            meta.id.class != OpClass::Collective || meta.started_at.is_some() || meta.algorithm != Algorithm::Unknown
        }
        fact => matches!(fact, Fact::GpuNotReady { .. }),
    };
    if facts.iter().any(is_seen) { Category::Gpu } else { Category::Unknown }
}
