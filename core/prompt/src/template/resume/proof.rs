//! Whether a template may go on behind messages that it has shown before. Owns the proof, made once from the
//! template's syntax tree; must never run a template, and must hold for unprovable what it does not understand.
//!
//! The claim. Take a message with the role `user`, the *pivot*, and any two conversations that agree up to and with
//! it, and in all that is not a message. Then what the template prints before its first printing loop over the
//! messages comes to the pivot is the same text in both, and so is what its loops carry there, unless it is computed
//! anew behind it. The template is run here over three kinds of message: *past*, before the pivot, of which anything
//! may be asked; the pivot, whose text holds none of the literals that the template looks for; and *later* ones, of
//! which nothing is known but that their roles are those of [`TAIL_ROLES`]. Nothing printed, decided or carried
//! before the pivot may depend on later messages.

use super::values::{Abstract, Known, State, Target, join, join_tainted};
use minijinja::machinery::ast::{self, Expr, Stmt};
use std::collections::BTreeSet;

/// Roles that messages behind the pivot may have.
pub(super) const TAIL_ROLES: [&str; 3] = ["user", "assistant", "tool"];

/// Why a template can't be proven.
pub(super) type Unprovable = String;

/// Rounds until a loop's state stands still, at most: it can only grow coarser.
const ROUNDS: usize = 12;

/// A loop over the messages, from the first to the pivot's and on.
pub(super) struct Loop<'a, 't> {
    /// The statement.
    pub(super) node: &'t ast::ForLoop<'a>,
    /// Members of namespaces that it carries from message to message.
    pub(super) carried: Vec<(&'a str, &'a str)>,
    /// Whether it begins at the last message.
    pub(super) reversed: bool,
    /// Whether what it prints is the conversation.
    pub(super) prints: bool,
}

/// What is proven.
pub(super) struct Proven<'a, 't> {
    /// The loops over messages, up to and with those that print.
    pub(super) loops: Vec<Loop<'a, 't>>,
    /// What the pivot's text must not hold.
    pub(super) literals: Vec<String>,
    /// The least index of a pivot.
    pub(super) least: usize,
}

/// Which messages a loop is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Past,
    Pivot,
    Later,
}

/// The loop over messages that is being run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    pub(super) phase: Phase,
    pub(super) reversed: bool,
    /// The variable with the list, and how many messages may be missing at its beginning.
    pub(super) list: &'a str,
    pub(super) missing: usize,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Truth {
    Yes,
    No,
    /// Told by what is not later.
    Told,
    /// Told by later messages.
    Later,
}

/// How a run of statements ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    On,
    /// At the pivot in the printing loop: what follows is run in any case.
    Reached,
}

/// The proof under way.
pub(super) struct Proof<'a, 't> {
    pub(super) state: State<'a>,
    pub(super) around: Option<Around<'a>>,
    /// Whether `loop` is that of the loop over messages.
    pub(super) own_loop: bool,
    /// Whether it is not at its first message here.
    pub(super) not_first: bool,
    /// Whether this is run for what stands before the pivot, and left out when the template goes on.
    pub(super) observed: bool,
    capturing: bool,
    in_macro: bool,
    /// Loops over other things that are open.
    nested: usize,
    /// What macros use beside their own.
    pub(super) free_in_macros: BTreeSet<&'a str>,
    writes: Vec<Target<'a>>,
    pub(super) literals: BTreeSet<String>,
    pub(super) least: usize,
    loops: Vec<Loop<'a, 't>>,
}

/// Proves a template, or tells what stands against it.
pub(super) fn prove<'a, 't>(template: &'t [Stmt<'a>]) -> Result<Proven<'a, 't>, Unprovable> {
    let mut proof = Proof {
        state: State::default(),
        around: None,
        own_loop: false,
        not_first: false,
        observed: true,
        capturing: false,
        in_macro: false,
        nested: 0,
        free_in_macros: BTreeSet::new(),
        writes: Vec::new(),
        literals: BTreeSet::new(),
        least: 1,
        loops: Vec::new(),
    };
    proof.state.set("messages", Abstract::Messages(0));
    if proof.run(template)? == Flow::On {
        return Err("no loop prints the messages".into());
    }
    let free = &proof.free_in_macros;
    if let Some(name) =
        proof.writes.iter().find_map(|write| write.variable().filter(|name| free.contains(name)))
    {
        return Err(format!("a macro uses {name}, which is set elsewhere"));
    }
    let literals = proof.literals.into_iter().collect();
    Ok(Proven { loops: proof.loops, literals, least: proof.least })
}

impl<'a, 't> Proof<'a, 't> {
    fn run(&mut self, body: &'t [Stmt<'a>]) -> Result<Flow, Unprovable> {
        for statement in body {
            let flow = self.statement(statement).map_err(|why| {
                match (line_of(statement), why.starts_with("line ")) {
                    (Some(line), false) => format!("line {line}: {why}"),
                    _ => why,
                }
            })?;
            if flow == Flow::Reached {
                return Ok(Flow::Reached);
            }
        }
        Ok(Flow::On)
    }

    fn statement(&mut self, statement: &'t Stmt<'a>) -> Result<Flow, Unprovable> {
        match statement {
            Stmt::EmitRaw(_) => self.print().map(|()| Flow::On),
            Stmt::EmitExpr(emit) => {
                self.print()?;
                let value = self.eval(&emit.expr)?;
                self.plain(&value)?;
                Ok(Flow::On)
            }
            Stmt::IfCond(cond) => self.condition(cond),
            Stmt::ForLoop(each) => self.each(each),
            Stmt::Set(set) => self.set(&set.target, &set.expr).map(|()| Flow::On),
            Stmt::SetBlock(set) => self.set_block(set).map(|()| Flow::On),
            Stmt::Macro(declared) => self.declare(declared).map(|()| Flow::On),
            Stmt::Do(call) => self.call(&call.call).map(|_| Flow::On),
            _ => Err("it has a statement other than if, for, set, macro and print".into()),
        }
    }

    /// Something is printed here.
    fn print(&self) -> Result<(), Unprovable> {
        if self.observed || self.capturing {
            return Ok(());
        }
        Err("it prints something of later messages before earlier ones".into())
    }

    fn condition(&mut self, cond: &'t ast::IfCond<'a>) -> Result<Flow, Unprovable> {
        let truth = self.cond(&cond.expr)?;
        match truth {
            Truth::Yes => return self.branch(&cond.expr, true, &cond.true_body),
            Truth::No => return self.branch(&cond.expr, false, &cond.false_body),
            Truth::Later if self.observed => {
                return Err("what it prints of a message depends on later ones".into());
            }
            Truth::Told | Truth::Later => {}
        }
        let (before, writes) = (self.state.clone(), self.writes.len());
        let yes = self.branch(&cond.expr, true, &cond.true_body)?;
        let after_yes = std::mem::replace(&mut self.state, before);
        let no = self.branch(&cond.expr, false, &cond.false_body)?;
        match (yes, no) {
            (Flow::Reached, Flow::Reached) => return Ok(Flow::Reached),
            (Flow::Reached, Flow::On) | (Flow::On, Flow::Reached) => {
                return Err("one side alone of a condition prints the messages".into());
            }
            (Flow::On, Flow::On) if truth == Truth::Told => self.state = join(&after_yes, &self.state),
            (Flow::On, Flow::On) => {
                self.state = join_tainted(&after_yes, &self.state, &self.writes[writes..]);
            }
        }
        Ok(Flow::On)
    }

    /// One side of a condition, with what it tells by being taken.
    fn branch(&mut self, cond: &'t Expr<'a>, truth: bool, body: &'t [Stmt<'a>]) -> Result<Flow, Unprovable> {
        let outside = self.not_first;
        self.not_first |= self.tells_not_first(cond, truth);
        self.refine(cond, truth)?;
        let flow = self.run(body);
        self.not_first = outside;
        flow
    }

    fn set(&mut self, target: &'t Expr<'a>, value: &'t Expr<'a>) -> Result<(), Unprovable> {
        let value = self.eval(value)?;
        self.assign(target, value)
    }

    fn assign(&mut self, target: &'t Expr<'a>, value: Abstract) -> Result<(), Unprovable> {
        match target {
            Expr::Var(name) => {
                if self.around.is_some_and(|around| around.list == name.id) {
                    return Err(format!("it sets {} in a loop over it", name.id));
                }
                self.state.set(name.id, value);
                self.writes.push(Target::Variable(name.id));
                Ok(())
            }
            Expr::GetAttr(member) => {
                let Expr::Var(space) = &member.expr else { return Err("it sets a member of no name".into()) };
                let Abstract::Namespace(at) = self.state.get(space.id) else {
                    return Err(format!("it sets a member of {}, which may be no namespace", space.id));
                };
                let value = self.settled(value);
                self.plain(&value)?;
                self.state.set_member(at, member.name, value);
                self.writes.push(Target::Member { space: space.id, at, name: member.name });
                Ok(())
            }
            Expr::List(names) => {
                let parts = if self.is_tainted(&value) { Abstract::Later } else { Abstract::Told };
                names.items.iter().try_for_each(|name| self.assign(name, parts.clone()))
            }
            _ => Err("it sets something other than a variable".into()),
        }
    }

    fn set_block(&mut self, set: &'t ast::SetBlock<'a>) -> Result<(), Unprovable> {
        if !self.observed || set.filter.is_some() {
            return Err("it keeps printed text of later messages".into());
        }
        let outside = std::mem::replace(&mut self.capturing, true);
        let flow = self.run(&set.body);
        self.capturing = outside;
        match flow? {
            Flow::On => self.assign(&set.target, Abstract::Told),
            Flow::Reached => Err("it keeps the printed messages".into()),
        }
    }

    /// A macro may use its arguments, other macros and what the request sets beside messages.
    fn declare(&mut self, declared: &'t ast::Macro<'a>) -> Result<(), Unprovable> {
        if self.around.is_some() {
            return Err("it declares a macro in a loop over messages".into());
        }
        let outside = self.state.clone();
        self.state.keep_macros();
        self.state.set(declared.name, Abstract::Macro);
        for argument in &declared.args {
            self.assign(argument, Abstract::Told)?;
        }
        for default in &declared.defaults {
            let value = self.eval(default)?;
            self.plain(&value)?;
        }
        let (capturing, in_macro) = (self.capturing, self.in_macro);
        (self.capturing, self.in_macro) = (true, true);
        let flow = self.run(&declared.body);
        (self.capturing, self.in_macro) = (capturing, in_macro);
        flow.map_err(|why| format!("in the macro {}: {why}", declared.name))?;
        self.state = outside;
        self.state.set(declared.name, Abstract::Macro);
        Ok(())
    }

    fn each(&mut self, each: &'t ast::ForLoop<'a>) -> Result<Flow, Unprovable> {
        match self.eval(&each.iter)? {
            Abstract::Messages(missing) => {
                let Expr::Var(list) = &each.iter else {
                    return Err("it loops over a part of messages".into());
                };
                self.over_messages(
                    each,
                    Around { phase: Phase::Past, reversed: false, list: list.id, missing },
                )
            }
            Abstract::Reversed => {
                let list = reversed_list(&each.iter).ok_or("it loops backwards over no variable")?;
                let around = Around { phase: Phase::Later, reversed: true, list, missing: 0 };
                self.backwards(each, around).map(|()| Flow::On)
            }
            over => self.inner(each, &over).map(|()| Flow::On),
        }
    }

    /// A loop over something else.
    fn inner(&mut self, each: &'t ast::ForLoop<'a>, over: &Abstract) -> Result<(), Unprovable> {
        self.plain(over)?;
        let tainted = self.is_tainted(over);
        if tainted && self.observed {
            return Err("it loops over what later messages decide".into());
        }
        let item = if tainted { Abstract::Later } else { Abstract::Told };
        let (own_loop, not_first) = (self.own_loop, self.not_first);
        (self.own_loop, self.not_first) = (false, false);
        self.nested += 1;
        self.rest(each, item, tainted)?;
        self.nested -= 1;
        let before = self.state.clone();
        let writes = self.writes.len();
        self.run(&each.else_body)?;
        self.state = match tainted {
            true => join_tainted(&before, &self.state, &self.writes[writes..]),
            false => join(&before, &self.state),
        };
        (self.own_loop, self.not_first) = (own_loop, not_first);
        Ok(())
    }

    fn over_messages(&mut self, each: &'t ast::ForLoop<'a>, around: Around<'a>) -> Result<Flow, Unprovable> {
        let prints = prints(&each.body);
        self.enter(each, around)?;
        let writes = self.writes.len();
        self.rest(each, Abstract::Told, false)?;
        let carried = self.carried(&self.writes[writes..])?;
        self.loops.push(Loop { node: each, carried, reversed: false, prints });
        if prints {
            self.around = None;
            return Ok(Flow::Reached);
        }
        self.observed = false;
        self.once(each, Phase::Pivot)?;
        self.around = Some(Around { phase: Phase::Later, ..around });
        self.rest(each, Abstract::LaterMessage, true)?;
        self.leave();
        Ok(Flow::On)
    }

    /// Later messages come first, then the pivot; at past ones nothing may happen any more, since they are left
    /// out.
    fn backwards(&mut self, each: &'t ast::ForLoop<'a>, around: Around<'a>) -> Result<(), Unprovable> {
        self.enter(each, around)?;
        self.observed = false;
        self.rest(each, Abstract::LaterMessage, true)?;
        self.once(each, Phase::Pivot)?;
        self.observed = true;
        self.around = Some(Around { phase: Phase::Past, ..around });
        let (before, writes) = (self.state.clone(), self.writes.len());
        self.item(each, Abstract::Told)?;
        self.run(&each.body)?;
        let members = self.writes[writes..].iter().any(|write| matches!(write, Target::Member { .. }));
        if members || prints(&each.body) {
            return Err("a loop from the last message on does something at every message".into());
        }
        self.state = before;
        self.loops.push(Loop { node: each, carried: Vec::new(), reversed: true, prints: false });
        self.leave();
        Ok(())
    }

    fn enter(&mut self, each: &'t ast::ForLoop<'a>, around: Around<'a>) -> Result<(), Unprovable> {
        if self.around.is_some() || self.capturing || self.in_macro || self.nested > 0 {
            return Err("it loops over messages within something else".into());
        }
        if each.filter_expr.is_some() || each.recursive || !each.else_body.is_empty() {
            return Err("it loops over messages with a filter, recursive or else".into());
        }
        if !matches!(each.target, Expr::Var(_)) {
            return Err("it takes messages apart in its loop".into());
        }
        self.around = Some(around);
        self.own_loop = true;
        Ok(())
    }

    fn leave(&mut self) {
        self.around = None;
        self.own_loop = false;
        self.observed = true;
    }

    /// Any number of rounds of a loop, until its state stands still.
    fn rest(&mut self, each: &'t ast::ForLoop<'a>, item: Abstract, tainted: bool) -> Result<(), Unprovable> {
        if each.recursive {
            return Err("it has a recursive loop".into());
        }
        for _ in 0..ROUNDS {
            let (before, writes) = (self.state.clone(), self.writes.len());
            self.item(each, item.clone())?;
            if let Some(filter) = &each.filter_expr {
                self.cond(filter)?;
            }
            if self.run(&each.body)? == Flow::Reached {
                return Err("it prints messages within a loop".into());
            }
            let after = before.behind(&self.state);
            self.state = match tainted {
                true => join_tainted(&before, &after, &self.writes[writes..]),
                false => join(&before, &after),
            };
            if self.state == before {
                return Ok(());
            }
        }
        Err("a loop's state does not stand still".into())
    }

    fn once(&mut self, each: &'t ast::ForLoop<'a>, phase: Phase) -> Result<(), Unprovable> {
        self.around = self.around.map(|around| Around { phase, ..around });
        let before = self.state.clone();
        self.item(each, Abstract::PivotMessage)?;
        self.run(&each.body)?;
        self.state = before.behind(&self.state);
        Ok(())
    }

    fn item(&mut self, each: &'t ast::ForLoop<'a>, item: Abstract) -> Result<(), Unprovable> {
        self.assign(&each.target, item)
    }

    /// The members that a loop carries, all of which must be told by past messages.
    fn carried(&self, writes: &[Target<'a>]) -> Result<Vec<(&'a str, &'a str)>, Unprovable> {
        let mut carried = Vec::new();
        for write in writes {
            let Target::Member { space, at, name } = *write else { continue };
            match self.state.member(at, name) {
                Abstract::Told | Abstract::Known(_) => carried.push((space, name)),
                other => return Err(format!("{space}.{name} is carried by a loop, and is {other:?}")),
            }
        }
        carried.sort_unstable();
        carried.dedup();
        Ok(carried)
    }

    /// What a member of a namespace keeps: a place in a loop is a number only while the loop is there.
    fn settled(&self, value: Abstract) -> Abstract {
        let Abstract::Index(more) = value else { return value };
        match self.around {
            Some(Around { phase: Phase::Past, reversed: false, .. }) => Abstract::Told,
            Some(Around { reversed: false, missing: 0, .. }) if more >= 0 => Abstract::Least,
            _ => Abstract::Later,
        }
    }

    pub(super) fn in_macro(&self) -> bool {
        self.in_macro
    }

    pub(super) fn is_nested(&self) -> bool {
        self.nested > 0
    }

    /// Refuses what is no plain value.
    pub(super) fn plain(&self, value: &Abstract) -> Result<(), Unprovable> {
        match value {
            Abstract::Messages(_) | Abstract::Reversed => Err("it uses messages as a whole".into()),
            Abstract::Loop => Err("it uses a loop as a value".into()),
            Abstract::Namespace(_) => Err("it uses a namespace as a value".into()),
            Abstract::Macro => Err("it uses a macro as a value".into()),
            _ => Ok(()),
        }
    }

    pub(super) fn is_tainted(&self, value: &Abstract) -> bool {
        match value {
            Abstract::Index(_) => {
                self.around.is_some_and(|around| around.reversed || around.phase == Phase::Later)
            }
            other => other.is_later(),
        }
    }
}

/// The variable of `messages[::-1]` or `messages|reverse`.
pub(super) fn reversed_list<'a>(iter: &Expr<'a>) -> Option<&'a str> {
    match iter {
        Expr::Slice(slice) => variable(&slice.expr),
        Expr::Filter(filter) => filter.expr.as_ref().and_then(variable),
        _ => None,
    }
}

fn variable<'a>(expr: &Expr<'a>) -> Option<&'a str> {
    match expr {
        Expr::Var(name) => Some(name.id),
        _ => None,
    }
}

fn line_of(statement: &Stmt<'_>) -> Option<u16> {
    match statement {
        Stmt::EmitExpr(node) => Some(node.span().start_line),
        Stmt::IfCond(node) => Some(node.span().start_line),
        Stmt::ForLoop(node) => Some(node.span().start_line),
        Stmt::Set(node) => Some(node.span().start_line),
        _ => None,
    }
}

/// Whether statements print. What is kept by `set` is not printed.
pub(super) fn prints(body: &[Stmt<'_>]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Set(_) | Stmt::SetBlock(_) | Stmt::Do(_) => false,
        Stmt::IfCond(cond) => prints(&cond.true_body) || prints(&cond.false_body),
        Stmt::ForLoop(each) => prints(&each.body) || prints(&each.else_body),
        _ => true,
    })
}

/// A literal.
pub(super) fn known(value: impl Into<minijinja::Value>) -> Abstract {
    Abstract::Known(Known(value.into()))
}
