//! A bound on the steps of an evaluation, from the tree and the sizes of what it reads.
//!
//! Each node yields steps and an extent: the very value where it is known (a path into the scope), else a shape that is
//! at least as large as any value it can have. A macro costs its body times the length of its list. Whatever the interpreter
//! copies is charged by its weight; all sums saturate.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use spillgate_model::Datum;

use crate::Scope;
use crate::functions::{self, pattern_cost};

/// At least as large as every value it stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// Bytes of a text or binary.
    pub(crate) bytes: u64,
    /// Items of a list or entries of a map.
    pub(crate) len: u64,
    /// Any of its items.
    pub(crate) item: Option<Box<Shape>>,
}

impl Shape {
    pub(crate) fn text(bytes: u64) -> Shape {
        Shape { bytes, len: 0, item: None }
    }
    fn of(datum: &Datum) -> Shape {
        let mut shape = Shape::default();
        shape.cover(datum);
        shape
    }
    /// Grows until it also stands for `datum`.
    fn cover(&mut self, datum: &Datum) {
        match datum {
            Datum::Text(text) => self.bytes = self.bytes.max(text.len() as u64),
            Datum::Binary(bytes) => self.bytes = self.bytes.max(bytes.len() as u64),
            Datum::List(items) => {
                self.len = self.len.max(items.len() as u64);
                items.iter().for_each(|item| self.item.get_or_insert_default().cover(item));
            }
            Datum::Map(entries) => {
                self.len = self.len.max(entries.len() as u64);
                for (key, value) in entries.iter() {
                    let item = self.item.get_or_insert_default();
                    item.bytes = item.bytes.max(key.len() as u64);
                    item.cover(value);
                }
            }
            Datum::Null | Datum::Boolean(_) | Datum::Integer(_) | Datum::Number(_) => {}
        }
    }
    /// Grows until it also stands for whatever `other` does.
    fn join(mut self, other: Shape) -> Shape {
        self.bytes = self.bytes.max(other.bytes);
        self.len = self.len.max(other.len);
        self.item = match (self.item, other.item) {
            (Some(one), Some(two)) => Some(Box::new(one.join(*two))),
            (one, two) => one.or(two),
        };
        self
    }
}

/// Steps to copy, compare or drop a value of this shape.
pub(crate) fn weight(shape: &Shape) -> u64 {
    let items = shape.item.as_ref().map_or(0, |item| weight(item).saturating_mul(shape.len));
    (1 + shape.bytes / 16).saturating_add(items)
}

#[derive(Clone)]
enum Extent<'a> {
    Exact(&'a Datum),
    Bound(Shape),
}

/// A bound on the steps of evaluating `node` over `scope`.
pub(crate) fn estimate(node: &IdedExpr, scope: &Scope<'_>) -> u64 {
    let mut estimator = Estimator { scope, variables: Vec::new(), shapes: HashMap::new() };
    let (steps, extent) = estimator.walk(node);
    let read = estimator.shapes.values().map(weight).fold(0, u64::saturating_add);
    steps.saturating_add(weight(&estimator.shape(&extent))).saturating_add(read / 8)
}

struct Estimator<'a> {
    scope: &'a Scope<'a>,
    variables: Vec<(&'a str, Extent<'a>)>,
    /// Shapes of data met so far, by address.
    shapes: HashMap<*const Datum, Shape>,
}

impl<'a> Estimator<'a> {
    fn shape(&mut self, extent: &Extent<'a>) -> Shape {
        match extent {
            Extent::Bound(shape) => shape.clone(),
            Extent::Exact(datum) => self.shapes.entry(std::ptr::from_ref(*datum)).or_insert_with(|| Shape::of(datum)).clone(),
        }
    }

    fn walk(&mut self, node: &'a IdedExpr) -> (u64, Extent<'a>) {
        match &node.expr {
            Expr::Literal(literal) => (1, Extent::Bound(literal_shape(literal))),
            Expr::Ident(name) => {
                let found = self.variables.iter().rev().find(|(variable, _)| variable == name);
                (1, found.map_or(Extent::Bound(Shape::default()), |(_, extent)| extent.clone()))
            }
            Expr::Select(select) => self.field(&select.operand, &select.field),
            Expr::List(list) => self.collect(list.elements.iter().map(|element| (None, element))),
            Expr::Map(map) => self.collect(map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some((Some(&entry.key), &entry.value)),
                EntryExpr::StructField(_) => None,
            })),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => (1, Extent::Bound(Shape::default())),
        }
    }

    /// `operand.field` or `operand['field']`.
    fn field(&mut self, operand: &'a IdedExpr, field: &str) -> (u64, Extent<'a>) {
        if let Expr::Ident(root) = &operand.expr
            && let Some(values) = self.scope.root(root)
        {
            let value = values.iter().find(|(name, _)| *name == field).map(|(_, value)| value);
            return (2, value.map_or(Extent::Bound(Shape::default()), Extent::Exact));
        }
        let (steps, extent) = self.walk(operand);
        let child = match &extent {
            Extent::Exact(Datum::Map(entries)) => entries.get(field).map_or(Extent::Bound(Shape::default()), Extent::Exact),
            Extent::Exact(_) => Extent::Bound(Shape::default()),
            Extent::Bound(shape) => Extent::Bound(shape.item.as_deref().cloned().unwrap_or_default()),
        };
        (steps.saturating_add(1), child)
    }

    /// A list or map literal: what it holds is copied into it.
    fn collect(&mut self, entries: impl Iterator<Item = (Option<&'a IdedExpr>, &'a IdedExpr)>) -> (u64, Extent<'a>) {
        let (mut steps, mut len, mut item) = (1u64, 0, Shape::default());
        for (key, value) in entries {
            for part in key.into_iter().chain([value]) {
                let (part_steps, extent) = self.walk(part);
                let shape = self.shape(&extent);
                steps = steps.saturating_add(part_steps).saturating_add(weight(&shape));
                item = item.join(shape);
            }
            len += 1;
        }
        (steps, Extent::Bound(Shape { bytes: 0, len, item: Some(Box::new(item)) }))
    }

    fn call(&mut self, call: &'a CallExpr) -> (u64, Extent<'a>) {
        if let (operators::INDEX, [operand, index]) = (call.func_name.as_str(), call.args.as_slice()) {
            return self.index(operand, index);
        }
        let mut steps = 1u64;
        let mut arguments = Vec::with_capacity(call.args.len() + 1);
        for argument in call.target.as_deref().into_iter().chain(&call.args) {
            let (argument_steps, extent) = self.walk(argument);
            steps = steps.saturating_add(argument_steps);
            arguments.push(self.shape(&extent));
        }
        let (own, result) = match (call.func_name.as_str(), arguments.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => (1, yes.clone().join(no.clone())),
            (operators::ADD, [left, right]) => {
                let mut sum = left.clone().join(right.clone());
                sum.bytes = left.bytes.saturating_add(right.bytes);
                sum.len = left.len.saturating_add(right.len);
                (weight(&sum), sum)
            }
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::IN,
                [left, right],
            ) => {
                // `x in list` compares with each item; any comparison ends with the shorter side.
                let each = if call.func_name == operators::IN { weight(left).saturating_mul(right.len) } else { 0 };
                (weight(left).saturating_add(weight(right)).saturating_add(each), Shape::default())
            }
            ("matches", [text, _]) => (pattern_steps(call, text), Shape::default()),
            (name, arguments) => functions::cost(name, arguments),
        };
        (steps.saturating_add(own), Extent::Bound(result))
    }

    fn index(&mut self, operand: &'a IdedExpr, index: &'a IdedExpr) -> (u64, Extent<'a>) {
        match &index.expr {
            Expr::Literal(LiteralValue::String(key)) => self.field(operand, key.inner()),
            Expr::Literal(LiteralValue::Int(position)) => {
                let (steps, extent) = self.walk(operand);
                if let Extent::Exact(Datum::List(items)) = extent {
                    let item = usize::try_from(*position.inner()).ok().and_then(|position| items.get(position));
                    return (steps.saturating_add(1), item.map_or(Extent::Bound(Shape::default()), Extent::Exact));
                }
                let shape = self.shape(&extent);
                (steps.saturating_add(1), Extent::Bound(shape.item.map(|item| *item).unwrap_or_default()))
            }
            _ => {
                let (steps, extent) = self.walk(operand);
                let (index_steps, key) = self.walk(index);
                let (shape, key) = (self.shape(&extent), self.shape(&key));
                let item = shape.item.map(|item| *item).unwrap_or_default();
                (steps.saturating_add(index_steps).saturating_add(weight(&key)), Extent::Bound(item))
            }
        }
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> (u64, Extent<'a>) {
        let (range_steps, range) = self.walk(&comprehension.iter_range);
        let range = self.shape(&range);
        let item = range.item.map(|item| *item).unwrap_or_default();
        let copy = weight(&item);
        self.variables.push((&comprehension.iter_var, Extent::Bound(item)));
        let (condition_steps, _) = self.walk(&comprehension.loop_cond);
        let (body_steps, body) = self.walk(&comprehension.loop_step);
        self.variables.pop();
        let each = condition_steps.saturating_add(body_steps).saturating_add(copy).saturating_add(1);
        let steps = range_steps.saturating_add(each.saturating_mul(range.len)).saturating_add(2);
        let mut result = self.shape(&body);
        // `map` and `filter` append what the body makes of each item; the others end in a boolean or a count.
        result.len = result.len.saturating_mul(range.len);
        (steps, Extent::Bound(result))
    }
}

fn literal_shape(literal: &LiteralValue) -> Shape {
    match literal {
        LiteralValue::String(text) => Shape::text(text.inner().len() as u64),
        LiteralValue::Bytes(bytes) => Shape::text(bytes.inner().len() as u64),
        _ => Shape::default(),
    }
}

fn pattern_steps(call: &CallExpr, text: &Shape) -> u64 {
    let pattern = call.args.last().and_then(|pattern| match &pattern.expr {
        Expr::Literal(LiteralValue::String(pattern)) => pattern_cost(pattern.inner()).ok(),
        _ => None,
    });
    pattern.map_or(u64::MAX, |(compile, per_byte)| compile.saturating_add(text.bytes.saturating_mul(per_byte)))
}
