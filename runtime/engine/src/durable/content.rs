//! What an item holds: everything a worker needs to go on where the flow was cut, and nothing of the plan.
//!
//! Form, version 2: `[2][kind][origin][depth][flow][tenant][request id][run?][key?][stand-in, without key][trace?][inputs][carried]`.
//! Version 1, without the stand-in, is read too. Numbers, decimals and bytes come back exactly. Another version, or bytes that are no
//! item, are told apart and never a panic.

use std::sync::Arc;

use spillgate_model::{Code, Type, Value};
use spillgate_telemetry::TraceContext;

use super::codec::{DEPTH, Reader, Unreadable, Writer};
use crate::steps::Carried;

const VERSION: u8 = 2;
const WITHOUT_STAND_IN: u8 = 1;

/// Where a run of the item begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// At the first step: a direct call with a key, or a scheduled run.
    AtStart,
    /// Behind the flow's `queue` step.
    BehindCut,
}

/// Who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Caller,
    /// Another flow handed it on.
    Emitted,
    Schedule,
}

/// An input as it was given, with the type it had then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenInput {
    pub(crate) name: Box<str>,
    pub(crate) kind: Type,
    pub(crate) list: bool,
    /// It came from this attribute of the tenant, not from the caller.
    pub(crate) from_tenant: Option<Box<str>>,
    pub(crate) value: Value,
}

/// The content of an item.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) begins: Begins,
    pub(crate) origin: Origin,
    /// Hops of the run so far.
    pub(crate) depth: u32,
    pub(crate) flow: Arc<str>,
    pub(crate) tenant: Arc<str>,
    /// Of the request it came with.
    pub(crate) id: Arc<str>,
    pub(crate) run: Option<Arc<str>>,
    /// `Idempotency-Key` as it was sent.
    pub(crate) key: Option<Arc<str>>,
    /// Without a key: a number drawn for this work. Job ids would not do: a store that is made anew, or put back from a copy, gives
    /// them out again, and callers can spell them.
    pub(crate) stand_in: Option<u128>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) inputs: Vec<GivenInput>,
    pub(crate) carried: Vec<Carried>,
}

/// Why bytes are no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoContent {
    #[error("it was written in version {0}, which this server does not read")]
    Version(u8),
    #[error("it cannot be read")]
    Unreadable,
}

/// A value is nested more deeply than an item may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value is nested more than {DEPTH} deep")]
pub(crate) struct TooDeep;

impl Content {
    /// What stands for this work in a flow's `record`: the caller's key, or what was drawn in its place. `None` of an item that has
    /// neither, as those of version 1.
    pub(crate) fn record_key(&self) -> Option<Arc<str>> {
        self.key.clone().or_else(|| self.stand_in.map(|number| format!("job:{number:032x}").into()))
    }
    /// The bytes of it.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, TooDeep> {
        let mut writer = Writer::default();
        writer.fixed(&[VERSION, begins_tag(self.begins), origin_tag(self.origin)]);
        writer.number(u64::from(self.depth));
        [&self.flow, &self.tenant, &self.id].into_iter().for_each(|text| writer.text(text));
        writer.optional(self.run.as_deref());
        writer.optional(self.key.as_deref());
        if self.key.is_none() {
            writer.fixed(&self.stand_in.unwrap_or_default().to_le_bytes());
        }
        writer.byte(u8::from(self.trace.is_some()));
        if let Some(trace) = &self.trace {
            writer.fixed(&trace.trace_id.to_le_bytes());
            writer.fixed(&trace.span_id.to_le_bytes());
            writer.fixed(&trace.parent_id.to_le_bytes());
            writer.byte(u8::from(trace.sampled));
        }
        writer.number(self.inputs.len() as u64);
        for input in &self.inputs {
            writer.text(&input.name);
            writer.fixed(&[kind_tag(input.kind), u8::from(input.list)]);
            writer.optional(input.from_tenant.as_deref());
            writer.value(&input.value);
        }
        writer.number(self.carried.len() as u64);
        self.carried.iter().try_for_each(|carried| write_carried(&mut writer, carried))?;
        Ok(writer.out)
    }

    /// What an item of these bytes holds.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Content, NoContent> {
        let version = match bytes.first() {
            Some(&version @ (VERSION | WITHOUT_STAND_IN)) => version,
            Some(&other) => return Err(NoContent::Version(other)),
            None => return Err(NoContent::Unreadable),
        };
        let mut reader = Reader { rest: &bytes[1..] };
        let content = read(&mut reader, version).map_err(|Unreadable| NoContent::Unreadable)?;
        if reader.rest.is_empty() { Ok(content) } else { Err(NoContent::Unreadable) }
    }
}

fn write_carried(writer: &mut Writer, carried: &Carried) -> Result<(), TooDeep> {
    writer.text(&carried.step);
    let Carried { last, ran, rows, affected, value, error, .. } = carried;
    let present = [*last, *ran, rows.is_some(), affected.is_some(), value.is_some(), error.is_some()];
    writer.byte(present.iter().enumerate().fold(0, |bits, (bit, set)| bits | u8::from(*set) << bit));
    if let Some(rows) = rows {
        writer.rows(rows);
    }
    if let Some(affected) = affected {
        writer.number(*affected);
    }
    if let Some(value) = value
        && !writer.datum(value, DEPTH)
    {
        return Err(TooDeep);
    }
    if let Some(error) = error {
        writer.text(error.name());
    }
    Ok(())
}

fn read(reader: &mut Reader<'_>, version: u8) -> Result<Content, Unreadable> {
    let begins = match reader.byte()? {
        0 => Begins::AtStart,
        1 => Begins::BehindCut,
        _ => return Err(Unreadable),
    };
    let origin = match reader.byte()? {
        0 => Origin::Caller,
        1 => Origin::Emitted,
        2 => Origin::Schedule,
        _ => return Err(Unreadable),
    };
    let depth = u32::try_from(reader.number()?).map_err(|_| Unreadable)?;
    let [flow, tenant, id] = [reader.text()?, reader.text()?, reader.text()?].map(Arc::from);
    let run = reader.optional()?.map(Arc::from);
    let key = reader.optional()?.map(Arc::from);
    let numbered = key.is_none() && version != WITHOUT_STAND_IN;
    let stand_in = if numbered { Some(u128::from_le_bytes(reader.fixed()?)) } else { None };
    let trace = if reader.flag()? { Some(trace(reader)?) } else { None };
    let count = reader.count()?;
    let inputs = (0..count).map(|_| input(reader)).collect::<Result<_, _>>()?;
    let count = reader.count()?;
    let carried = (0..count).map(|_| carried(reader)).collect::<Result<_, _>>()?;
    Ok(Content { begins, origin, depth, flow, tenant, id, run, key, stand_in, trace, inputs, carried })
}

fn trace(reader: &mut Reader<'_>) -> Result<TraceContext, Unreadable> {
    Ok(TraceContext {
        trace_id: u128::from_le_bytes(reader.fixed()?),
        span_id: u64::from_le_bytes(reader.fixed()?),
        parent_id: u64::from_le_bytes(reader.fixed()?),
        sampled: reader.flag()?,
    })
}

fn input(reader: &mut Reader<'_>) -> Result<GivenInput, Unreadable> {
    let name = reader.text()?.into();
    let tag = usize::from(reader.byte()?);
    let kind = *Type::ALL.get(tag).ok_or(Unreadable)?;
    let list = reader.flag()?;
    let from_tenant = reader.optional()?.map(Box::from);
    Ok(GivenInput { name, kind, list, from_tenant, value: reader.value()? })
}

fn carried(reader: &mut Reader<'_>) -> Result<Carried, Unreadable> {
    let step = Arc::from(reader.text()?);
    let bits = reader.byte()?;
    let [last, ran, rows, affected, value, error] = [0, 1, 2, 3, 4, 5].map(|bit| bits >> bit & 1 == 1);
    if bits >> 6 != 0 {
        return Err(Unreadable);
    }
    Ok(Carried {
        step,
        last,
        ran,
        rows: if rows { Some(Arc::new(reader.rows()?)) } else { None },
        affected: if affected { Some(reader.number()?) } else { None },
        value: if value { Some(reader.datum(DEPTH)?) } else { None },
        error: if error { Some(code(reader.text()?)?) } else { None },
    })
}

fn code(name: &str) -> Result<Code, Unreadable> {
    Code::ALL.iter().copied().find(|code| code.name() == name).ok_or(Unreadable)
}

fn begins_tag(begins: Begins) -> u8 {
    match begins {
        Begins::AtStart => 0,
        Begins::BehindCut => 1,
    }
}

fn origin_tag(origin: Origin) -> u8 {
    match origin {
        Origin::Caller => 0,
        Origin::Emitted => 1,
        Origin::Schedule => 2,
    }
}

/// The place in [`Type::ALL`], which only ever grows at its end.
fn kind_tag(kind: Type) -> u8 {
    Type::ALL.iter().position(|known| *known == kind).and_then(|tag| u8::try_from(tag).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
