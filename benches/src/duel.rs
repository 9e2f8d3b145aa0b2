//! Floor and product side by side: rounds in turn (A, B, A, B, …), so that what the machine does to one it does to the
//! other; a ratio is the median of the ratios of its rounds.

use anyhow::{Result, bail, ensure};
use std::sync::Arc;
use std::time::Duration;

use crate::load::{self, Load, Round};
use crate::process::{Server, fetch};
use crate::product::KEY;
use crate::report::{Comparison, Ratios, Side};
use spillgate_test_support::client::get;

/// How long and how often.
#[derive(Clone)]
pub(crate) struct Pace {
    /// Rounds of each side.
    pub(crate) rounds: usize,
    /// Counted part of a round.
    pub(crate) window: Duration,
    /// What goes before it.
    pub(crate) warm_up: Duration,
    /// Callers at once, one comparison each.
    pub(crate) callers: Vec<usize>,
}

/// The two servers.
pub(crate) struct Arms {
    /// Written by hand.
    pub(crate) floor: Server,
    /// The product.
    pub(crate) product: Server,
}

/// A set of calls that both must answer alike.
pub(crate) struct Case {
    /// What a reader calls it.
    pub(crate) name: String,
    /// Paths the callers go round.
    pub(crate) paths: Vec<String>,
}

/// Compares both on one case, for each number of callers.
pub(crate) fn compare(arms: &Arms, case: &Case, pace: &Pace) -> Result<Vec<Comparison>> {
    assert_same_answers(arms, case)?;
    let requests: Arc<[Vec<u8>]> = case.paths.iter().map(|path| get(path, KEY)).collect();
    pace.callers
        .iter()
        .map(|callers| {
            let load = Load {
                requests: requests.clone(),
                expects: 200,
                callers: *callers,
                pause: Duration::ZERO,
                warm_up: pace.warm_up,
                window: pace.window,
            };
            compare_at(arms, &case.name, &load, pace.rounds)
        })
        .collect()
}

fn compare_at(arms: &Arms, case: &str, load: &Load, rounds: usize) -> Result<Comparison> {
    let (floor, product) = (&arms.floor, &arms.product);
    floor.reset_peak()?;
    product.reset_peak()?;
    let (mut floor_rounds, mut product_rounds) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for _ in 0..rounds {
        floor_rounds.push(load::run(floor, load)?);
        product_rounds.push(load::run(product, load)?);
    }
    summary(case, load.callers, (floor, &floor_rounds), (product, &product_rounds))
}

/// What the rounds of floor and product come to.
pub(crate) fn summary(case: &str, callers: usize, floor: (&Server, &[Round]), product: (&Server, &[Round])) -> Result<Comparison> {
    let ratio = |figure: fn(&Round) -> f64| median(product.1.iter().zip(floor.1).map(|(mine, theirs)| figure(mine) / figure(theirs)));
    Ok(Comparison {
        case: case.to_owned(),
        callers,
        ratios: Ratios { per_second: ratio(Round::per_second), p50: ratio(p50), p99: ratio(p99), cpu: ratio(Round::cpu_micros) },
        floor: side(floor.0, floor.1)?,
        product: side(product.0, product.1)?,
    })
}

fn side(server: &Server, rounds: &[Round]) -> Result<Side> {
    let figure = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    Ok(Side {
        per_second: figure(Round::per_second),
        p50_millis: figure(p50),
        p99_millis: figure(p99),
        cpu_micros: figure(Round::cpu_micros),
        peak_bytes: server.peak_bytes()?,
        generator_cpu: figure(|round| round.own_cpu.as_secs_f64() / round.window.as_secs_f64()),
        completed: rounds.iter().map(|round| round.completed).sum(),
        failed: rounds.iter().map(|round| round.failed).sum(),
        failure: rounds.iter().find_map(|round| round.failure.clone()),
    })
}

/// Milliseconds.
pub(crate) fn p50(round: &Round) -> f64 {
    round.latencies.quantile(500) as f64 / 1e6
}

/// Milliseconds.
pub(crate) fn p99(round: &Round) -> f64 {
    round.latencies.quantile(990) as f64 / 1e6
}

/// The middle of the figures; 0 without any.
pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        length if length % 2 == 1 => figures[length / 2],
        length => (figures[length / 2 - 1] + figures[length / 2]) / 2.0,
    }
}

fn assert_same_answers(arms: &Arms, case: &Case) -> Result<()> {
    ensure!(!case.paths.is_empty(), "{}: nothing to ask", case.name);
    for path in case.paths.iter().take(20) {
        let floor = fetch(arms.floor.address, path, KEY)?;
        let product = fetch(arms.product.address, path, KEY)?;
        if floor.0 != 200 || floor != product {
            let (floor_body, product_body) = (String::from_utf8_lossy(&floor.1), String::from_utf8_lossy(&product.1));
            bail!("{path} is answered differently\nfloor   {} {floor_body}\nproduct {} {product_body}", floor.0, product.0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
