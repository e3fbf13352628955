//! Shares of counts with how sure they are.

/// So many of so many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Share {
    /// Those that are meant.
    pub hits: u64,
    /// All.
    pub of: u64,
}

/// The normal distribution's two-sided 95 % point.
const Z: f64 = 1.96;

impl Share {
    /// Counts one more.
    pub fn add(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.of += 1;
    }

    /// The share; `None` of nothing.
    pub fn value(&self) -> Option<f64> {
        (self.of > 0).then(|| self.hits as f64 / self.of as f64)
    }

    /// Wilson's 95 % interval of the share that so many were drawn from (Wilson 1927): from and to; all of it of nothing.
    pub fn interval(&self) -> (f64, f64) {
        let Some(share) = self.value() else { return (0.0, 1.0) };
        let n = self.of as f64;
        let wide = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / wide;
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / wide;
        ((middle - half).max(0.0), (middle + half).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_wilsons() {
        // 9 of 10 and 0 of 20, as published tables have them.
        let near = |(from, to): (f64, f64), wanted: (f64, f64)| {
            assert!((from - wanted.0).abs() < 1e-3 && (to - wanted.1).abs() < 1e-3, "{from} {to}");
        };
        near(Share { hits: 9, of: 10 }.interval(), (0.596, 0.982));
        near(Share { hits: 0, of: 20 }.interval(), (0.0, 0.161));
        near(Share::default().interval(), (0.0, 1.0));
        assert_eq!(Share::default().value(), None);
    }
}
