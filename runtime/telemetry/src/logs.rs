//! The log: `tracing` events as JSON lines, through the bounded writer.

use std::io::Write;

use tracing::Dispatch;
use tracing_subscriber::{EnvFilter, fmt};

use crate::writer::LineWriter;

/// What is logged, in `tracing`'s filter syntax.
const VARIABLE: &str = "SPILLGATE_LOG";
const DEFAULT: &str = "info";

/// A subscriber that writes to `writer` what `SPILLGATE_LOG` lets through.
pub(crate) fn from_environment(writer: LineWriter) -> Result<Dispatch, String> {
    dispatch(writer, std::env::var(VARIABLE).as_deref().unwrap_or(DEFAULT))
}

fn dispatch(writer: LineWriter, filter: &str) -> Result<Dispatch, String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
    let subscriber = fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(move || Line(writer.clone()))
        .finish();
    Ok(Dispatch::new(subscriber))
}

/// The formatter hands over one whole line a call.
struct Line(LineWriter);

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.append(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::writer::sinks::Kept;

    /// The JSON lines that `work` logs.
    pub(crate) fn logged(filter: &str, work: impl FnOnce()) -> Vec<serde_json::Value> {
        let kept = Kept::default();
        let writer = LineWriter::start("test-log", Box::new(kept.clone()), Arc::default()).expect("a thread starts");
        tracing::dispatcher::with_default(&dispatch(writer.clone(), filter).expect("a filter"), work);
        assert!(writer.close(Duration::from_secs(10)));
        kept.text().lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
    }

    #[test]
    fn events_are_json_lines_and_filtered() {
        let lines = logged("info", || {
            tracing::info!(database = "as400", "line one\nand \"two\"");
            tracing::debug!("not shown");
        });
        assert_eq!(lines.len(), 1);
        let shown = ["level", "message", "database"].map(|key| lines[0][key].as_str().unwrap_or_default());
        assert_eq!(shown, ["INFO", "line one\nand \"two\"", "as400"]);
        assert!(lines[0]["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let writer = LineWriter::start("test-log", Box::new(std::io::sink()), Arc::default()).expect("a thread starts");
        assert!(dispatch(writer, "info,=[").is_err());
    }
}
