//! A log-linear histogram: 64 buckets for each power of two, so a quantile is off by less than 1.6 %.

const BUCKET_BITS: u32 = 6;
const BUCKETS_PER_POWER: u64 = 1 << BUCKET_BITS;
const BUCKETS: usize = (64 - BUCKET_BITS as usize + 1) << BUCKET_BITS;

/// Counts of values, in the unit of the caller.
pub(crate) struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Default for Histogram {
    /// Nothing counted yet.
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub(crate) fn record(&mut self, value: u64) {
        self.counts[index_of(value)] += 1;
        self.total += 1;
    }
    /// Adds the counts of another.
    pub(crate) fn add(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
    }
    /// How many values were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
    /// The value that `per_mille` of the values do not pass; 0 when nothing was counted.
    pub(crate) fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return middle_of(index as u64);
            }
        }
        0
    }
}

fn index_of(value: u64) -> usize {
    let shift = value.max(1).ilog2().saturating_sub(BUCKET_BITS);
    // Below BUCKETS by construction: what is left of the value has at most BUCKET_BITS + 1 bits.
    usize::try_from(u64::from(shift) * BUCKETS_PER_POWER + (value >> shift)).unwrap_or(BUCKETS - 1)
}

fn middle_of(index: u64) -> u64 {
    let shift = (index / BUCKETS_PER_POWER).saturating_sub(1);
    let low = (index - shift * BUCKETS_PER_POWER) << shift;
    low + ((1 << shift) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_within_its_bucket() {
        for value in [0, 1, 63, 64, 127, 128, 129, 1_000, 65_535, 65_536, 1_000_000_007, u64::MAX] {
            let back = middle_of(index_of(value) as u64);
            assert!(back.abs_diff(value) <= value / 64, "{value} came back as {back}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.record(value));
        for (per_mille, exact) in [(500, 5_000_u64), (990, 9_900), (1000, 10_000)] {
            let found = histogram.quantile(per_mille);
            assert!(found.abs_diff(exact) <= exact / 60, "{per_mille}: {found} instead of {exact}");
        }
        assert_eq!(Histogram::default().quantile(500), 0);
    }
}
