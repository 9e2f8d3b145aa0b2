//! What was measured, for people (a table) and for programs (JSON). Thresholds are not judged here.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figure::Figure;

/// Everything of one run.
#[derive(Serialize, Default)]
pub(crate) struct Report {
    /// Short rounds: good for seeing that it runs, not for figures.
    pub(crate) quick: bool,
    /// CPUs of the machine, which servers, database and load generator share.
    pub(crate) cpus: usize,
    /// Floor and product over HTTP.
    pub(crate) comparisons: Vec<Comparison>,
    /// A bare loop over the driver and the connector crate or the product.
    pub(crate) loops: Vec<LoopComparison>,
    /// Millions of rows asked, few allowed.
    pub(crate) row_caps: Vec<RowCap>,
    /// The demo's start.
    pub(crate) demo: Option<DemoStart>,
    /// The durable queue, and isolation between tenants.
    pub(crate) figures: Vec<Figure>,
    /// What could not be measured here, and why.
    pub(crate) not_measured: Vec<String>,
}

/// One case at one number of callers.
#[derive(Serialize)]
pub(crate) struct Comparison {
    pub(crate) case: String,
    pub(crate) callers: usize,
    pub(crate) floor: Side,
    pub(crate) product: Side,
    pub(crate) ratios: Ratios,
}

/// Medians over the rounds of one side.
#[derive(Serialize)]
pub(crate) struct Side {
    pub(crate) per_second: f64,
    pub(crate) p50_millis: f64,
    pub(crate) p99_millis: f64,
    /// Of the server's process, for each completed call.
    pub(crate) cpu_micros: f64,
    pub(crate) peak_bytes: u64,
    /// CPUs the load generator itself took.
    pub(crate) generator_cpu: f64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// What the first of these was answered.
    pub(crate) failure: Option<String>,
}

/// Product over floor: medians of the ratios of the rounds.
#[derive(Serialize)]
pub(crate) struct Ratios {
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) cpu: f64,
}

/// The same statement by a bare loop and by the product's way to the driver.
#[derive(Serialize)]
pub(crate) struct LoopComparison {
    pub(crate) case: String,
    pub(crate) unit: &'static str,
    pub(crate) threads: usize,
    pub(crate) bare_per_second: f64,
    /// The connector crate in this process.
    pub(crate) connector_per_second: f64,
    pub(crate) connector_ratio: f64,
    /// The whole product over HTTP.
    pub(crate) product_per_second: f64,
    pub(crate) product_ratio: f64,
}

/// A statement with far more rows than allowed.
#[derive(Serialize)]
pub(crate) struct RowCap {
    pub(crate) database: &'static str,
    pub(crate) rows_asked: u64,
    pub(crate) rows_given: u64,
    pub(crate) truncated: bool,
    pub(crate) before_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) capped_call_millis: f64,
    /// The next call on the only connection, sent as soon as the capped one was answered.
    pub(crate) next_call_millis: f64,
    /// The same call on an idle connection.
    pub(crate) usual_call_millis: f64,
}

/// From starting the program to its first answered call.
#[derive(Serialize)]
pub(crate) struct DemoStart {
    pub(crate) first_millis: f64,
    pub(crate) again_millis: f64,
}

impl Report {
    /// Writes all of it as JSON.
    pub(crate) fn write_json(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
    /// Prints what does not follow from a single scenario.
    pub(crate) fn print_end(&self) {
        println!();
        for reason in &self.not_measured {
            println!("not measured: {reason}");
        }
        println!(
            "Ratios are product over floor, medians of the ratios of rounds run in turn. CPU is that of the server's process for each call."
        );
        println!(
            "Servers, database and load generator shared {} CPUs.{}",
            self.cpus,
            if self.quick { " Quick: no figures to quote." } else { "" }
        );
    }
}

/// Prints one scenario's comparisons.
pub(crate) fn print_comparisons(comparisons: &[Comparison]) {
    let mut last = "";
    for comparison in comparisons {
        if comparison.case != last {
            last = &comparison.case;
            println!("\n{last}");
            println!(
                "{:>7} | {:>9} {:>9} {:>5} | {:>8} {:>8} {:>5} | {:>8} {:>8} {:>5} | {:>7} {:>7} {:>5} | {:>6} {:>6} | {:>5} | {:>6}",
                "callers",
                "floor/s",
                "product/s",
                "ratio",
                "p50 ms",
                "product",
                "ratio",
                "p99 ms",
                "product",
                "ratio",
                "CPU us",
                "product",
                "ratio",
                "RSS MB",
                "prod.",
                "load",
                "failed",
            );
        }
        print_comparison(comparison);
    }
}

fn print_comparison(comparison: &Comparison) {
    let Comparison { callers, floor, product, ratios, .. } = comparison;
    println!(
        "{callers:>7} | {:>9.0} {:>9.0} {:>5.2} | {:>8.3} {:>8.3} {:>5.2} | {:>8.3} {:>8.3} {:>5.2} | {:>7.1} {:>7.1} {:>5.2} | {:>6.1} {:>6.1} | {:>5.2} | {:>6}",
        floor.per_second,
        product.per_second,
        ratios.per_second,
        floor.p50_millis,
        product.p50_millis,
        ratios.p50,
        floor.p99_millis,
        product.p99_millis,
        ratios.p99,
        floor.cpu_micros,
        product.cpu_micros,
        ratios.cpu,
        mebibytes(floor.peak_bytes),
        mebibytes(product.peak_bytes),
        product.generator_cpu,
        floor.failed + product.failed,
    );
    for failure in [&floor.failure, &product.failure].into_iter().flatten() {
        println!("        first failure: {failure}");
    }
}

/// Prints loops over a driver.
pub(crate) fn print_loops(loops: &LoopComparison) {
    println!("\n{}, {} at once", loops.case, loops.threads);
    println!("  bare loop       {:>8.0} {}/s", loops.bare_per_second, loops.unit);
    println!("  connector       {:>8.0} {}/s, ratio {:.2}", loops.connector_per_second, loops.unit, loops.connector_ratio);
    println!("  product by HTTP {:>8.0} {}/s, ratio {:.2}", loops.product_per_second, loops.unit, loops.product_ratio);
}

/// Prints a row cap.
pub(crate) fn print_row_cap(cap: &RowCap) {
    println!(
        "\nRow cap over {}: {} rows asked, {} given, truncated {}; RSS {:.1} MB before, peak {:.1} MB; answered in {:.1} ms, \
         next call on the only connection {:.1} ms (usually {:.1} ms)",
        cap.database,
        cap.rows_asked,
        cap.rows_given,
        cap.truncated,
        mebibytes(cap.before_bytes),
        mebibytes(cap.peak_bytes),
        cap.capped_call_millis,
        cap.next_call_millis,
        cap.usual_call_millis,
    );
}

/// Prints the demo's start.
pub(crate) fn print_demo(start: &DemoStart) {
    println!(
        "\nDemo: first call answered {:.0} ms after its first start, {:.0} ms after its second",
        start.first_millis, start.again_millis
    );
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}
