//! A template's expressions over the proof's values. Owns what each operation tells; whatever it does not know, it
//! takes for told by all that goes in, and before the pivot nothing told by later messages may go in.

use super::proof::{Around, Phase, Proof, TAIL_ROLES, Truth, Unprovable, known};
use super::values::{Abstract, Known};
use minijinja::Value;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, CallType, Expr, UnaryOpKind};
use minijinja::value::ValueKind;

/// Functions whose result is told by their arguments and the day.
const FUNCTIONS: [&str; 4] = ["raise_exception", "strftime_now", "range", "dict"];

impl<'a, 't> Proof<'a, 't> {
    pub(super) fn eval(&mut self, expr: &'t Expr<'a>) -> Result<Abstract, Unprovable> {
        match expr {
            Expr::Const(constant) => Ok(known(constant.value.clone())),
            Expr::Var(name) => self.variable(name.id),
            Expr::GetAttr(member) => {
                let of = self.eval(&member.expr)?;
                self.member(of, member.name)
            }
            Expr::GetItem(item) => self.item_of(item),
            Expr::Slice(slice) => self.slice(slice),
            Expr::UnaryOp(op) => match op.op {
                UnaryOpKind::Not => Ok(value_of(self.cond(expr)?)),
                UnaryOpKind::Neg => self.of_all([&op.expr]),
            },
            Expr::BinOp(op) => self.binary(expr, op),
            Expr::Compare(chain) => {
                let more = chain.ops.iter().map(|op| &op.expr);
                self.of_all(std::iter::once(&chain.expr).chain(more))
            }
            Expr::IfExpr(choice) => self.choice(choice),
            Expr::Filter(filter) => self.filter(filter),
            Expr::Test(test) => self.test(test),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => match list.as_const() {
                Some(value) => Ok(known(value)),
                None => self.of_all(&list.items),
            },
            Expr::Map(map) => self.of_all(map.keys.iter().chain(&map.values)),
        }
    }

    /// Whether a condition holds. The right side of `and` and `or` is looked at only where it counts.
    pub(super) fn cond(&mut self, expr: &'t Expr<'a>) -> Result<Truth, Unprovable> {
        let both = |left: Truth, right: Truth| match (left, right) {
            (Truth::Later, _) | (_, Truth::Later) => Truth::Later,
            _ => Truth::Told,
        };
        match expr {
            Expr::UnaryOp(op) if matches!(op.op, UnaryOpKind::Not) => Ok(match self.cond(&op.expr)? {
                Truth::Yes => Truth::No,
                Truth::No => Truth::Yes,
                other => other,
            }),
            Expr::BinOp(op) if matches!(op.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                let is_and = matches!(op.op, BinOpKind::ScAnd);
                // What decides alone, and what leaves it to the other side.
                let (decides, leaves) =
                    if is_and { (Truth::No, Truth::Yes) } else { (Truth::Yes, Truth::No) };
                let left = self.cond(&op.left)?;
                if left == decides {
                    return Ok(decides);
                }
                let outside = self.not_first;
                self.not_first |= self.tells_not_first(&op.left, is_and);
                let right = self.cond(&op.right);
                self.not_first = outside;
                let right = right?;
                Ok(match (left, right) {
                    (left, right) if left == leaves => right,
                    (_, right) if right == decides => decides,
                    (left, right) if right == leaves => left,
                    (left, right) => both(left, right),
                })
            }
            _ => {
                let value = self.eval(expr)?;
                self.truth(&value)
            }
        }
    }

    fn truth(&mut self, value: &Abstract) -> Result<Truth, Unprovable> {
        Ok(match value {
            Abstract::Known(Known(value)) if value.is_true() => Truth::Yes,
            Abstract::Known(_) => Truth::No,
            Abstract::Messages(missing) => {
                self.least = self.least.max(*missing);
                Truth::Yes
            }
            Abstract::PivotMessage | Abstract::LaterMessage => Truth::Yes,
            Abstract::Loop | Abstract::Namespace(_) | Abstract::Macro | Abstract::Reversed => {
                return Err("it asks whether there is a loop, a namespace or a macro".into());
            }
            other if self.is_tainted(other) => Truth::Later,
            _ => Truth::Told,
        })
    }

    /// What a condition tells by holding or not: of flags that are told by later messages, whether they are set.
    pub(super) fn refine(&mut self, expr: &'t Expr<'a>, holds: bool) -> Result<(), Unprovable> {
        // Before the pivot no such flag decides anything.
        if self.observed {
            return Ok(());
        }
        match expr {
            Expr::UnaryOp(op) if matches!(op.op, UnaryOpKind::Not) => self.refine(&op.expr, !holds),
            Expr::BinOp(op) if matches!(op.op, BinOpKind::ScAnd | BinOpKind::ScOr) => {
                // Both sides are so if `and` holds or `or` does not.
                if matches!(op.op, BinOpKind::ScAnd) == holds {
                    self.refine(&op.left, holds)?;
                    return self.refine(&op.right, holds);
                }
                let other = if holds { Truth::No } else { Truth::Yes };
                if self.cond(&op.left)? == other {
                    self.refine(&op.right, holds)
                } else if self.cond(&op.right)? == other {
                    self.refine(&op.left, holds)
                } else {
                    Ok(())
                }
            }
            Expr::GetAttr(member) => {
                if let Expr::Var(name) = &member.expr
                    && let Abstract::Namespace(at) = self.state.get(name.id)
                    && self.state.member(at, member.name) == Abstract::LaterBool
                {
                    self.state.set_member(at, member.name, known(holds));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a condition that holds, or not, tells that the loop over messages is not at its first one.
    pub(super) fn tells_not_first(&self, expr: &Expr<'a>, holds: bool) -> bool {
        match expr {
            Expr::UnaryOp(op) if matches!(op.op, UnaryOpKind::Not) => self.tells_not_first(&op.expr, !holds),
            Expr::BinOp(op) => match op.op {
                BinOpKind::ScAnd | BinOpKind::ScOr if matches!(op.op, BinOpKind::ScAnd) == holds => {
                    self.tells_not_first(&op.left, holds) || self.tells_not_first(&op.right, holds)
                }
                BinOpKind::Gt | BinOpKind::Ne if holds => {
                    self.is_own(&op.left, "index0")
                        && matches!(&op.right, Expr::Const(zero) if zero.value == Value::from(0))
                }
                _ => false,
            },
            first => !holds && self.is_own(first, "first"),
        }
    }

    /// Whether an expression is this member of the loop over messages.
    fn is_own(&self, expr: &Expr<'a>, wanted: &str) -> bool {
        let Expr::GetAttr(member) = expr else { return false };
        self.own_loop && member.name == wanted && matches!(&member.expr, Expr::Var(name) if name.id == "loop")
    }

    fn variable(&mut self, name: &'a str) -> Result<Abstract, Unprovable> {
        if name == "loop" {
            return Ok(if self.own_loop { Abstract::Loop } else { Abstract::Told });
        }
        if self.in_macro() && !self.state.is_set(name) {
            self.free_in_macros.insert(name);
        }
        match self.state.get(name) {
            Abstract::Forbidden => Err(format!("a macro, or both sides of a condition, use {name}")),
            value => Ok(value),
        }
    }

    /// A value of which later messages may decide.
    fn later(&self, value: Abstract) -> Result<Abstract, Unprovable> {
        if self.observed {
            return Err("what it makes of a message depends on later ones".into());
        }
        Ok(value)
    }

    /// What any operation on these tells.
    fn of_values(&mut self, values: &[Abstract]) -> Result<Abstract, Unprovable> {
        values.iter().try_for_each(|value| self.plain(value))?;
        if values.iter().any(|value| self.is_tainted(value)) {
            return self.later(Abstract::Later);
        }
        Ok(Abstract::Told)
    }

    fn of_all<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr<'a>>) -> Result<Abstract, Unprovable>
    where
        't: 'e,
        'e: 't,
    {
        let values: Result<Vec<Abstract>, Unprovable> =
            exprs.into_iter().map(|expr| self.eval(expr)).collect();
        self.of_values(&values?)
    }

    fn member(&mut self, of: Abstract, name: &'a str) -> Result<Abstract, Unprovable> {
        match of {
            Abstract::Loop => self.of_loop(name),
            Abstract::Namespace(at) => Ok(self.state.member(at, name)),
            Abstract::PivotMessage => Ok(match name {
                "role" => known("user"),
                "content" => Abstract::PivotText,
                _ => Abstract::Told,
            }),
            Abstract::LaterMessage if name == "role" => Ok(Abstract::LaterRole),
            other => self.of_values(&[other]),
        }
    }

    fn of_loop(&self, name: &str) -> Result<Abstract, Unprovable> {
        let Some(Around { phase, reversed, .. }) = self.around else { return Ok(Abstract::Told) };
        match (name, reversed, phase) {
            ("index0", ..) => Ok(Abstract::Index(0)),
            ("index", ..) => Ok(Abstract::Index(1)),
            ("first", false, Phase::Later) | ("first", true, Phase::Past) => Ok(known(false)),
            ("first", false, _) => Ok(Abstract::Told),
            ("first", true, _) => Ok(Abstract::LaterBool),
            ("last", false, Phase::Past) => Ok(known(false)),
            ("last", false, _) => Ok(Abstract::LaterBool),
            _ => Err(format!("it asks for loop.{name}")),
        }
    }

    fn item_of(&mut self, item: &'t ast::GetItem<'a>) -> Result<Abstract, Unprovable> {
        let (of, at) = (self.eval(&item.expr)?, self.eval(&item.subscript_expr)?);
        let Abstract::Messages(missing) = of else {
            if let Expr::Const(name) = &item.subscript_expr
                && let Some(name) = name.value.as_str()
            {
                return match (&of, name) {
                    (Abstract::PivotMessage, "role") => Ok(known("user")),
                    (Abstract::PivotMessage, "content") => Ok(Abstract::PivotText),
                    (Abstract::LaterMessage, "role") => Ok(Abstract::LaterRole),
                    (Abstract::Loop | Abstract::Namespace(_), _) => Err(format!("it asks by [{name:?}]")),
                    _ => self.of_values(&[of]),
                };
            }
            return self.of_values(&[of, at]);
        };
        let listed =
            matches!(&item.expr, Expr::Var(list) if self.around.is_some_and(|around| around.list == list.id));
        match at {
            Abstract::Known(Known(at)) => match usize::try_from(at).ok() {
                Some(at) => {
                    self.least = self.least.max(at + missing);
                    Ok(Abstract::Told)
                }
                None => self.later(Abstract::Later),
            },
            Abstract::Index(more)
                if listed
                    && self.around.is_some_and(|around| !around.reversed && around.phase == Phase::Past)
                    && ((0..=1).contains(&more) || more == -1 && self.not_first) =>
            {
                Ok(Abstract::Told)
            }
            _ => self.later(Abstract::Later),
        }
    }

    fn slice(&mut self, slice: &'t ast::Slice<'a>) -> Result<Abstract, Unprovable> {
        let of = self.eval(&slice.expr)?;
        let number = |bound: &Option<Expr<'a>>| match bound {
            None => Some(None),
            Some(bound) => bound.as_const().and_then(|value| i64::try_from(value).ok()).map(Some),
        };
        let bounds = (number(&slice.start), number(&slice.stop), number(&slice.step));
        match (of, bounds) {
            (Abstract::Messages(0), (Some(None), Some(None), Some(Some(-1)))) => Ok(Abstract::Reversed),
            (Abstract::Messages(missing), (Some(Some(from @ 0..=2)), Some(None), Some(None | Some(1)))) => {
                let missing = missing + usize::try_from(from).unwrap_or_default();
                self.least = self.least.max(missing);
                Ok(Abstract::Messages(missing))
            }
            (of, _) => {
                self.plain(&of)?;
                self.of_all([&slice.start, &slice.stop, &slice.step].into_iter().flatten())?;
                self.of_values(&[of])
            }
        }
    }

    fn choice(&mut self, choice: &'t ast::IfExpr<'a>) -> Result<Abstract, Unprovable> {
        match (self.cond(&choice.test_expr)?, &choice.false_expr) {
            (Truth::Yes, _) => self.eval(&choice.true_expr),
            (Truth::No, Some(other)) => self.eval(other),
            (Truth::No, None) => Ok(Abstract::Told),
            (truth, other) => {
                let outside = self.not_first;
                self.not_first |= self.tells_not_first(&choice.test_expr, true);
                let one = self.of_all([&choice.true_expr])?;
                self.not_first = outside | self.tells_not_first(&choice.test_expr, false);
                let other = self.of_all(other)?;
                self.not_first = outside;
                let told = if truth == Truth::Later { Abstract::Later } else { Abstract::Told };
                self.of_values(&[told, one, other])
            }
        }
    }

    fn binary(&mut self, expr: &'t Expr<'a>, op: &'t ast::BinOp<'a>) -> Result<Abstract, Unprovable> {
        match op.op {
            BinOpKind::ScAnd | BinOpKind::ScOr => {
                let truth = self.cond(expr)?;
                if let Truth::Yes | Truth::No = truth
                    && matches!(op.op, BinOpKind::ScAnd) == (truth == Truth::No)
                    && self.cond(&op.left)? == truth
                {
                    return self.eval(&op.left);
                }
                let outside = self.not_first;
                let left = self.eval(&op.left)?;
                self.not_first |= self.tells_not_first(&op.left, matches!(op.op, BinOpKind::ScAnd));
                let right = self.eval(&op.right);
                self.not_first = outside;
                self.of_values(&[left, right?])
            }
            BinOpKind::Add | BinOpKind::Sub => {
                let (left, right) = (self.eval(&op.left)?, self.eval(&op.right)?);
                match self.sum(&left, &right, matches!(op.op, BinOpKind::Sub)) {
                    Some(sum) => Ok(sum),
                    None => self.of_values(&[left, right]),
                }
            }
            _ => {
                let (left, right) = (self.eval(&op.left)?, self.eval(&op.right)?);
                match self.compared(op.op, &left, &right) {
                    Some(truth) => Ok(known(truth)),
                    None => match self.of_values(&[left, right])? {
                        Abstract::Later if is_comparison(op.op) => Ok(Abstract::LaterBool),
                        other => Ok(other),
                    },
                }
            }
        }
    }

    /// Sums of places and lengths. They never fail, so that even before the pivot they may be made.
    fn sum(&self, left: &Abstract, right: &Abstract, minus: bool) -> Option<Abstract> {
        let number = |value: &Abstract| match value {
            Abstract::Known(Known(value)) if value.is_integer() => i64::try_from(value.clone()).ok(),
            _ => None,
        };
        let signed = |more: i64| if minus { more.checked_neg() } else { Some(more) };
        match (left, right) {
            (Abstract::Length(more), right) if number(right).is_some() => {
                Some(Abstract::Length(more.checked_add(signed(number(right)?)?)?))
            }
            (Abstract::Index(more), right) if number(right).is_some() => {
                Some(Abstract::Index(more.checked_add(signed(number(right)?)?)?))
            }
            // From the last message on, `n - 1 - loop.index0` is the message's own index.
            (Abstract::Length(n), Abstract::Index(at)) if minus => {
                let around = self.around.filter(|around| around.reversed)?;
                let own = n.checked_sub(*at)? >= -1 && around.phase != Phase::Past;
                Some(if own { Abstract::Least } else { Abstract::Later })
            }
            _ => None,
        }
    }

    /// What is known of a comparison.
    fn compared(&mut self, op: BinOpKind, left: &Abstract, right: &Abstract) -> Option<bool> {
        if let (Abstract::Index(more), bound) = (left, right)
            && bound.is_least()
        {
            return self.below(op, *more);
        }
        if let (bound, Abstract::Index(more)) = (left, right)
            && bound.is_least()
        {
            return self.below(mirrored(op)?, *more);
        }
        match (op, left, right) {
            (BinOpKind::Eq | BinOpKind::Ne, Abstract::LaterRole, Abstract::Known(role))
            | (BinOpKind::Eq | BinOpKind::Ne, Abstract::Known(role), Abstract::LaterRole) => {
                (!may_be_role(&role.0)).then_some(matches!(op, BinOpKind::Ne))
            }
            (BinOpKind::In, Abstract::LaterRole, Abstract::Known(roles)) => {
                let mut roles = roles.0.try_iter().ok().filter(|_| roles.0.kind() == ValueKind::Seq)?;
                (!roles.any(|role| may_be_role(&role))).then_some(false)
            }
            (BinOpKind::Eq | BinOpKind::Ne, Abstract::Known(one), Abstract::Known(other)) => {
                (one.0.kind() == other.0.kind()).then(|| (one == other) == matches!(op, BinOpKind::Eq))
            }
            (BinOpKind::In, Abstract::Known(literal), Abstract::PivotText) => self.assume(&literal.0),
            _ => None,
        }
    }

    /// Before the pivot the loop's index is below `k`, and so below what is at least `k`.
    fn below(&self, op: BinOpKind, more: i64) -> Option<bool> {
        let around = self.around.filter(|around| !around.reversed && around.phase == Phase::Past)?;
        debug_assert!(!around.reversed);
        match op {
            BinOpKind::Lte if more <= 1 => Some(true),
            BinOpKind::Gt if more <= 1 => Some(false),
            BinOpKind::Lt | BinOpKind::Ne if more <= 0 => Some(true),
            BinOpKind::Gte | BinOpKind::Eq if more <= 0 => Some(false),
            _ => None,
        }
    }

    /// The pivot's text does not hold this literal: whoever uses the proof makes sure of it.
    fn assume(&mut self, literal: &Value) -> Option<bool> {
        let literal = literal.as_str().filter(|literal| !literal.is_empty())?;
        self.literals.insert(literal.to_string());
        Some(false)
    }

    fn arguments(&mut self, args: &'t [CallArg<'a>]) -> Result<Vec<Abstract>, Unprovable> {
        args.iter()
            .map(|arg| match arg {
                CallArg::Pos(value) | CallArg::Kwarg(_, value) => self.eval(value),
                _ => Err("it spreads arguments".into()),
            })
            .collect()
    }

    fn filter(&mut self, filter: &'t ast::Filter<'a>) -> Result<Abstract, Unprovable> {
        let Some(of) = &filter.expr else { return Err("it filters a block".into()) };
        let of = self.eval(of)?;
        match (filter.name, &of) {
            ("length" | "count", Abstract::Messages(0)) => return Ok(Abstract::Length(0)),
            ("reverse", Abstract::Messages(0)) => return Ok(Abstract::Reversed),
            ("first", Abstract::Messages(missing)) => {
                self.least = self.least.max(*missing);
                return Ok(Abstract::Told);
            }
            _ => {}
        }
        let mut values = self.arguments(&filter.args)?;
        values.push(of);
        self.of_values(&values)
    }

    fn test(&mut self, test: &'t ast::Test<'a>) -> Result<Abstract, Unprovable> {
        let of = self.eval(&test.expr)?;
        let is_there =
            matches!(of, Abstract::Messages(_) | Abstract::Loop | Abstract::Namespace(_) | Abstract::Macro);
        match test.name {
            "defined" if is_there => return Ok(known(true)),
            "undefined" if is_there => return Ok(known(false)),
            _ => {}
        }
        let mut values = self.arguments(&test.args)?;
        values.push(of);
        match self.of_values(&values)? {
            Abstract::Later => Ok(Abstract::LaterBool),
            other => Ok(other),
        }
    }

    pub(super) fn call(&mut self, call: &'t ast::Call<'a>) -> Result<Abstract, Unprovable> {
        match call.identify_call() {
            CallType::Function("namespace") => self.namespace(&call.args),
            CallType::Function(name) => {
                let known = self.state.get(name) == Abstract::Macro
                    || !self.state.is_set(name) && FUNCTIONS.contains(&name);
                if !known {
                    return Err(format!("it calls {name}"));
                }
                let values = self.arguments(&call.args)?;
                self.of_values(&values)
            }
            CallType::Method(of, name) => {
                let of = self.eval(of)?;
                let mut values = self.arguments(&call.args)?;
                if let ("startswith" | "endswith", Abstract::PivotText, [Abstract::Known(literal)]) =
                    (name, &of, &*values)
                    && let Some(truth) = self.assume(&literal.0.clone())
                {
                    return Ok(known(truth));
                }
                values.push(of);
                match self.of_values(&values)? {
                    Abstract::Later if matches!(name, "startswith" | "endswith") => Ok(Abstract::LaterBool),
                    other => Ok(other),
                }
            }
            _ => Err("it calls what is no name".into()),
        }
    }

    fn namespace(&mut self, args: &'t [CallArg<'a>]) -> Result<Abstract, Unprovable> {
        if self.around.is_some() || self.in_macro() || self.is_nested() {
            return Err("it makes a namespace within a loop or macro".into());
        }
        let at = self.state.new_space();
        for arg in args {
            let CallArg::Kwarg(name, value) = arg else { return Err("it makes a namespace of a map".into()) };
            let value = self.eval(value)?;
            self.plain(&value)?;
            self.state.set_member(at, name, value);
        }
        Ok(Abstract::Namespace(at))
    }
}

fn value_of(truth: Truth) -> Abstract {
    match truth {
        Truth::Yes => known(true),
        Truth::No => known(false),
        Truth::Told => Abstract::Told,
        Truth::Later => Abstract::LaterBool,
    }
}

fn may_be_role(role: &Value) -> bool {
    role.as_str().is_none_or(|role| TAIL_ROLES.contains(&role))
}

fn is_comparison(op: BinOpKind) -> bool {
    use BinOpKind::{Eq, Gt, Gte, In, Lt, Lte, Ne};
    matches!(op, Eq | Ne | Lt | Lte | Gt | Gte | In)
}

fn mirrored(op: BinOpKind) -> Option<BinOpKind> {
    Some(match op {
        BinOpKind::Lt => BinOpKind::Gt,
        BinOpKind::Lte => BinOpKind::Gte,
        BinOpKind::Gt => BinOpKind::Lt,
        BinOpKind::Gte => BinOpKind::Lte,
        BinOpKind::Eq => BinOpKind::Eq,
        BinOpKind::Ne => BinOpKind::Ne,
        _ => return None,
    })
}
