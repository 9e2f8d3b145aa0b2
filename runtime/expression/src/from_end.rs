//! `rows[-1]`: an index that counts from the end of a list.
//!
//! CEL has none, so it is written out before anything else looks at the tree: `path[-N].rest` becomes
//! `size(path) >= N ? path[size(path) - N].rest : null`. What is not there is null, and so is what is selected from it.
//!
//! It refuses nothing itself: where the list is no plain path, evaluating it twice could cost more than it says, so the index
//! stays as it is and the checker refuses it.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators};

use crate::check::path_of;

/// Writes out every such index of a tree.
pub(crate) fn write_out(node: &mut IdedExpr) {
    if let Some(written) = written_out(node) {
        *node = written;
        return;
    }
    match &mut node.expr {
        Expr::Select(select) => write_out(&mut select.operand),
        Expr::Call(call) => call.target.iter_mut().map(|target| &mut **target).chain(&mut call.args).for_each(write_out),
        Expr::List(list) => list.elements.iter_mut().for_each(write_out),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| {
            if let cel::common::ast::EntryExpr::MapEntry(entry) = &mut entry.expr {
                write_out(&mut entry.key);
                write_out(&mut entry.value);
            }
        }),
        Expr::Comprehension(macro_) => {
            let parts = [&mut macro_.iter_range, &mut macro_.accu_init, &mut macro_.loop_cond, &mut macro_.loop_step, &mut macro_.result];
            parts.into_iter().for_each(write_out);
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// N of `list[-N]`.
pub(crate) fn from_end(call: &CallExpr) -> Option<i64> {
    if call.func_name != operators::INDEX || call.args.len() != 2 {
        return None;
    }
    let number = |node: &IdedExpr| match &node.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(*number.inner()),
        _ => None,
    };
    let index = match &call.args[1].expr {
        Expr::Call(negated) if negated.func_name == operators::NEGATE => negated.args.first().and_then(number).and_then(i64::checked_neg),
        _ => number(&call.args[1]),
    };
    index.filter(|index| *index < 0).and_then(i64::checked_neg)
}

/// The chain of selections that `node` is, if it begins with such an index of a path.
fn written_out(node: &IdedExpr) -> Option<IdedExpr> {
    if !has_index(node) {
        return None;
    }
    let mut chain = node.clone();
    let at = index_in(&mut chain)?;
    let Expr::Call(call) = &mut at.expr else { return None };
    let count = from_end(call)?;
    path_of(&call.args[0])?;
    let id = at.id;
    let node_of = |expr| IdedExpr { id, expr };
    let number = || node_of(Expr::Literal(LiteralValue::Int(count.into())));
    let calling = |name: &str, args: Vec<IdedExpr>| node_of(Expr::Call(CallExpr { func_name: name.into(), target: None, args }));
    let size = || calling("size", vec![call.args[0].clone()]);
    let (is_there, position) =
        (calling(operators::GREATER_EQUALS, vec![size(), number()]), calling(operators::SUBSTRACT, vec![size(), number()]));
    call.args[1] = position;
    let tests = matches!(&node.expr, Expr::Select(SelectExpr { test: true, .. }));
    let otherwise = if tests { LiteralValue::Boolean(false.into()) } else { LiteralValue::Null };
    let branches = vec![is_there, chain, node_of(Expr::Literal(otherwise))];
    Some(IdedExpr { id: node.id, expr: Expr::Call(CallExpr { func_name: operators::CONDITIONAL.into(), target: None, args: branches }) })
}

/// Whether [`index_in`] finds one: asked of every node, so nothing is copied for it.
fn has_index(mut node: &IdedExpr) -> bool {
    loop {
        node = match &node.expr {
            Expr::Call(call) if from_end(call).is_some() => return true,
            Expr::Select(select) => &select.operand,
            Expr::Call(call)
                if call.func_name == operators::INDEX && matches!(call.args.get(1).map(|key| &key.expr), Some(Expr::Literal(_))) =>
            {
                &call.args[0]
            }
            _ => return false,
        };
    }
}

/// The first index from the end under selections and other literal indexes.
fn index_in(node: &mut IdedExpr) -> Option<&mut IdedExpr> {
    let is_it = matches!(&node.expr, Expr::Call(call) if from_end(call).is_some());
    if is_it {
        return Some(node);
    }
    match &mut node.expr {
        Expr::Select(select) => index_in(&mut select.operand),
        Expr::Call(call)
            if call.func_name == operators::INDEX && matches!(call.args.get(1).map(|key| &key.expr), Some(Expr::Literal(_))) =>
        {
            index_in(&mut call.args[0])
        }
        _ => None,
    }
}
