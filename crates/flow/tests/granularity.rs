//! The law of Pulse, section 6.1: a straggler of 1/p of the rate makes gaps of 40 (p - 1) us at the others, and epochs that are
//! longer show none of them.
mod trains;

use trains::{SLICE_NS, straggler};

#[test]
fn an_epoch_shows_gaps_twice_its_length_and_none_shorter_than_it() {
    for p in [1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 25.0] {
        let gap_ns = SLICE_NS as f64 * (p - 1.0);
        for epoch_us in [8, 16, 32, 64, 128, 256, 512, 1024] {
            let epoch_ns = epoch_us * 1_000;
            let shown = straggler(epoch_ns, p);
            let said = format!("p {p}, {epoch_us} us: {:.3}, {} gaps", shown.ratio, shown.gaps);
            if gap_ns < epoch_ns as f64 {
                assert!(shown.gaps == 0 && (shown.ratio - 1.0).abs() < 0.05, "{said}");
            } else if gap_ns >= 2.0 * epoch_ns as f64 {
                assert!(shown.gaps >= 199, "each slice but the last has one: {said}");
                // Of the epochs of a slice at least one is empty.
                let epochs = SLICE_NS as f64 * p / epoch_ns as f64;
                assert!(shown.ratio > epochs / (epochs - 1.0) - 0.02, "{said}");
            }
        }
    }
}
