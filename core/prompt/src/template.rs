//! The model's own chat template, rendered as transformers renders it: a sandboxed Jinja2 with `trim_blocks`,
//! `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now` and its own `tojson`. Owns that set-up and
//! where minijinja differs from it; must never read a clock or a file.
//!
//! Differences that stay: `~` joins as minijinja prints, which is Python's form for strings and integers only; a
//! tuple that a template writes down itself prints as a list; a loop over none ends at once, where Jinja2 fails and
//! the engine with it.

mod clock;
mod json;
mod python;
mod resume;
mod verified;

pub use clock::Date;
pub(crate) use resume::{Rendered, Resumable, Sparse, Stop};
pub use verified::{Kwarg, VERIFIED, Verified};

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use std::fmt;

/// The one template of an environment.
const NAME: &str = "chat";

/// The context's member that carries the date's days; no template names it.
const TODAY: &str = "warmpath today";

/// A compiled template.
pub struct Template {
    env: Environment<'static>,
    loops_over_parts: bool,
    resumable: Result<Resumable, String>,
}

/// Why a template can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFault {
    /// Line of the template, from 1.
    pub line: Option<usize>,
    /// What is wrong there.
    pub what: String,
}

/// Why a conversation has no rendered form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenderFault {
    /// The template refuses it, with its own words.
    Raised(String),
    /// It asks for a time that was not given.
    Clock(String),
    /// It does what is not known to end as in Python.
    Failed(String),
}

/// An error of ours below minijinja's.
#[derive(Debug)]
enum Cause {
    Raised,
    Clock,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Raised => "raised by the template",
            Cause::Clock => "no such time",
        })
    }
}

impl std::error::Error for Cause {}

impl fmt::Display for TemplateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "the chat template can't be compiled, line {line}: {}", self.what),
            None => write!(f, "the chat template can't be compiled: {}", self.what),
        }
    }
}

impl std::error::Error for TemplateFault {}

impl fmt::Display for RenderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RenderFault::Raised(words) => write!(f, "the chat template refuses the conversation: {words}"),
            RenderFault::Clock(what) => write!(f, "the chat template asks for a time: {what}"),
            RenderFault::Failed(what) => write!(f, "the chat template fails: {what}"),
        }
    }
}

impl std::error::Error for RenderFault {}

impl Template {
    /// Compiles the text of a `chat_template`.
    pub fn compile(source: &str) -> Result<Template, TemplateFault> {
        let mut env = environment();
        let text = without_generation_tags(source);
        env.add_template_owned(NAME, text.clone()).map_err(|error| TemplateFault {
            line: error.line(),
            what: error.detail().map_or_else(|| error.kind().to_string(), str::to_string),
        })?;
        let resumable = Resumable::prove(&text, &mut env);
        Ok(Template { env, loops_over_parts: loops_over_parts(source), resumable })
    }

    /// How a rendering goes on behind messages rendered before, if that is proven.
    pub(crate) fn resumable(&self) -> Option<&Resumable> {
        self.resumable.as_ref().ok()
    }

    /// Why it is not proven.
    pub fn not_resumable(&self) -> Option<&str> {
        self.resumable.as_ref().err().map(String::as_str)
    }

    /// Whether the template looks as if it looped over the parts of a content: vLLM and SGLang then hand it
    /// parts. They ask the parsed template; this asks its text, so a profile's word goes before it.
    pub fn loops_over_parts(&self) -> bool {
        self.loops_over_parts
    }

    /// The text of a conversation. `members` are what the template sees; `today` is what it may print.
    pub fn render(
        &self,
        members: impl IntoIterator<Item = (&'static str, Value)>,
        more: &[(String, Value)],
        today: Option<Date>,
    ) -> Result<String, RenderFault> {
        let context: Value = context(members, more, today).collect();
        self.env.get_template(NAME).and_then(|template| template.render(context)).map_err(fault)
    }

    /// The same, and where it may go on if the template is proven and the text can be told from marks in it.
    pub(crate) fn render_kept(
        &self,
        members: impl IntoIterator<Item = (&'static str, Value)>,
        more: &[(String, Value)],
        today: Option<Date>,
    ) -> Result<Rendered, RenderFault> {
        let whole: Value = context(members, more, today).collect();
        if let Ok(resumable) = &self.resumable
            && let Some(rendered) = resumable.keep(&self.env, whole.clone()).map_err(fault)?
        {
            return Ok(rendered);
        }
        let text = self.env.get_template(NAME).and_then(|template| template.render(whole)).map_err(fault)?;
        Ok((text, None))
    }

    /// The text from the pivot of `stop` on, if it can be told; `members` are all but the messages.
    pub(crate) fn go_on(
        &self,
        members: impl IntoIterator<Item = (&'static str, Value)>,
        more: &[(String, Value)],
        today: Option<Date>,
        stop: &Stop,
        messages: Sparse,
    ) -> Option<Rendered> {
        let rest = messages.rest.clone();
        let messages = Value::from_object(messages);
        let resumable = self.resumable.as_ref().ok()?;
        resumable.go_on(&self.env, context(members, more, today), stop, messages, rest).ok()?
    }
}

/// What a template sees.
fn context(
    members: impl IntoIterator<Item = (&'static str, Value)>,
    more: &[(String, Value)],
    today: Option<Date>,
) -> impl Iterator<Item = (Value, Value)> {
    let more = more.iter().map(|(name, value)| (Value::from(name.as_str()), value.clone()));
    let today = today.map(|date| (Value::from(TODAY), Value::from(date.days())));
    members.into_iter().map(|(name, value)| (Value::from(name), value)).chain(more).chain(today)
}

fn fault(error: Error) -> RenderFault {
    let words = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        match error.downcast_ref::<Cause>() {
            Some(Cause::Raised) => return RenderFault::Raised(words),
            Some(Cause::Clock) => return RenderFault::Clock(words),
            None => cause = error.source(),
        }
    }
    RenderFault::Failed(words)
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_trim_blocks(true);
    env.set_lstrip_blocks(true);
    env.set_keep_trailing_newline(false);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_formatter(print);
    env.set_unknown_method_callback(python::method);
    env.add_function("raise_exception", raise);
    env.add_function("strftime_now", strftime_now);
    env.add_function(resume::KEEP, resume::keep);
    env.add_filter("tojson", |value: Value, kwargs: Kwargs| json::tojson(&value, kwargs));
    env.add_filter("string", string);
    env.add_filter("join", join);
    env.add_filter("trim", trim);
    env.add_test("sequence", |value: &Value| is_any(value, &[ValueKind::Seq, ValueKind::Map]));
    env.add_test("iterable", |value: &Value| {
        is_any(value, &[ValueKind::Seq, ValueKind::Map, ValueKind::Iterable])
    });
    env.add_test("number", |value: &Value| matches!(value.kind(), ValueKind::Number | ValueKind::Bool));
    env
}

/// Python's strings and Jinja2's undefined have a length and items too.
fn is_any(value: &Value, kinds: &[ValueKind]) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Undefined) || kinds.contains(&value.kind())
}

fn print(out: &mut Output<'_>, _: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let write = |out: &mut Output<'_>, text: &str| out.write_str(text).map_err(Error::from);
    if let Some(text) = value.as_str() {
        return write(out, text);
    }
    let mut text = String::new();
    python::str(value, &mut text)?;
    write(out, &text)
}

fn raise(words: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, words).with_source(Cause::Raised))
}

fn strftime_now(state: &State<'_, '_>, format: &str) -> Result<String, Error> {
    let fault = |what: String| Error::new(ErrorKind::InvalidOperation, what).with_source(Cause::Clock);
    let today = state.lookup(TODAY).and_then(|days| i64::try_from(days).ok());
    let today = today.ok_or_else(|| fault("today's date; the profile has no clockPolicy".into()))?;
    Date::of_days(today).format(format).map_err(|directive| fault(format!("{directive} of strftime_now")))
}

fn string(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    python::str(value, &mut out)?;
    Ok(out)
}

fn join(value: &Value, between: Option<&str>) -> Result<String, Error> {
    let mut out = String::new();
    for (at, item) in value.try_iter()?.enumerate() {
        if at > 0 {
            out.push_str(between.unwrap_or_default());
        }
        python::str(&item, &mut out)?;
    }
    Ok(out)
}

fn trim(value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = string(value)?;
    Ok(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_string(),
        None => text.trim_matches(python::is_blank).to_string(),
    })
}

/// `{% generation %}` marks what the assistant wrote and prints its inside: a condition that always holds has
/// the same blanks around it.
fn without_generation_tags(source: &str) -> String {
    if !source.contains("generation") {
        return source.to_string();
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            continue;
        };
        let inside = &tag[..end];
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out.push_str(&match word {
            "generation" => inside.replace("generation", "if true"),
            "endgeneration" => inside.replace("endgeneration", "endif"),
            _ => inside.to_string(),
        });
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}

/// A `for` over a member named `content`.
fn loops_over_parts(source: &str) -> bool {
    source.split("{%").skip(1).any(|tag| {
        let tag = tag.split("%}").next().unwrap_or_default().trim_start_matches(['-', '+']).trim();
        let over = tag.strip_prefix("for ").and_then(|tag| tag.split_once(" in "));
        over.is_some_and(|(_, over)| {
            let over = over.split(" if ").next().unwrap_or_default();
            over.contains(".content") || over.contains("'content'") || over.contains("\"content\"")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, members: &[(&'static str, Value)]) -> Result<String, RenderFault> {
        Template::compile(source).expect("a template").render(members.iter().cloned(), &[], None)
    }

    #[test]
    fn blocks_are_trimmed_as_transformers_trims_them() {
        let text = render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n\n", &[]);
        assert_eq!(text.as_deref(), Ok("a\n  b\nc\n"));
    }

    #[test]
    fn values_print_as_in_python() {
        let text = render("{{ x }}|{{ none }}|{{ true }}|{{ 1.0 }}|{{ [1, 'a'] }}|{{ {'k': none} }}", &[]);
        assert_eq!(text.as_deref(), Ok("|None|True|1.0|[1, 'a']|{'k': None}"));
        let text = render("{{ [none, 1.0]|join('-') }}|{{ true|string }}|{{ '\x1c x \u{a0}'|trim }}", &[]);
        assert_eq!(text.as_deref(), Ok("None-1.0|True|x"));
    }

    #[test]
    fn a_template_may_refuse_a_conversation() {
        let source = "{% macro m() %}{{ raise_exception('no ' + what) }}{% endmacro %}{{ m() }}";
        assert_eq!(render(source, &[("what", "way".into())]), Err(RenderFault::Raised("no way".into())));
        let failed = render("{{ x.y.z }}", &[]);
        assert!(matches!(failed, Err(RenderFault::Failed(_))), "{failed:?}");
        let failed = render("{{ 'a'.nothing() }}", &[]);
        assert!(matches!(failed, Err(RenderFault::Failed(_))), "{failed:?}");
    }

    #[test]
    fn a_template_that_can_t_be_compiled_is_named_by_line() {
        for (source, line) in [("a\n{% if %}", 2), ("{% nothing %}", 1), ("\n\n{{ 'a' | nothing }}", 3)] {
            let fault = Template::compile(source).err();
            assert!(fault.is_none() || fault.as_ref().is_some_and(|f| f.line == Some(line)), "{fault:?}");
        }
        assert!(Template::compile("{% if x %}").is_err());
    }

    #[test]
    fn the_date_is_the_one_passed_in() {
        let template = Template::compile("{{ strftime_now('%d %b %Y') }}").expect("a template");
        let on = |seconds| template.render([], &[], Some(Date::of_unix(seconds)));
        assert_eq!(on(1_798_761_599).as_deref(), Ok("31 Dec 2026"));
        assert_eq!(on(1_798_761_600).as_deref(), Ok("01 Jan 2027"));
        assert!(matches!(template.render([], &[], None), Err(RenderFault::Clock(_))));
        let hours = Template::compile("{{ strftime_now('%H') }}").expect("a template");
        let hours = hours.render([], &[], Some(Date::of_unix(0)));
        assert!(matches!(hours, Err(RenderFault::Clock(_))), "{hours:?}");
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        let value = Value::from_iter([
            ("b", Value::from("<&>'\"\\\n\u{1}é\u{7f}")),
            ("a", Value::from(vec![Value::from(1), Value::from(1e16), Value::from(()), Value::from(true)])),
            ("c", Value::from(Vec::<Value>::new())),
        ]);
        let cases = [
            (
                "{{ v|tojson }}",
                "{\"b\": \"<&>'\\\"\\\\\\n\\u0001é\u{7f}\", \"a\": [1, 1e+16, null, true], \"c\": []}",
            ),
            (
                "{{ v|tojson(indent=1, sort_keys=true) }}",
                "{\n \"a\": [\n  1,\n  1e+16,\n  null,\n  true\n ],\n \"b\": \"<&>'\\\"\\\\\\n\\u0001é\u{7f}\",\n \
                 \"c\": []\n}",
            ),
            ("{{ v.a|tojson(separators=(',', ':')) }}", "[1,1e+16,null,true]"),
            ("{{ 'é😀'|tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\ude00\""),
        ];
        for (source, wanted) in cases {
            assert_eq!(render(source, &[("v", value.clone())]).as_deref(), Ok(wanted), "{source}");
        }
        assert!(render("{{ nothing|tojson }}", &[]).is_err());
    }

    #[test]
    fn generation_tags_print_their_inside() {
        let text = render("a\n  {%- generation %}\nb{% endgeneration -%}\n c {{ 'generation' }}", &[]);
        assert_eq!(text.as_deref(), Ok("ab c generation".replace("b c", "bc").as_str()));
    }

    #[test]
    fn loops_over_parts_are_seen() {
        let loops = |source| Template::compile(source).expect("a template").loops_over_parts();
        assert!(loops("{% for m in messages %}{%- for c in m['content'] %}{{ c }}{% endfor %}{% endfor %}"));
        assert!(!loops("{% for m in messages %}{{ m.content }}{% endfor %}"));
    }
}
