//! `spillgate test`: runs the flows' own tests through the same engine and the same replies that callers get.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use serde_json::Value as Json;
use spillgate_config::plan::{Action, Flow, FlowTest};
use spillgate_engine::{Call, Engine, Live, intake};
use spillgate_gateway::offline_reply;
use spillgate_model::{Column, Flowfile, Rows, RowsBuilder, Type, Value};
use spillgate_telemetry::{Telemetry, TelemetryOptions};

use crate::{cli, commands, wiring};

/// Prints one line a test; exit 1 if one failed.
pub(crate) fn run(config: &Path) -> anyhow::Result<ExitCode> {
    wiring::install_tls_provider();
    let plan = match spillgate_config::load(config) {
        Ok(plan) => Arc::new(plan),
        Err(faults) => {
            commands::print_faults(&faults, cli::Format::Text);
            return Ok(ExitCode::from(1));
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the async runtime cannot start")?;
    let failed = runtime.block_on(async {
        let telemetry = Telemetry::start(TelemetryOptions::default())?;
        // Cursors made by a test are read by the same test: any key will do.
        let engine = Engine::start(plan, wiring::make_database(), telemetry, [7; 32])
            .map_err(|problems| anyhow::anyhow!("{}", problems.join("\n")))?;
        anyhow::Ok(run_all(&engine).await)
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::from(u8::from(failed > 0)))
}

async fn run_all(engine: &Engine) -> usize {
    let live = engine.live();
    let (mut passed, mut failed) = (0, 0);
    for (index, flow) in live.plan.flows.iter().enumerate() {
        for test in &flow.tests {
            match run_one(engine, &live, index, flow, test).await {
                Ok(()) => {
                    passed += 1;
                    println!("ok      {}: {}", flow.name, test.name);
                }
                Err(problem) => {
                    failed += 1;
                    println!("failed  {}: {} ({}:{})\n        {problem}", flow.name, test.name, flow.file.display(), test.line);
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    failed
}

async fn run_one(engine: &Engine, live: &Arc<Live>, index: usize, flow: &Arc<Flow>, test: &FlowTest) -> Result<(), String> {
    let tenant = live.tenants.iter().position(|tenant| tenant.plan.name == test.tenant).ok_or("no such tenant")?;
    let stubs =
        test.rows.iter().map(|(step, rows)| Ok((step.clone(), stub(flow, step, rows)?))).collect::<Result<BTreeMap<_, _>, String>>()?;
    let given = intake::Given { body: Some(test.given.as_bytes()), ..intake::Given::default() };
    let ended = match intake::read(flow, &live.tenants[tenant].plan, &given) {
        Err(refusal) => Err(refusal),
        Ok(intake) => {
            let deadline = Instant::now() + flow.deadline.value;
            let flowfile = Flowfile { id: "test".into(), tenant: test.tenant.clone(), run: None, input: intake.values, deadline };
            let stubs = Some(Arc::new(stubs));
            let call = Call {
                live: live.clone(),
                flow: index,
                tenant,
                flowfile,
                page: intake.page,
                permit: None,
                stubs,
                room: None,
                // A test keeps nothing: one key serves them all.
                key: flow.idempotency.as_ref().map(|_| "test".into()),
                wait: None,
                depth: 0,
                trace: None,
            };
            Ok(engine.run(call).await)
        }
    };
    let (status, body) = offline_reply(ended);
    let shown = || String::from_utf8_lossy(&body).into_owned();
    if status != test.expect_status {
        return Err(format!("expected status {}, got {status}: {}", test.expect_status, shown()));
    }
    let Some(expected) = &test.expect_body else { return Ok(()) };
    let expected: Json = serde_json::from_str(expected).map_err(|error| format!("expect.body: {error}"))?;
    let got: Json = serde_json::from_slice(&body).map_err(|error| format!("the reply is not JSON ({error}): {}", shown()))?;
    match difference("body", &expected, &got) {
        None => Ok(()),
        Some(difference) => Err(format!("{difference}\n        whole body: {}", shown())),
    }
}

/// Stubbed rows as a database would give them: with the declared columns, or with those of the first row.
fn stub(flow: &Flow, step: &str, rows: &[Vec<(Box<str>, Value)>]) -> Result<Rows, String> {
    let declared = flow.steps.iter().find(|known| &*known.name == step).and_then(|step| match &step.action {
        Action::Sql(sql) if !sql.columns.is_empty() => Some(sql.columns.clone()),
        _ => None,
    });
    let columns =
        declared.unwrap_or_else(|| rows.first().into_iter().flatten().map(|(name, value)| (name.clone(), Type::of(value))).collect());
    let columns: Arc<[Column]> = columns.into_iter().map(|(name, kind)| Column { name, kind }).collect();
    let mut builder = RowsBuilder::new(
        columns.clone(),
        spillgate_model::limits::MAX_ROWS,
        usize::try_from(spillgate_model::limits::MAX_BYTES).unwrap_or(usize::MAX),
    );
    for row in rows {
        for column in columns.iter() {
            let value = row.iter().find(|(name, _)| *name == column.name).map_or(&Value::Null, |(_, value)| value);
            push(&mut builder, column, value)?;
        }
        builder.end_row();
    }
    Ok(builder.finish())
}

fn push(builder: &mut RowsBuilder, column: &Column, value: &Value) -> Result<(), String> {
    let too_large = |error: spillgate_model::rows::ValueTooLarge| error.to_string();
    match value {
        Value::Null => builder.null(),
        Value::Boolean(value) => builder.boolean(*value),
        Value::Integer(value) => builder.integer(*value),
        Value::Number(value) => builder.number(*value),
        Value::Binary(bytes) => builder.binary(bytes).map_err(too_large)?,
        Value::Text(text) | Value::Decimal(text) | Value::Date(text) | Value::Time(text) | Value::Timestamp(text) => {
            builder.text(column.kind, text).map_err(too_large)?
        }
        Value::List(_) => return Err(format!("a list is no value of a column ({})", column.name)),
    }
    Ok(())
}

/// The first place where `got` is not what is expected: objects need at least the expected keys, the rest is exact.
fn difference(place: &str, expected: &Json, got: &Json) -> Option<String> {
    match (expected, got) {
        (Json::Object(expected), Json::Object(got)) => expected.iter().find_map(|(key, value)| {
            let place = format!("{place}.{key}");
            match got.get(key) {
                Some(got) => difference(&place, value, got),
                None => Some(format!("{place} is missing, expected {value}")),
            }
        }),
        (Json::Array(expected), Json::Array(got)) if expected.len() == got.len() => expected
            .iter()
            .zip(got)
            .enumerate()
            .find_map(|(index, (expected, got))| difference(&format!("{place}[{index}]"), expected, got)),
        (Json::Number(left), Json::Number(right)) if left.as_f64() == right.as_f64() && left.is_f64() != right.is_f64() => None,
        _ if expected == got => None,
        _ => Some(format!("{place}: expected {expected}, got {got}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_named_by_its_place() {
        let got = json!({ "rows": [{ "ID": 1, "LAT": "45.7" }], "row_count": 1 });
        assert_eq!(difference("body", &json!({ "rows": [{ "LAT": "45.7" }] }), &got), None);
        assert_eq!(
            difference("body", &json!({ "rows": [{ "LAT": 45.7 }] }), &got).as_deref(),
            Some("body.rows[0].LAT: expected 45.7, got \"45.7\"")
        );
        assert!(difference("body", &json!({ "rows": [] }), &got).is_some());
        assert!(difference("body", &json!({ "next": null }), &got).is_some());
    }
}
