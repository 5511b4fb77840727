//! The conversation of a chat. Owns which members of messages get to the template.

use super::{ContentShape, Policy, expect, given, refuse, string};
use crate::decline::Decline;
use crate::value::value;
use minijinja::value::Value as Cell;
use warmpath_parser::json::{Kind, Member, Members, Value, elements, entries, member};

/// What a template gets.
pub struct Conversation {
    /// The messages, as a list of maps.
    pub messages: Cell,
    /// The tools; none where the request has none, as transformers passes it.
    pub tools: Cell,
    /// `chat_template_kwargs`, in their order.
    pub kwargs: Vec<(String, Cell)>,
}

/// Names that `chat_template_kwargs` must not take: the engine sets them itself.
const RESERVED: [&str; 9] = [
    "messages",
    "conversation",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
    "reasoning_effort",
];

/// Members of a message beside role and content.
const DECLINED: [(&str, Decline); 7] = [
    ("tool_calls", Decline::ToolCalls),
    ("function_call", Decline::ToolCalls),
    ("tool_call_id", Decline::ToolResult),
    ("reasoning_content", Decline::Reasoning),
    ("reasoning", Decline::Reasoning),
    ("thinking", Decline::Reasoning),
    ("tools", Decline::Tools),
];

/// Reads a chat request.
pub(crate) fn conversation(body: &[u8], members: &Members, policy: &Policy) -> Result<Conversation, Decline> {
    let frame = frame(body, members, policy)?;
    Ok(Conversation { messages: messages(body, members, policy.content)?, ..frame })
}

/// Reads all of a chat request but its messages, of which there are none then.
pub(crate) fn frame(body: &[u8], members: &Members, policy: &Policy) -> Result<Conversation, Decline> {
    if !policy.chats_by_template {
        return Err(Decline::ModelType);
    }
    refuse(members, Member::Functions, Decline::Functions)?;
    refuse(members, Member::Documents, Decline::Documents)?;
    refuse(members, Member::ReasoningEffort, Decline::ReasoningEffort)?;
    refuse(members, Member::ChatTemplate, Decline::OwnTemplate)?;
    expect(members, Member::AddGenerationPrompt, Kind::True, Decline::GenerationPrompt)?;
    expect(members, Member::ContinueFinalMessage, Kind::False, Decline::ContinueFinal)?;
    expect(members, Member::AddSpecialTokens, Kind::False, Decline::AddSpecialTokens)?;
    let tools = tools(body, members, policy)?;
    let kwargs = kwargs(body, members, policy)?;
    Ok(Conversation { messages: Cell::from(()), tools, kwargs })
}

fn tools(body: &[u8], members: &Members, policy: &Policy) -> Result<Cell, Decline> {
    let Some(tools) = given(members, Member::Tools) else {
        let choice = given(members, Member::ToolChoice);
        return choice
            .map_or(Ok(()), |choice| choice_is(body, choice, &["none", "auto"]))
            .map(|()| Cell::from(()));
    };
    if !policy.tools {
        return Err(Decline::Tools);
    }
    if let Some(choice) = given(members, Member::ToolChoice) {
        choice_is(body, choice, &["auto"])?;
    }
    if tools.kind == Kind::Array { value(tools.raw.of(body)) } else { Err(Decline::MemberType) }
}

fn choice_is(body: &[u8], choice: Value, words: &[&str]) -> Result<(), Decline> {
    match string(body, choice) {
        Ok(word) if words.contains(&word.as_str()) => Ok(()),
        _ => Err(Decline::ToolChoice),
    }
}

fn kwargs(body: &[u8], members: &Members, policy: &Policy) -> Result<Vec<(String, Cell)>, Decline> {
    let Some(kwargs) = given(members, Member::ChatTemplateKwargs) else { return Ok(Vec::new()) };
    if kwargs.kind != Kind::Object {
        return Err(Decline::MemberType);
    }
    let mut read = Vec::new();
    for entry in entries(body, kwargs) {
        if !policy.template_kwargs || RESERVED.iter().any(|name| entry.is_named(body, name)) {
            return Err(Decline::TemplateKwargs);
        }
        let Some(name) = value(entry.key.of(body))?.to_str() else { return Err(Decline::MemberType) };
        read.push((name.to_string(), value(entry.raw.of(body))?));
    }
    Ok(read)
}

fn messages(body: &[u8], members: &Members, shape: ContentShape) -> Result<Cell, Decline> {
    let messages = given(members, Member::Messages).ok_or(Decline::NoMessages)?;
    let mut list = Vec::new();
    let mut ends_on_assistant = false;
    for message in elements(body, messages) {
        let read = Message::read(body, message)?;
        ends_on_assistant = read.role == "assistant";
        list.push(read.into_cell(body, shape)?);
    }
    match list.is_empty() {
        true => Err(Decline::NoMessages),
        false if ends_on_assistant => Err(Decline::EndsOnAssistant),
        false => Ok(Cell::from(list)),
    }
}

/// Reads one message: its role, and the message as the template sees it.
pub(crate) fn message(body: &[u8], message: Value, shape: ContentShape) -> Result<(String, Cell), Decline> {
    let read = Message::read(body, message)?;
    let role = read.role.clone();
    Ok((role, read.into_cell(body, shape)?))
}

struct Message {
    role: String,
    content: Value,
    name: Option<String>,
}

impl Message {
    fn read(body: &[u8], message: Value) -> Result<Message, Decline> {
        let (mut role, mut content, mut name) = (None, None, None);
        for entry in entries(body, message) {
            let declined = DECLINED.iter().find(|(word, _)| entry.is_named(body, word));
            if let Some((_, decline)) = declined.filter(|_| is_given(body, entry)) {
                return Err(*decline);
            }
            match () {
                () if entry.is_named(body, "role") => role = Some(string(body, entry)),
                () if entry.is_named(body, "content") => content = Some(entry),
                () if entry.is_named(body, "name") => {
                    name = Some(entry).filter(|name| name.kind != Kind::Null)
                }
                () => {}
            }
        }
        let role = role.ok_or(Decline::MessageShape)?.map_err(|_| Decline::MessageShape)?;
        if role == "tool" || role == "function" {
            return Err(Decline::ToolResult);
        }
        let name = name.map(|name| string(body, name)).transpose()?;
        Ok(Message { role, content: content.ok_or(Decline::MessageShape)?, name })
    }

    fn into_cell(self, body: &[u8], shape: ContentShape) -> Result<Cell, Decline> {
        let content = match (self.content.kind, shape) {
            (Kind::String { .. }, ContentShape::Parts { wrap: true }) => parts(string(body, self.content)?),
            (Kind::String { .. }, _) => Cell::from(string(body, self.content)?),
            (Kind::Array, ContentShape::Text { joiner }) => {
                Cell::from(joined(&texts(body, self.content)?, joiner)?)
            }
            (Kind::Array, ContentShape::Parts { .. }) => {
                match <[String; 1]>::try_from(texts(body, self.content)?) {
                    Ok([only]) => parts(only),
                    Err(_) => return Err(Decline::ManyTextParts),
                }
            }
            _ => return Err(Decline::MessageShape),
        };
        let name = self.name.map(|name| ("name", Cell::from(name)));
        Ok([("role", Cell::from(self.role)), ("content", content)].into_iter().chain(name).collect())
    }
}

/// Neither null nor an empty list, which clients send for nothing.
fn is_given(body: &[u8], value: Value) -> bool {
    value.kind != Kind::Null && !(value.kind == Kind::Array && elements(body, value).next().is_none())
}

fn joined(texts: &[String], joiner: &str) -> Result<String, Decline> {
    // vLLM and TensorRT-LLM drop it, SGLang joins it.
    let empty = texts.len() > 1 && texts.iter().any(String::is_empty);
    if empty { Err(Decline::EmptyTextPart) } else { Ok(texts.join(joiner)) }
}

/// A list of one text part.
fn parts(text: String) -> Cell {
    let part: Cell = [("type", Cell::from("text")), ("text", Cell::from(text))].into_iter().collect();
    Cell::from(vec![part])
}

/// The texts of the parts of a content.
fn texts(body: &[u8], content: Value) -> Result<Vec<String>, Decline> {
    elements(body, content)
        .map(|part| {
            if part.kind != Kind::Object {
                return Err(Decline::MessageShape);
            }
            let kind = member(body, part, "type").ok_or(Decline::MessageShape)?;
            if string(body, kind).as_deref() != Ok("text") {
                return Err(Decline::MediaPart);
            }
            string(body, member(body, part, "text").ok_or(Decline::MessageShape)?)
        })
        .collect()
}
