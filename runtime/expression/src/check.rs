//! What a parsed expression may hold: known names, known functions, bounded depth.

use std::collections::BTreeSet;

use cel::Program;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};

use crate::functions::{self, TYPES, pattern_cost};
use crate::{ExpressionError, Names};

/// Deepest tree that is evaluated: the interpreter recurses, on stacks of 2 MiB.
const MAX_DEPTH: usize = 64;
/// Deepest nesting of `map`, `filter`, `all`, `exists`.
const MAX_MACROS: usize = 3;

const OPERATORS: &[&str] = &[
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::NOT_STRICTLY_FALSE,
    operators::IN,
];

/// Checks a program's tree and collects the paths it reads.
pub(crate) fn check(program: &Program, tree: &IdedExpr, text: &str) -> Result<Names, ExpressionError> {
    let mut checker = Checker { program, text, paths: BTreeSet::new(), variables: Vec::new(), depth: 0 };
    checker.walk(tree)?;
    Ok(Names { paths: checker.paths.into_iter().collect() })
}

/// Bytes of the first `characters` of `text`.
pub(crate) fn byte_offset(text: &str, characters: usize) -> usize {
    text.char_indices().nth(characters).map_or(text.len(), |(offset, _)| offset)
}

struct Checker<'a> {
    program: &'a Program,
    text: &'a str,
    paths: BTreeSet<String>,
    /// Variables of the macros around, innermost last.
    variables: Vec<&'a str>,
    depth: usize,
}

impl<'a> Checker<'a> {
    fn refuse<T>(&self, place: &IdedExpr, message: impl Into<String>) -> Result<T, ExpressionError> {
        // A selection stands at its dot: show where its operand starts.
        let mut place = place;
        while let Expr::Select(SelectExpr { operand, .. }) = &place.expr {
            place = operand;
        }
        let start = self.program.source_info().offset_for(place.id);
        let offset = start.map(|(start, _)| byte_offset(self.text, start as usize));
        Err(ExpressionError { message: message.into(), offset })
    }

    fn walk(&mut self, node: &'a IdedExpr) -> Result<(), ExpressionError> {
        self.depth += 1;
        let path = path_of(node);
        if self.depth + path.as_ref().map_or(0, Vec::len) > MAX_DEPTH {
            return self.refuse(node, format!("the expression is nested more than {MAX_DEPTH} deep; use fewer operators in a row"));
        }
        if let Some(path) = path.filter(|path| !self.variables.contains(&path[0])) {
            self.read(node, &path)?;
            self.depth -= 1;
            return Ok(());
        }
        match &node.expr {
            Expr::Ident(name) => self.identifier(node, name)?,
            Expr::Select(SelectExpr { operand, .. }) => self.walk(operand)?,
            Expr::Call(call) => self.call(node, call)?,
            Expr::Comprehension(comprehension) => self.comprehension(node, comprehension)?,
            Expr::List(list) => {
                if !list.optional_indices.is_empty() {
                    return self.refuse(node, "optional values are not used here");
                }
                list.elements.iter().try_for_each(|element| self.walk(element))?;
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) if !entry.optional => {
                            self.walk(&entry.key)?;
                            self.walk(&entry.value)?;
                        }
                        _ => return self.refuse(node, "optional values are not used here"),
                    }
                }
            }
            Expr::Literal(_) => {}
            Expr::Struct(made) => {
                return self.refuse(node, format!("there is no type `{}`; a map is written {{'key': value}}", made.type_name));
            }
            Expr::Unspecified => return self.refuse(node, "the expression could not be read"),
        }
        self.depth -= 1;
        Ok(())
    }

    /// A path below one of the roots: `input.x`, `steps['s'].rows`, `has(tenant.x)`.
    fn read(&mut self, node: &IdedExpr, path: &[&str]) -> Result<(), ExpressionError> {
        match path {
            ["input" | "tenant", _, ..] => self.paths.insert(path[..2].join(".")),
            ["steps", _, "rows" | "value" | "error", ..] => self.paths.insert(path[..3].join(".")),
            ["steps", step, other, ..] => {
                return self.refuse(node, format!("`steps.{step}` has `rows`, `value` and `error`, not `{other}`"));
            }
            ["steps", ..] => return self.refuse(node, "expected `steps.NAME.rows`, `.value` or `.error`"),
            [root @ ("input" | "tenant")] => return self.refuse(node, format!("expected `{root}.NAME`")),
            [name, ..] => return self.refuse(node, format!("unknown name `{name}`: an expression reads `input`, `tenant` and `steps`")),
            [] => return Ok(()),
        };
        Ok(())
    }

    fn identifier(&self, node: &IdedExpr, name: &str) -> Result<(), ExpressionError> {
        if name.starts_with('@') || self.variables.contains(&name) || TYPES.contains(&name) {
            return Ok(());
        }
        self.refuse(node, format!("unknown name `{name}`: an expression reads `input`, `tenant` and `steps`"))
    }

    fn call(&mut self, node: &'a IdedExpr, call: &'a CallExpr) -> Result<(), ExpressionError> {
        if crate::from_end::from_end(call).is_some() {
            return self.refuse(node, "an index below 0 counts from the end of a list that is named, such as `steps.NAME.rows[-1]`");
        }
        let is_operator = call.target.is_none() && OPERATORS.contains(&call.func_name.as_str());
        if !is_operator {
            let arguments = call.args.len() + usize::from(call.target.is_some());
            if let Err(message) = functions::known(&call.func_name, call.target.is_some(), arguments) {
                return self.refuse(node, message);
            }
            if call.func_name == "matches" {
                match call.args.last().map(|pattern| &pattern.expr) {
                    Some(Expr::Literal(LiteralValue::String(pattern))) => {
                        if let Err(message) = pattern_cost(pattern.inner()) {
                            return self.refuse(node, message);
                        }
                    }
                    _ => return self.refuse(node, "the pattern of `matches` is written as a text literal"),
                }
            }
        }
        call.target.iter().try_for_each(|target| self.walk(target))?;
        call.args.iter().try_for_each(|argument| self.walk(argument))
    }

    fn comprehension(&mut self, node: &'a IdedExpr, comprehension: &'a ComprehensionExpr) -> Result<(), ExpressionError> {
        self.walk(&comprehension.iter_range)?;
        if ["input", "tenant", "steps"].contains(&comprehension.iter_var.as_str()) {
            return self.refuse(node, format!("`{}` is taken; name the variable otherwise", comprehension.iter_var));
        }
        if self.variables.len() == MAX_MACROS {
            return self.refuse(node, format!("macros (map, filter, all, exists) nest at most {MAX_MACROS} deep"));
        }
        self.walk(&comprehension.accu_init)?;
        self.variables.push(&comprehension.iter_var);
        self.walk(&comprehension.loop_cond)?;
        self.walk(&comprehension.loop_step)?;
        self.variables.pop();
        self.walk(&comprehension.result)
    }
}

/// The literal path a node spells: identifiers, fields, and text literals as index. None for anything computed, and
/// for names of types and of the interpreter (`@result`), which are no paths.
pub(crate) fn path_of(node: &IdedExpr) -> Option<Vec<&str>> {
    let mut path = Vec::new();
    let mut at = node;
    loop {
        match &at.expr {
            Expr::Ident(name) if name.starts_with('@') || TYPES.contains(&name.as_str()) => return None,
            Expr::Ident(name) => {
                path.push(name.as_str());
                path.reverse();
                return Some(path);
            }
            Expr::Select(select) => {
                path.push(&select.field);
                at = &select.operand;
            }
            Expr::Call(call) if call.func_name == operators::INDEX && call.args.len() == 2 => match &call.args[1].expr {
                Expr::Literal(LiteralValue::String(key)) => {
                    path.push(key.inner());
                    at = &call.args[0];
                }
                _ => return None,
            },
            _ => return None,
        }
    }
}
