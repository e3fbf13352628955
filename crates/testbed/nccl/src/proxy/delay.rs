//! A proxy thread that sleeps now and then.

use crate::env::Identity;

/// The fault `proxy_delay`: with a small probability per step the thread really sleeps.
pub(super) fn maybe_delay(identity: &Identity, rng: &mut u64) {
    let Some(control) = &identity.control else { return };
    let ppm = control.rank().proxy_delay_ppm.load(std::sync::atomic::Ordering::Relaxed);
    if ppm == 0 {
        return;
    }
    // xorshift64*: small, seeded, good enough to draw rare events.
    *rng ^= *rng >> 12;
    *rng ^= *rng << 25;
    *rng ^= *rng >> 27;
    let draw = ((rng.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) * 1_000_000) >> 32;
    if draw < ppm {
        let ms = control.rank().proxy_delay_ms.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(ms));
        control.rank().proxy_sleeps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
