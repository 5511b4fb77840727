//! Why a request's keys can't be proven equal to the engine's. Owns the closed list and its words. The request
//! goes on by the next tier: a decline must never refuse it.

use crate::engine;
use std::fmt;

macro_rules! declines {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $text:literal;)+) => {
        /// Why exact routing leaves a request alone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Decline {
            $(#[doc = $text] $variant,)+
            /// The chain of block keys declines what the request carries beside tokens.
            Chain(engine::Decline),
        }

        impl Decline {
            /// All but those of the chain, which has its own list.
            pub const OWN: &'static [Decline] = &[$(Decline::$variant),+];

            /// A word for metrics and explanations.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Decline::$variant => $word,)+
                    Decline::Chain(decline) => decline.word(),
                }
            }
        }

        impl fmt::Display for Decline {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Decline::$variant => f.write_str($text),)+
                    Decline::Chain(decline) => decline.fmt(f),
                }
            }
        }
    };
}

declines! {
    NoTokenizer = "no_tokenizer", "the gateway has no tokenizer of this model";
    TokenizerLoading = "tokenizer_loading", "the tokenizer of this model is being loaded";
    TokenizerFailed = "tokenizer_failed", "the tokenizer of this model can't be loaded";
    NoPrompt = "no_prompt", "the body has no prompt";
    PromptShape = "prompt_shape", "prompt is no string, no list of strings and no list of token ids";
    ManyPrompts = "many_prompts", "more than one prompt in a request";
    TokenIds = "token_ids", "a token id of the prompt is no integer of 32 bits";
    NoMessages = "no_messages", "the body has no messages";
    MessageShape = "message_shape", "a message has no role, or its content is no text";
    MediaPart = "media_part", "a content part is not text";
    ManyTextParts = "many_text_parts", "several text parts in a message, and the template loops over parts";
    EmptyTextPart = "empty_text_part", "an empty text part among several, which engines drop or keep";
    ToolCalls = "tool_calls", "a message calls a tool, which is not verified for this template, or in a form of its own";
    ToolResult = "tool_result", "a message is the result of a tool, which is not verified for this template";
    Reasoning = "reasoning", "a message carries reasoning";
    EndsOnAssistant = "ends_on_assistant", "the conversation ends on a turn of the assistant";
    Tools = "tools", "tools, which are not verified for this template";
    ToolVersion = "tool_version", "tools, whose form depends on an engine version that is not known or not verified";
    ToolShape = "tool_shape", "a tool's definition has members of its own";
    SystemHeader = "system_header", "a system text begins with what some versions of the engine cut off";
    ToolChoice = "tool_choice", "a tool_choice other than auto";
    Functions = "functions", "functions, the older form of tools";
    Documents = "documents", "documents";
    ReasoningEffort = "reasoning_effort", "reasoning_effort";
    PromptEmbeds = "prompt_embeds", "prompt_embeds";
    PromptTokenIds = "prompt_token_ids", "prompt_token_ids";
    Truncated = "truncate_prompt_tokens", "truncate_prompt_tokens";
    OwnTemplate = "chat_template", "a chat_template in the request";
    TemplateKwargs = "chat_template_kwargs", "chat_template_kwargs, which are not verified for this template";
    GenerationPrompt = "add_generation_prompt", "add_generation_prompt other than true";
    ContinueFinal = "continue_final_message", "continue_final_message";
    AddSpecialTokens = "add_special_tokens", "add_special_tokens other than the engine's default";
    Suffix = "suffix", "a suffix";
    LoraPath = "lora_path", "an adapter chosen by lora_path";
    MemberType = "member_type", "a member of the body has another type than the engines expect";
    LoneSurrogate = "lone_surrogate", "an escaped surrogate without its partner";
    Number = "number", "a number whose form in Python is not known";
    NoTemplate = "no_template", "the model has no chat template";
    ModelType = "model_type", "the engine encodes chats of this model without a template";
    ProfileApi = "profile_api", "the model's profile leaves this API out of supportedApis";
    Raised = "template_raised", "the chat template refuses the conversation";
    Template = "template_failed", "the chat template fails on the conversation";
    Clock = "clock", "the template asks for a time that clockPolicy does not give";
    Encode = "encode", "the tokenizer fails on the text";
    SpecialTokens = "special_tokens", "the post-processor does more than put tokens around the text";
}

impl From<engine::Decline> for Decline {
    fn from(decline: engine::Decline) -> Decline {
        Decline::Chain(decline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unlike_and_fit_a_label() {
        let mut words: Vec<&str> = Decline::OWN.iter().map(|decline| decline.word()).collect();
        assert!(
            words.iter().all(|w| w.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        );
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Decline::OWN.len());
    }

    #[test]
    fn a_decline_of_the_chain_keeps_its_word() {
        let decline = Decline::from(engine::Decline::LoraRandom);
        assert_eq!(
            (decline.word(), decline.to_string()),
            ("lora_random", engine::Decline::LoraRandom.to_string())
        );
    }
}
