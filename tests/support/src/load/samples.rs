//! What became of calls, and the questions asked of many of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With a reply that is no problem.
    Well(u16),
    /// With a problem: its code, and when it says to come back.
    Refused(Box<str>, Option<Duration>),
    /// Its caller's patience ended, and the caller hung up.
    HungUp,
    /// The connection broke, or there was no place to send it from.
    Broken(Box<str>),
}

/// One call.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When it was due, whenever it was sent.
    pub due: Instant,
    /// When its end was known.
    pub ended: Instant,
    /// How it ended.
    pub end: End,
}

/// Many of them.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl End {
    pub(super) fn of(status: u16, body: &[u8]) -> End {
        if status < 400 {
            return End::Well(status);
        }
        let problem: Json = serde_json::from_slice(body).unwrap_or_default();
        let code = problem["code"].as_str().map_or_else(|| status.to_string(), str::to_owned);
        End::Refused(code.into(), problem["retry_after_ms"].as_u64().map(Duration::from_millis))
    }
    /// Whether the caller has what it asked for.
    pub fn is_well(&self) -> bool {
        matches!(self, End::Well(_))
    }
    fn name(&self) -> String {
        match self {
            End::Well(status) => status.to_string(),
            End::Refused(code, _) => code.to_string(),
            End::HungUp => "hung up".to_owned(),
            End::Broken(why) => format!("broken: {why}"),
        }
    }
}

impl Sample {
    /// From when it was due to its end.
    pub fn latency(&self) -> Duration {
        self.ended.saturating_duration_since(self.due)
    }
}

impl Samples {
    /// Those that were due in this time.
    pub fn due_within(&self, from: Instant, to: Instant) -> Samples {
        Samples(self.0.iter().filter(|sample| sample.due >= from && sample.due < to).cloned().collect())
    }
    /// Those that ended in this time.
    pub fn ended_within(&self, from: Instant, to: Instant) -> Samples {
        Samples(self.0.iter().filter(|sample| sample.ended >= from && sample.ended < to).cloned().collect())
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// How many ended well.
    pub fn well(&self) -> usize {
        self.0.iter().filter(|sample| sample.end.is_well()).count()
    }
    /// How many ended with this code.
    pub fn refused(&self, wanted: &str) -> usize {
        self.0.iter().filter(|sample| matches!(&sample.end, End::Refused(code, _) if &**code == wanted)).count()
    }
    /// The latency that `per_mille` of those that ended well do not pass; zero when none did.
    pub fn latency(&self, per_mille: usize) -> Duration {
        self.latency_of(per_mille, End::is_well)
    }
    /// The same over those that were refused.
    pub fn refusal_latency(&self, per_mille: usize) -> Duration {
        self.latency_of(per_mille, |end| matches!(end, End::Refused(..)))
    }
    fn latency_of(&self, per_mille: usize, counts: impl Fn(&End) -> bool) -> Duration {
        let mut latencies: Vec<Duration> = self.0.iter().filter(|sample| counts(&sample.end)).map(Sample::latency).collect();
        latencies.sort_unstable();
        let rank = (latencies.len() * per_mille).div_ceil(1000).max(1);
        latencies.get(rank - 1).copied().unwrap_or_default()
    }
}

/// Jain's index of shares: 1 when all are equal, one by their number when one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    sum * sum / (shares.len() as f64 * squares)
}

/// How many ended how: what a failing test says.
impl fmt::Display for Samples {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for sample in &self.0 {
            *ends.entry(sample.end.name()).or_default() += 1;
        }
        let (median, high, most) = (self.latency(500), self.latency(990), self.latency(1000));
        write!(out, "{} calls {ends:?}, well within {median:.1?} (p50) {high:.1?} (p99) {most:.1?} (most)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_tells_its_code_and_when_to_come_back() {
        let problem = br#"{"code":"overloaded","retry_after_ms":120}"#;
        assert_eq!(End::of(503, problem), End::Refused("overloaded".into(), Some(Duration::from_millis(120))));
        assert_eq!(End::of(500, b"no problem at all"), End::Refused("500".into(), None));
        assert_eq!(End::of(202, b""), End::Well(202));
    }

    #[test]
    fn the_index_is_one_for_equals_and_small_for_one_who_has_it_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    }

    #[test]
    fn latencies_count_from_when_a_call_was_due_and_only_of_its_kind() {
        let start = Instant::now();
        let sample = |millis: u64, end: End| Sample { due: start, ended: start + Duration::from_millis(millis), end };
        let mut samples: Vec<Sample> = (1..=100).map(|millis| sample(millis, End::Well(200))).collect();
        samples.push(sample(9_000, End::HungUp));
        let samples = Samples(samples);
        assert_eq!([500, 990, 1000].map(|rank| samples.latency(rank).as_millis()), [50, 99, 100]);
        assert_eq!(samples.refusal_latency(500), Duration::ZERO);
        assert_eq!(samples.ended_within(start, start + Duration::from_secs(1)).len(), 100);
    }
}
