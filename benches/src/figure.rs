//! One figure: its value, the same work done by hand in the same run, and what is asked of it.
//!
//! Nothing is judged here: the asked figure stands beside the measured one.

use std::fmt;

use serde::Serialize;

/// What was measured and what is asked.
#[derive(Serialize)]
pub(crate) struct Figure {
    /// Which part of the measurements.
    pub(crate) part: &'static str,
    /// What was done.
    pub(crate) case: String,
    /// Of value and floor.
    pub(crate) unit: &'static str,
    /// Median over the rounds.
    pub(crate) value: f64,
    /// The same by hand: median over the rounds.
    pub(crate) floor: Option<f64>,
    /// Value over floor: median of the ratios of the rounds.
    pub(crate) ratio: Option<f64>,
    /// What is asked of value or ratio.
    pub(crate) asked: Vec<Asked>,
    /// What else was seen.
    pub(crate) more: String,
}

/// A bound that a figure is asked to keep.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asked {
    /// The value, at most.
    AtMost(f64),
    /// The value, at least.
    AtLeast(f64),
    /// The ratio, at most.
    RatioAtMost(f64),
    /// The ratio, at least.
    RatioAtLeast(f64),
}

impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::AtMost(figure) => write!(out, "<= {}", number(*figure)),
            Asked::AtLeast(figure) => write!(out, ">= {}", number(*figure)),
            Asked::RatioAtMost(figure) => write!(out, "ratio <= {figure:.2}"),
            Asked::RatioAtLeast(figure) => write!(out, "ratio >= {figure:.2}"),
        }
    }
}

impl Figure {
    /// A value alone.
    pub(crate) fn value(part: &'static str, case: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Figure { part, case: case.into(), unit, value, floor: None, ratio: None, asked: Vec::new(), more: String::new() }
    }
    /// With its floor, round by round.
    pub(crate) fn beside(part: &'static str, case: impl Into<String>, unit: &'static str, values: &[f64], floors: &[f64]) -> Self {
        let median = |figures: &[f64]| crate::duel::median(figures.iter().copied());
        let ratios: Vec<f64> = values.iter().zip(floors).map(|(value, floor)| value / floor).collect();
        let figure = Figure::value(part, case, unit, median(values));
        Figure { floor: Some(median(floors)), ratio: Some(median(&ratios)), ..figure }
    }
    /// With what is asked of it.
    pub(crate) fn asked(mut self, asked: Asked) -> Self {
        self.asked.push(asked);
        self
    }
    /// With a remark.
    pub(crate) fn more(mut self, more: impl Into<String>) -> Self {
        self.more = more.into();
        self
    }
}

/// Prints the figures of one part; `floor` says what the floor is.
pub(crate) fn print_figures(title: &str, floor: &str, figures: &[Figure]) {
    let of_floor = if floor.is_empty() { String::new() } else { format!(" (floor: {floor})") };
    println!("\n{title}{of_floor}");
    println!("{:<54} | {:>9} {:>9} {:<7} | {:>5} | {:<24} |", "", "value", "floor", "unit", "ratio", "asked");
    for figure in figures {
        let asked: Vec<String> = figure.asked.iter().map(Asked::to_string).collect();
        println!(
            "{:<54} | {:>9} {:>9} {:<7} | {:>5} | {:<24} | {}",
            figure.case,
            number(figure.value),
            figure.floor.map(number).unwrap_or_default(),
            figure.unit,
            figure.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            asked.join(", "),
            figure.more,
        );
    }
}

fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || figure.fract() == 0.0 => format!("{figure:.0}"),
        size if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_ratios_of_rounds() {
        let figure = Figure::beside("append", "case", "items/s", &[10.0, 40.0, 30.0], &[10.0, 10.0, 20.0]);
        assert_eq!((figure.value, figure.floor, figure.ratio), (30.0, Some(10.0), Some(1.5)));
    }

    #[test]
    fn bounds_read_as_a_person_would_write_them() {
        assert_eq!(
            [Asked::AtMost(0.2), Asked::AtMost(2.0), Asked::RatioAtLeast(0.45)].map(|asked| asked.to_string()),
            ["<= 0.2000", "<= 2", "ratio >= 0.45"]
        );
    }
}
