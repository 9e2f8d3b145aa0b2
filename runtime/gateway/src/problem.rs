//! Refusals on the wire: problem details (the model writes them), `Retry-After` and `RateLimit` fields.

use std::time::Duration;

use spillgate_admission::TenantLimits;
pub(crate) use spillgate_model::problem::{PAGES, index, page};
use spillgate_model::units::Rate;
use spillgate_model::{Code, Refusal, problem};

/// How long a caller is told to wait, jitter added: those that were refused together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    milliseconds: u64,
}

impl Delay {
    /// Up to a fifth longer than the refusal says; `seed` is any number that differs between calls.
    pub(crate) fn of(refusal: &Refusal, seed: u64) -> Option<Self> {
        let wait = refusal.retry_after?;
        let shortest = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        let longer = (shortest / 5).saturating_add(1);
        Some(Delay { milliseconds: shortest.saturating_add(mixed(seed) % longer) })
    }
    /// For `Retry-After`: never earlier than the milliseconds.
    pub(crate) fn seconds(self) -> u64 {
        Duration::from_millis(self.milliseconds.saturating_add(999)).as_secs()
    }
}

/// The finalizer of `SplitMix64`: neighbours far apart.
fn mixed(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The problem object.
pub(crate) fn body(refusal: &Refusal, delay: Option<Delay>, request_id: &str) -> Vec<u8> {
    problem::body(refusal, delay.map(|delay| delay.milliseconds), request_id)
}

/// Adds a member to a problem object.
pub(crate) fn add(body: &mut Vec<u8>, name: &str, json: &[u8]) {
    debug_assert_eq!(body.last(), Some(&b'}'));
    body.pop();
    body.extend_from_slice(b",\"");
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(b"\":");
    body.extend_from_slice(json);
    body.push(b'}');
}

/// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11) where a quota of the tenant or of its run spoke.
pub(crate) fn rate_limit(refusal: &Refusal, limits: &TenantLimits, delay: Option<Delay>) -> Option<(String, String)> {
    let of_rate = |rate: Rate| format!(";q={};w={}", rate.calls, rate.period.as_secs());
    let policy = refusal.policy.as_ref()?;
    let quota = match refusal.code {
        Code::RateExceeded => of_rate(limits.rate),
        Code::RepeatsExhausted => of_rate(limits.repeat_budget),
        Code::InFlightExceeded => format!(";q={};qu=\"concurrent-requests\"", policy.limit),
        Code::RunExhausted => format!(";q={}", policy.limit),
        _ => return None,
    };
    let name = policy.name;
    // The window never ends after Retry-After, which rules where both are there. A budget that is spent has no end.
    let end = delay.map(|delay| format!(";t={}", delay.seconds())).unwrap_or_default();
    Some((format!("\"{name}\"{quota}"), format!("\"{name}\";r=0{end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_shortened_and_spread_by_a_fifth() {
        let refusal = Refusal::new(Code::Overloaded, "busy").retry_after(Duration::from_micros(10_000_001));
        let waits: Vec<u64> = (0..1_000).filter_map(|seed| Delay::of(&refusal, seed)).map(|delay| delay.milliseconds).collect();
        assert_eq!(waits.len(), 1_000);
        let (least, most) = (waits.iter().min().copied().unwrap_or(0), waits.iter().max().copied().unwrap_or(0));
        assert!((10_001..10_050).contains(&least) && (11_950..=12_001).contains(&most), "{least} {most}");
        assert_eq!(Delay::of(&Refusal::new(Code::InvalidInput, "never"), 1), None);
    }

    #[test]
    fn whole_seconds_are_never_earlier_than_the_milliseconds() {
        for (milliseconds, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (u64::MAX, u64::MAX / 1_000)] {
            assert_eq!(Delay { milliseconds }.seconds(), seconds, "{milliseconds}");
        }
    }
}
