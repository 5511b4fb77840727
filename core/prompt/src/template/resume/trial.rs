//! Conversations that every proven template must go on with as if from the beginning, before it is used. Owns them;
//! the proof should leave nothing for it to find.

use super::{Resumable, Sparse};
use crate::template::{NAME, TODAY};
use minijinja::value::Value;
use minijinja::{Environment, context};

/// Contents that templates look at.
const CONTENTS: [&str; 9] = [
    "",
    " two words \n",
    "<think>\nwhy\n</think>\n\nbecause",
    "</think>",
    "<tool_response>\n1\n</tool_response>",
    "a<think>b</think>c<|im_end|>",
    "```json\n{\"a\": [1]}\n```",
    "[INST] x [/INST]</s>",
    "日本 😀",
];

/// Orders of roles, by initial.
const ORDERS: [&str; 8] = ["uau", "suau", "suauau", "uauauau", "suuauasu", "uaauu", "suatuau", "uatatuaatu"];

fn message(role: char, content: &str) -> Value {
    let role = match role {
        's' => "system",
        'u' => "user",
        'a' => "assistant",
        _ => "tool",
    };
    let calls: Value = if content.len() % 3 == 2 && role == "assistant" {
        Value::from_serialize([context!(
            id => "c1", type => "function", function => context!(name => "f", arguments => context!(x => 1))
        )])
    } else {
        return context!(role => role, content => content);
    };
    context!(role => role, content => content, tool_calls => calls)
}

/// Compares both forms with the template; the first difference.
pub(super) fn run(resumable: &Resumable, env: &Environment<'static>) -> Result<(), String> {
    let tools = Value::from_serialize([context!(type => "function", function => context!(name => "f"))]);
    let mut resumed = 0;
    for (round, order) in ORDERS.iter().cycle().take(ORDERS.len() * CONTENTS.len()).enumerate() {
        let content = |at: usize| CONTENTS[(round * 7 + at * 5 + round / 8 * at) % CONTENTS.len()];
        let messages: Vec<Value> =
            order.chars().enumerate().map(|(at, role)| message(role, content(at))).collect();
        let frame: Vec<(Value, Value)> = [
            ("tools", if round % 3 == 1 { tools.clone() } else { Value::from(()) }),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(true)),
            ("bos_token", Value::from("<s>")),
            ("eos_token", Value::from("</s>")),
            ("enable_thinking", Value::from(round % 2 == 1)),
            (TODAY, Value::from(20_000)),
        ]
        .map(|(name, value)| (Value::from(name), value))
        .into();
        resumed += conversation(resumable, env, &messages, &frame)?;
    }
    if resumed == 0 { Err("it goes on with none of the conversations it is tried on".into()) } else { Ok(()) }
}

/// Every beginning that ends on a pivot, and every end behind it. How many went on.
fn conversation(
    resumable: &Resumable,
    env: &Environment<'static>,
    messages: &[Value],
    frame: &[(Value, Value)],
) -> Result<usize, String> {
    let context = |messages: &[Value]| -> Value {
        let messages = (Value::from("messages"), Value::from(messages.to_vec()));
        frame.iter().cloned().chain([messages]).collect()
    };
    let whole = |messages: &[Value]| {
        env.get_template(NAME).and_then(|template| template.render(context(messages))).ok()
    };
    let mut resumed = 0;
    for k in 0..messages.len() {
        let begun = &messages[..=k];
        let kept = match resumable.keep(env, context(begun)) {
            Ok(Some(kept)) => Some(kept),
            // No mark, or one too many: the template itself is asked then.
            Ok(None) => continue,
            Err(_) => None,
        };
        if kept.as_ref().map(|kept| &kept.0) != whole(begun).as_ref() {
            return Err(format!("its kept form differs on {}", Value::from(begun.to_vec())));
        }
        let Some((text, Some(stop))) = kept.filter(|_| resumable.is_pivot(k, &messages[k])) else { continue };
        for n in k + 1..=messages.len() {
            let rest = messages[k..n].to_vec();
            let follows = |message: &Value| {
                message.get_attr("role").is_ok_and(|role| role.as_str().is_some_and(Resumable::may_follow))
            };
            if !rest.iter().all(follows) {
                continue;
            }
            let known = [0, k.saturating_sub(1)].map(|at| (at, messages[at].clone()));
            let earlier =
                move |at| known.iter().find(|(own, _)| *own == at).map(|(_, message)| message.clone());
            let sparse = Sparse { earlier: Box::new(earlier), from: k, rest: rest.clone() };
            let sparse = Value::from_object(sparse);
            // A failure is no difference: then all is rendered anew.
            let Ok(Some((tail, _))) = resumable.go_on(env, frame.iter().cloned(), &stop, sparse, rest) else {
                continue;
            };
            if Some(format!("{}{tail}", &text[..stop.at])) != whole(&messages[..n]) {
                return Err(format!("its resumed form differs on {}", Value::from(messages[..n].to_vec())));
            }
            resumed += 1;
        }
    }
    Ok(resumed)
}
