//! A proven template's two other forms, as text. Owns where the text is changed; must refuse what it can't find there
//! again.
//!
//! The *kept* form prints what the template prints, and a mark where its printing loop comes to the last message; it
//! keeps there what its loops carry. The *resumed* form loops over the pivot and what follows alone, with what was
//! kept put back first, marks the pivot's place, and goes on like the kept one. What it prints before is not used, so
//! statements that only print are silenced.

use super::proof::{Loop, Proven, Unprovable, prints};
use minijinja::machinery::Span;
use minijinja::machinery::ast::{self, CallArg, Expr, Stmt};

/// Names of ours begin so; a template that has it is not proven.
pub(super) const OURS: &str = "warmpath_";

/// Stands where the printing loop comes to the last message. A text that has it by itself is rendered as ever.
pub(super) const LAST: &str = "\u{fdd0}last\u{fdd1}";

/// Stands where the resumed form comes to the pivot.
pub(super) const PIVOT: &str = "\u{fdd0}pivot\u{fdd1}";

/// A change of the text: what stands in a range gives way.
struct Change {
    from: usize,
    to: usize,
    with: String,
}

/// The two forms.
pub(super) struct Forms {
    pub(super) kept: String,
    pub(super) resumed: String,
}

/// Makes both.
pub(super) fn forms(
    source: &str,
    template: &[Stmt<'_>],
    proven: &Proven<'_, '_>,
) -> Result<Forms, Unprovable> {
    if source.contains(OURS) || source.contains('\u{fdd0}') {
        return Err("it has names of ours".into());
    }
    listed(template, proven)?;
    let (mut kept, mut resumed) = (Vec::new(), Vec::new());
    for (number, each) in proven.loops.iter().enumerate() {
        resumed.push(replaced(source, list(&each.node.iter)?, &format!("{OURS}rest"))?);
        if each.reversed {
            continue;
        }
        let (at, close) = body(source, each.node)?;
        kept.push(Change { from: at, to: at, with: keeping(number, each, "", close) });
        let (putting, shift) = (putting(number, each), format!(" + {OURS}at{number}"));
        let with = putting + &keeping(number, each, &shift, close);
        resumed.push(Change { from: at, to: at, with });
        shifted(source, &each.node.body, number, &mut resumed)?;
    }
    let nodes: Vec<&ast::ForLoop<'_>> = proven.loops.iter().map(|each| each.node).collect();
    for statement in template {
        if holds(statement, &nodes) {
            break;
        }
        silence(source, statement, &mut resumed);
    }
    Ok(Forms { kept: changed(source, kept)?, resumed: changed(source, resumed)? })
}

/// At the last message: what the loop carries, and its index.
fn keeping(number: usize, each: &Loop<'_, '_>, shift: &str, close: &str) -> String {
    let carried: String = each.carried.iter().map(|(space, name)| format!(", {space}.{name}")).collect();
    let mark = if each.prints { LAST } else { "" };
    let keep = format!("{{{{ {OURS}keep({number}, loop.index0{shift}{carried}) }}}}");
    format!("{{% if loop.last %}}{keep}{mark}{{% endif {close}")
}

/// At the pivot: what was kept is put back.
fn putting(number: usize, each: &Loop<'_, '_>) -> String {
    let set = |(at, (space, name)): (usize, &(&str, &str))| {
        format!("{{% set {space}.{name} = {OURS}carried{number}[{at}] %}}")
    };
    let sets: String = each.carried.iter().enumerate().map(set).collect();
    let mark = if each.prints { PIVOT } else { "" };
    format!("{{% if loop.first %}}{sets}{mark}{{% endif %}}")
}

/// The place behind a loop's opening tag, and how that tag closes.
fn body<'s>(source: &'s str, each: &ast::ForLoop<'_>) -> Result<(usize, &'s str), Unprovable> {
    let end = each.iter.span().end_offset as usize;
    let rest = source.get(end..).unwrap_or_default();
    let tag = rest.trim_start();
    let close = ["-%}", "+%}", "%}"].into_iter().find(|close| tag.starts_with(close));
    let close = close.ok_or("the end of a loop's tag is not found")?;
    let at = end + (rest.len() - tag.len()) + close.len();
    Ok((at, &source[at - close.len()..at]))
}

/// The variable that a loop runs over.
fn list<'e, 'a>(iter: &'e Expr<'a>) -> Result<&'e ast::Spanned<ast::Var<'a>>, Unprovable> {
    match iter {
        Expr::Var(name) => Ok(name),
        Expr::Slice(slice) => list(&slice.expr),
        Expr::Filter(filter) => filter.expr.as_ref().map_or(Err("a filter of nothing".into()), list),
        _ => Err("a loop's list is no variable".into()),
    }
}

fn replaced(source: &str, name: &ast::Spanned<ast::Var<'_>>, with: &str) -> Result<Change, Unprovable> {
    let (from, to) = range(name.span());
    if source.get(from..to) != Some(name.id) {
        return Err(format!("{} is not found in the text", name.id));
    }
    Ok(Change { from, to, with: with.to_string() })
}

fn range(span: Span) -> (usize, usize) {
    (span.start_offset as usize, span.end_offset as usize)
}

/// Every use of a loop's own `loop`, so that it tells the place among all messages.
fn shifted(source: &str, body: &[Stmt<'_>], number: usize, out: &mut Vec<Change>) -> Result<(), Unprovable> {
    let mut wrong = None;
    walk(body, &mut |expr| match expr {
        Expr::GetAttr(member) if is_loop(&member.expr) => {
            match of_loop(source, member, number) {
                Ok(change) => out.extend(change),
                Err(why) => wrong = Some(why),
            }
            false
        }
        expr if is_loop(expr) => {
            wrong = Some("it uses a loop as a value".into());
            false
        }
        _ => true,
    });
    wrong.map_or(Ok(()), Err)
}

fn of_loop(
    source: &str,
    member: &ast::Spanned<ast::GetAttr<'_>>,
    number: usize,
) -> Result<Option<Change>, Unprovable> {
    let with = match member.name {
        "index0" | "index" => format!("(loop.{} + {OURS}at{number})", member.name),
        "first" => format!("(loop.first and {OURS}at{number} == 0)"),
        "last" => return Ok(None),
        other => return Err(format!("it asks for loop.{other}")),
    };
    let (start, to) = range(member.span());
    // A span may begin with what stands before.
    let text = source.get(start..to).unwrap_or_default();
    let from = text.rfind("loop").map(|at| start + at).ok_or("loop is not found in the text")?;
    let own: String = source[from..to].split_whitespace().collect();
    if own != format!("loop.{}", member.name) {
        return Err(format!("loop.{} is not found in the text", member.name));
    }
    Ok(Some(Change { from, to, with }))
}

fn is_loop(expr: &Expr<'_>) -> bool {
    matches!(expr, Expr::Var(name) if name.id == "loop")
}

/// Every expression in which `loop` is that of the loop around these statements. What `each` is done with tells
/// whether its parts are looked at too.
fn walk<'t, 'a>(body: &'t [Stmt<'a>], each: &mut impl FnMut(&'t Expr<'a>) -> bool) {
    for statement in body {
        match statement {
            Stmt::EmitExpr(emit) => visit(&emit.expr, each),
            Stmt::IfCond(cond) => {
                visit(&cond.expr, each);
                walk(&cond.true_body, each);
                walk(&cond.false_body, each);
            }
            // Its body has a loop of its own.
            Stmt::ForLoop(inner) => {
                visit(&inner.iter, each);
                walk(&inner.else_body, each);
            }
            Stmt::Set(set) => visit(&set.expr, each),
            Stmt::SetBlock(set) => walk(&set.body, each),
            Stmt::Do(call) => visit_call(&call.call, each),
            _ => {}
        }
    }
}

fn visit<'t, 'a>(expr: &'t Expr<'a>, each: &mut impl FnMut(&'t Expr<'a>) -> bool) {
    if !each(expr) {
        return;
    }
    match expr {
        Expr::Var(_) | Expr::Const(_) => {}
        Expr::Slice(slice) => {
            let bounds = [&slice.start, &slice.stop, &slice.step].into_iter().flatten();
            std::iter::once(&slice.expr).chain(bounds).for_each(|part| visit(part, each));
        }
        Expr::UnaryOp(op) => visit(&op.expr, each),
        Expr::BinOp(op) => [&op.left, &op.right].into_iter().for_each(|part| visit(part, each)),
        Expr::Compare(chain) => {
            visit(&chain.expr, each);
            chain.ops.iter().for_each(|op| visit(&op.expr, each));
        }
        Expr::IfExpr(choice) => {
            let parts = [&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr);
            parts.for_each(|part| visit(part, each));
        }
        Expr::Filter(filter) => {
            filter.expr.iter().for_each(|part| visit(part, each));
            visit_args(&filter.args, each);
        }
        Expr::Test(test) => {
            visit(&test.expr, each);
            visit_args(&test.args, each);
        }
        Expr::GetAttr(member) => visit(&member.expr, each),
        Expr::GetItem(item) => {
            [&item.expr, &item.subscript_expr].into_iter().for_each(|part| visit(part, each));
        }
        Expr::Call(call) => visit_call(call, each),
        Expr::List(list) => list.items.iter().for_each(|part| visit(part, each)),
        Expr::Map(map) => map.keys.iter().chain(&map.values).for_each(|part| visit(part, each)),
    }
}

fn visit_call<'t, 'a>(call: &'t ast::Call<'a>, each: &mut impl FnMut(&'t Expr<'a>) -> bool) {
    visit(&call.expr, each);
    visit_args(&call.args, each);
}

fn visit_args<'t, 'a>(args: &'t [CallArg<'a>], each: &mut impl FnMut(&'t Expr<'a>) -> bool) {
    for arg in args {
        let (CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value)) = arg;
        visit(value, each);
    }
}

/// Filters that a list of messages may go through whole.
const WHOLE: [&str; 4] = ["length", "count", "first", "last"];

/// The resumed form has few of the messages. All that it asks for by index or in a loop fails where it is not there;
/// what asks otherwise is refused here, wherever it stands.
fn listed(template: &[Stmt<'_>], proven: &Proven<'_, '_>) -> Result<(), Unprovable> {
    let mut names = vec!["messages"];
    loop {
        let known = names.len();
        aliases(template, &mut names);
        if names.len() == known {
            break;
        }
    }
    uses(template, &names, proven)
}

fn is_list(expr: &Expr<'_>, names: &[&str]) -> bool {
    match expr {
        Expr::Var(name) => names.contains(&name.id),
        Expr::Slice(slice) => is_list(&slice.expr, names),
        _ => false,
    }
}

fn aliases<'a>(body: &[Stmt<'a>], names: &mut Vec<&'a str>) {
    for statement in body {
        match statement {
            Stmt::Set(set) => {
                if let (Expr::Var(name), true) = (&set.target, is_list(&set.expr, names))
                    && !names.contains(&name.id)
                {
                    names.push(name.id);
                }
            }
            Stmt::IfCond(cond) => {
                [&cond.true_body, &cond.false_body].into_iter().for_each(|body| aliases(body, names))
            }
            Stmt::ForLoop(each) => {
                [&each.body, &each.else_body].into_iter().for_each(|body| aliases(body, names))
            }
            Stmt::SetBlock(set) => aliases(&set.body, names),
            Stmt::Macro(declared) => aliases(&declared.body, names),
            _ => {}
        }
    }
}

fn uses(body: &[Stmt<'_>], names: &[&str], proven: &Proven<'_, '_>) -> Result<(), Unprovable> {
    let within = |body: &[Stmt<'_>]| uses(body, names, proven);
    for statement in body {
        match statement {
            Stmt::EmitExpr(emit) => asked(&emit.expr, names)?,
            Stmt::IfCond(cond) => {
                if !is_list(&cond.expr, names) {
                    asked(&cond.expr, names)?;
                }
                within(&cond.true_body)?;
                within(&cond.false_body)?;
            }
            Stmt::ForLoop(each) => {
                let is_proven =
                    proven.loops.iter().any(|own| std::ptr::eq::<ast::ForLoop<'_>>(own.node, &**each));
                if !is_proven {
                    asked(&each.iter, names)?;
                }
                each.filter_expr.iter().try_for_each(|filter| asked(filter, names))?;
                within(&each.body)?;
                within(&each.else_body)?;
            }
            Stmt::Set(set) if is_list(&set.expr, names) => {}
            Stmt::Set(set) => asked(&set.expr, names)?,
            Stmt::SetBlock(set) => within(&set.body)?,
            Stmt::Macro(declared) => within(&declared.body)?,
            Stmt::Do(call) => {
                std::iter::once(&call.call.expr).try_for_each(|expr| asked(expr, names))?;
                let mut wrong = Ok(());
                visit_args(&call.call.args, &mut |part| {
                    wrong = std::mem::replace(&mut wrong, Ok(())).and_then(|()| asked(part, names));
                    false
                });
                wrong?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn asked(expr: &Expr<'_>, names: &[&str]) -> Result<(), Unprovable> {
    let mut wrong = None;
    visit(expr, &mut |part| match part {
        Expr::GetItem(item) if is_list(&item.expr, names) => {
            wrong = wrong.take().or(asked(&item.subscript_expr, names).err());
            false
        }
        Expr::Filter(filter) if WHOLE.contains(&filter.name) => {
            !filter.expr.as_ref().is_some_and(|of| is_list(of, names))
        }
        Expr::Test(test) if matches!(test.name, "defined" | "undefined") => !is_list(&test.expr, names),
        part if is_list(part, names) => {
            wrong = Some("it uses messages as a whole".to_string());
            false
        }
        _ => true,
    });
    wrong.map_or(Ok(()), Err)
}

/// Whether a statement is or holds one of these loops.
fn holds(statement: &Stmt<'_>, loops: &[&ast::ForLoop<'_>]) -> bool {
    match statement {
        Stmt::ForLoop(each) => {
            loops.iter().any(|own| prints(&own.body) && std::ptr::eq::<ast::ForLoop<'_>>(*own, &**each))
        }
        Stmt::IfCond(cond) => {
            cond.true_body.iter().chain(&cond.false_body).any(|statement| holds(statement, loops))
        }
        _ => false,
    }
}

/// Whether a statement does nothing but print.
fn only_prints(statement: &Stmt<'_>) -> bool {
    let all = |body: &[Stmt<'_>]| body.iter().all(only_prints);
    match statement {
        Stmt::EmitRaw(_) | Stmt::EmitExpr(_) => true,
        Stmt::IfCond(cond) => all(&cond.true_body) && all(&cond.false_body),
        Stmt::ForLoop(each) => prints(&each.body) && all(&each.body) && all(&each.else_body),
        _ => false,
    }
}

/// Silences a statement that only prints, or such statements within a condition. What is not found in the text is
/// left as it is.
fn silence(source: &str, statement: &Stmt<'_>, out: &mut Vec<Change>) {
    match statement {
        Stmt::EmitExpr(emit) => out.extend(inside(source, emit.expr.span(), &["{{"], "}}", "''")),
        Stmt::IfCond(cond) if only_prints(statement) => {
            out.extend(inside(source, cond.expr.span(), &["if", "elif"], "%}", "false"));
            cond.false_body.iter().for_each(|statement| silence(source, statement, out));
        }
        Stmt::IfCond(cond) => {
            let bodies = cond.true_body.iter().chain(&cond.false_body);
            bodies.for_each(|statement| silence(source, statement, out));
        }
        Stmt::ForLoop(each) if only_prints(statement) => {
            out.extend(inside(source, each.iter.span(), &["in"], "%}", "[]"));
            each.else_body.iter().for_each(|statement| silence(source, statement, out));
        }
        _ => {}
    }
}

/// Puts other text between a tag's word and its end. The span of what stands there now may begin with the word.
fn inside(source: &str, span: Span, words: &[&str], end: &str, with: &str) -> Option<Change> {
    let (start, behind) = range(span);
    let outer = |c: char| c.is_whitespace() || matches!(c, '(' | '-' | '+');
    let rest = source.get(behind..)?;
    let close = rest.find(|c: char| !c.is_whitespace() && c != ')')?;
    let mark = rest.get(close..)?.trim_start_matches(['-', '+']);
    let from = words.iter().find_map(|word| {
        let within = source.get(start..)?.starts_with(word).then_some(start + word.len());
        let before = source.get(..start)?.trim_end_matches(outer);
        within.or_else(|| before.ends_with(word).then_some(before.len()))
    })?;
    let open =
        source.get(from..)?.chars().next().filter(|c| matches!(c, '-' | '+')).map_or(0, char::len_utf8);
    mark.starts_with(end).then(|| Change { from: from + open, to: behind + close, with: format!(" {with} ") })
}

fn changed(source: &str, mut changes: Vec<Change>) -> Result<String, Unprovable> {
    changes.sort_by_key(|change| (change.from, change.to));
    let mut out = String::with_capacity(source.len() + 512);
    let mut from = 0;
    for change in changes {
        out.push_str(source.get(from..change.from).ok_or("changes of the text overlap")?);
        out.push_str(&change.with);
        from = change.to;
    }
    out.push_str(source.get(from..).ok_or("changes of the text overlap")?);
    Ok(out)
}
