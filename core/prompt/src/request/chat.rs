//! The conversation of a chat. Owns which members of messages get to the template.

use super::{ContentShape, Policy, expect, given, refuse, string, tools};
use crate::decline::Decline;
use crate::value::value;
use minijinja::value::Value as Cell;
use warmpath_core::engine::{Named, ToolForm};
use warmpath_parser::json::{self, Kind, Member, Members, Value, elements, entries, member};

/// What a template gets.
pub struct Conversation {
    /// The messages, as a list of maps.
    pub messages: Cell,
    /// The tools; none where the request has none, as transformers passes it.
    pub tools: Cell,
    /// `chat_template_kwargs`, in their order.
    pub kwargs: Vec<(String, Cell)>,
}

/// Members of a message beside role and content.
const DECLINED: [(&str, Decline); 5] = [
    ("function_call", Decline::ToolCalls),
    ("reasoning_content", Decline::Reasoning),
    ("reasoning", Decline::Reasoning),
    ("thinking", Decline::Reasoning),
    ("tools", Decline::Tools),
];

/// Reads a chat request.
pub(crate) fn conversation(
    body: &[u8],
    members: &Members,
    policy: &Policy,
    form: Option<ToolForm>,
) -> Result<Conversation, Decline> {
    let frame = frame(body, members, policy, form)?;
    Ok(Conversation { messages: messages(body, members, policy)?, ..frame })
}

/// Reads all of a chat request but its messages, of which there are none then.
pub(crate) fn frame(
    body: &[u8],
    members: &Members,
    policy: &Policy,
    form: Option<ToolForm>,
) -> Result<Conversation, Decline> {
    if !policy.chats {
        return Err(Decline::ProfileApi);
    }
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
    let tools = tools::tools(body, members, policy.tools, form)?;
    let kwargs = kwargs(body, members, policy)?;
    Ok(Conversation { messages: Cell::from(()), tools, kwargs })
}

fn kwargs(body: &[u8], members: &Members, policy: &Policy) -> Result<Vec<(String, Cell)>, Decline> {
    let Some(kwargs) = given(members, Member::ChatTemplateKwargs) else { return Ok(Vec::new()) };
    if kwargs.kind != Kind::Object {
        return Err(Decline::MemberType);
    }
    let mut read: Vec<(String, Cell)> = Vec::new();
    for entry in entries(body, kwargs) {
        let known = policy.kwargs.iter().find(|own| entry.is_named(body, own.name));
        let known = known.filter(|own| policy.template_kwargs && own.takes(entry.kind));
        let name = known.ok_or(Decline::TemplateKwargs)?.name;
        read.push((name.to_string(), value(entry.raw.of(body))?));
    }
    Ok(read)
}

fn messages(body: &[u8], members: &Members, policy: &Policy) -> Result<Cell, Decline> {
    given(members, Member::Messages).ok_or(Decline::NoMessages)?;
    let mut list = Vec::new();
    let mut ends_on_assistant = false;
    for message in json::messages(body, members) {
        let read = Message::read(body, message, policy.tools)?;
        ends_on_assistant = read.role == "assistant";
        list.push(read.into_cell(body, policy)?);
    }
    match list.is_empty() {
        true => Err(Decline::NoMessages),
        false if ends_on_assistant => Err(Decline::EndsOnAssistant),
        false => Ok(Cell::from(list)),
    }
}

/// Reads one message: its role, and the message as the template sees it.
pub(crate) fn message(body: &[u8], message: Value, policy: &Policy) -> Result<(String, Cell), Decline> {
    let read = Message::read(body, message, policy.tools)?;
    let role = read.role.clone();
    Ok((role, read.into_cell(body, policy)?))
}

struct Message {
    role: String,
    content: Option<Value>,
    name: Option<Value>,
    calls: Option<Value>,
    call_id: Option<Value>,
}

impl Message {
    fn read(body: &[u8], message: Value, tools: bool) -> Result<Message, Decline> {
        let mut read = Message { role: String::new(), content: None, name: None, calls: None, call_id: None };
        let mut role = None;
        for entry in entries(body, message) {
            let declined = DECLINED.iter().find(|(word, _)| entry.is_named(body, word));
            if let Some((_, decline)) = declined.filter(|_| is_given(body, entry)) {
                return Err(*decline);
            }
            let given = Some(entry).filter(|entry| is_given(body, *entry));
            match () {
                () if entry.is_named(body, "role") => role = Some(string(body, entry)),
                () if entry.is_named(body, "content") => read.content = Some(entry),
                () if entry.is_named(body, "name") => read.name = given,
                () if entry.is_named(body, "tool_calls") => read.calls = given,
                () if entry.is_named(body, "tool_call_id") => read.call_id = given,
                () => {}
            }
        }
        read.role = role.ok_or(Decline::MessageShape)?.map_err(|_| Decline::MessageShape)?;
        read.check_tools(tools).map(|()| read)
    }

    /// Calls are the assistant's, their results the tool's, and both only where they were verified.
    fn check_tools(&self, verified: bool) -> Result<(), Decline> {
        let result = self.role == "tool" || self.role == "function" || self.call_id.is_some();
        match () {
            () if self.calls.is_some() && !(verified && self.role == "assistant") => Err(Decline::ToolCalls),
            () if result && !(verified && self.role == "tool") => Err(Decline::ToolResult),
            () => Ok(()),
        }
    }

    fn into_cell(self, body: &[u8], policy: &Policy) -> Result<Cell, Decline> {
        let content = self.content(body, policy)?;
        let calls = self.calls.map(|calls| tools::calls(body, calls)).transpose()?;
        let call_id = self.call_id.map(|id| string(body, id)).transpose()?;
        let named = match policy.names {
            Named::All => true,
            Named::NotUsers => self.role != "user",
            Named::Nobody => false,
        };
        let name = self.name.filter(|_| named).map(|name| string(body, name)).transpose()?;
        let members =
            [("role", Some(Cell::from(self.role))), ("content", Some(content))].into_iter().chain([
                ("tool_calls", calls),
                ("tool_call_id", call_id.map(Cell::from)),
                ("name", name.map(Cell::from)),
            ]);
        Ok(members.filter_map(|(name, cell)| Some((name, cell?))).collect())
    }

    fn content(&self, body: &[u8], policy: &Policy) -> Result<Cell, Decline> {
        let content = match self.content.filter(|content| content.kind != Kind::Null) {
            Some(content) => content,
            // A call needs no words.
            None if self.calls.is_some() => {
                let list = policy.content == ContentShape::Parts { wrap: true };
                return Ok(if list { Cell::from(Vec::<Cell>::new()) } else { Cell::from("") });
            }
            None => return Err(Decline::MessageShape),
        };
        // A tool's result is text in any case.
        let shape = match policy.content {
            ContentShape::Parts { .. } if self.role == "tool" => ContentShape::Text { joiner: policy.joiner },
            shape => shape,
        };
        let texts = match content.kind {
            Kind::String { .. } => vec![string(body, content)?],
            Kind::Array => texts(body, content)?,
            _ => return Err(Decline::MessageShape),
        };
        let cut = |text: &String| policy.cut_header.is_some_and(|header| text.starts_with(header));
        if self.role == "system" && texts.iter().any(cut) {
            return Err(Decline::SystemHeader);
        }
        let is_list = content.kind == Kind::Array;
        match (shape, <[String; 1]>::try_from(texts)) {
            (ContentShape::Text { joiner }, Err(texts)) => joined(&texts, joiner).map(Cell::from),
            (ContentShape::Text { .. }, Ok([only])) => Ok(Cell::from(only)),
            (ContentShape::Parts { wrap }, Ok([only])) => {
                Ok(if is_list || wrap { parts(only) } else { Cell::from(only) })
            }
            (ContentShape::Parts { .. }, Err(_)) => Err(Decline::ManyTextParts),
        }
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
