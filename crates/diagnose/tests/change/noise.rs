//! Series of iteration times, drawn from a seed: noise of the kinds that healthy jobs show, and changes upon it.
use mycroft_record::HostTime;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly spread over 0..1, 0 left out.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Evenly spread over a range.
    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// A number in `from..to`.
    pub(crate) fn number(&mut self, from: usize, to: usize) -> usize {
        from + (self.unit() * (to - from) as f64) as usize
    }

    /// Normally distributed (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A kind of healthy noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Normal, 0.5 to 5 %.
    Gaussian,
    /// Student's t with three degrees of freedom, and a pause in up to one of 30 values.
    HeavyTail,
    /// A value in each 10th to 50th that takes up to three times as long.
    Periodic,
    /// Two lengths that alternate, by one or some at a time.
    Alternating,
    /// An autoregressive wander of 0.7 % and a slow wave of up to 1.5 %.
    SlowJitter,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 5] =
    [Kind::Gaussian, Kind::HeavyTail, Kind::Periodic, Kind::Alternating, Kind::SlowJitter];

/// `n` values of a kind about 1.
pub(crate) fn healthy(kind: Kind, n: usize, random: &mut Random) -> Vec<f64> {
    let sigma = random.between(0.005, if kind == Kind::Gaussian { 0.05 } else { 0.02 });
    let period = random.number(10, 51);
    let (longer, share) = (random.between(1.05, 3.0), random.unit() / 30.0);
    let (on, of) = (random.number(1, 3), random.number(2, 5));
    let wave = (random.between(50.0, 1000.0), random.between(0.0, 0.015));
    let mut wander = 0.0;
    let one = |at: usize, random: &mut Random| {
        let noise = sigma * random.normal();
        match kind {
            Kind::Gaussian => 1.0 + noise,
            Kind::HeavyTail => {
                let chi: f64 = (0..3).map(|_| random.normal().powi(2)).sum::<f64>() / 3.0;
                let pause = if random.unit() < share { -random.unit().ln() } else { 0.0 };
                (1.0 + noise / chi.sqrt() + pause).max(0.5)
            }
            Kind::Periodic => (1.0 + noise) * if at % period == period - 1 { longer } else { 1.0 },
            Kind::Alternating => (1.0 + noise) * if at % of < on.min(of - 1) { 1.3 } else { 1.0 },
            Kind::SlowJitter => {
                wander = 0.98 * wander + 0.007 * 0.2 * random.normal();
                1.0 + wander + wave.1 * (at as f64 * std::f64::consts::TAU / wave.0).sin() + noise / 2.0
            }
        }
    };
    let mut one = one;
    (0..n).map(|at| one(at, random)).collect()
}

/// The time of a value: one a second.
pub(crate) fn time(at: usize) -> HostTime {
    HostTime(1_000_000_000 * (at as u64 + 1))
}

/// The place of a value by its time.
pub(crate) fn place(time: HostTime) -> usize {
    (time.0 / 1_000_000_000) as usize - 1
}

/// Makes the values from `onset` on `by` times as large, along a line of `over` values.
pub(crate) fn change(values: &mut [f64], onset: usize, over: usize, by: f64) {
    for (at, value) in values.iter_mut().enumerate().skip(onset) {
        let share = if over == 0 { 1.0 } else { ((at - onset + 1) as f64 / over as f64).min(1.0) };
        *value *= 1.0 + (by - 1.0) * share;
    }
}
