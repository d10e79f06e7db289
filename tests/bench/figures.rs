//! Figures out of samples.

/// Two digits after the point.
pub fn round(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// Mebibytes.
pub fn mib(bytes: u64) -> f64 {
    round(bytes as f64 / f64::from(1 << 20))
}

/// The nearest-rank percentiles 50, 99 and 99.9, and the greatest, of samples in any order.
pub fn percentiles(samples: &mut [i64]) -> [Option<i64>; 4] {
    samples.sort_unstable();
    let at = |per_mille: usize| {
        let rank = (samples.len() * per_mille).div_ceil(1000).max(1);
        samples.get(rank - 1).copied()
    };
    [at(500), at(990), at(999), samples.last().copied()]
}
