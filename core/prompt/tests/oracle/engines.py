"""What released engines make of tools and messages before a template sees them: the independent side of
golden/engines.jsonl. Needs pydantic, openai and orjson, and the releases unpacked by hand, since they are large:

    engines.py FOLDER   FOLDER has vllm-VERSION/ (from PyPI's source archives) and sglang-VERSION/ (from its wheels)

The request models and the functions that turn a message into what the template gets are taken from the release and
run as they are; what they ask of the rest of the engine (media, logging) is a stub."""
import __future__
import ast
import copy
import json
import os
import re
import sys

import orjson
import pydantic

LATE = __future__.annotations.compiler_flag
TOOLS = [
    [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"b": 1, "a": {}}}}],
    [{"function": {"parameters": {"type": "object", "properties": {"x": {"type": "number", "default": 1.5e-7}}}, "name": "g"}},
     {"type": "function", "function": {"name": "h"}}],
    [{"type": "function", "function": {"name": "h", "strict": True, "parameters": {}, "description": None}}],
    [{"type": "function", "function": {"strict": False, "name": "h", "parameters": None}}],
    [],
]
TEXT = lambda *texts: [{"type": "text", "text": text} for text in texts]
CALL = lambda id, name, arguments, **more: {"type": "function", "id": id, "function": {"arguments": arguments, "name": name}, **more}
MESSAGES = [
    [{"role": "user", "content": "q", "name": "bob"}],
    [{"role": "system", "content": "S", "name": "sys"}, {"role": "user", "content": TEXT("a")},
     {"role": "assistant", "content": None, "tool_calls": [CALL("c1", "f", '{"b": 1.50, "a": [1, "\\u00e9"]}', index=0)]},
     {"role": "tool", "name": "f", "tool_call_id": "c1", "content": TEXT("r1", "r2")}, {"role": "user", "content": "z"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [CALL("c2", "g", " {}"), CALL("c3", "h", '{"k": null}')]},
     {"role": "tool", "tool_call_id": "c2", "content": "x"}, {"role": "tool", "tool_call_id": "c3", "content": ""},
     {"role": "user", "content": "z"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "said", "name": "me", "tool_calls": [CALL("c2", "g", '{"x": "y"}')]},
     {"role": "tool", "tool_call_id": "c2", "content": TEXT("x")}, {"role": "user", "content": "z"}],
]


class Silent:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def names():
    """What modules of the engines import, as far as the parts that run need it."""
    space = {"__name__": "oracle", "logger": Silent(), "orjson": orjson}
    exec("import json, copy, time\nfrom typing import *\nfrom typing_extensions import *\nfrom collections.abc import *\n"
         "from functools import *\nfrom enum import Enum\nfrom pydantic import *\nfrom openai.types.chat import *", space)
    space["VLLMValidationError"] = type("VLLMValidationError", (ValueError,), {"__init__": lambda self, *a, **k: None})
    return space


def run(path, space, wanted=None, until=None):
    """Runs a module's statements but its imports; what can't run is left out, and missed if it is needed."""
    for _ in (0, 1):
        for node in ast.parse(open(path, encoding="utf-8").read()).body:
            name = getattr(node, "name", None)
            if isinstance(node, (ast.Import, ast.ImportFrom)) or (wanted and name not in wanted):
                continue
            if until and name == until:
                break
            late = LATE if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or until or wanted else 0
            try:
                exec(compile(ast.Module(body=[node], type_ignores=[]), path, "exec", flags=late, dont_inherit=True), space)
            except Exception:
                pass


def files(root, pattern):
    for folder, _, found in os.walk(root):
        for name in found:
            path = os.path.join(folder, name)
            if name.endswith(".py") and re.search(pattern, open(path, encoding="utf-8").read(), re.M):
                yield path


def vllm(root):
    space = names()
    base = next(files(root, r"^class FunctionDefinition\("))
    run(next(files(root, r"^class OpenAIBaseModel\(")), space, until="-")
    run(base, space, {"FunctionDefinition"})
    run(os.path.join(root, "entrypoints/openai/chat_completion/protocol.py"), space, {"ChatCompletionToolsParam"})
    for name in ("FunctionDefinition", "ChatCompletionToolsParam"):
        space[name].model_rebuild(_types_namespace=space)
    models = pydantic.TypeAdapter(list[space["ChatCompletionToolsParam"]])
    return (lambda tools: [tool.model_dump() for tool in models.validate_python(tools)]), vllm_messages(root)


def vllm_messages(root):
    import openai.types.chat as chat
    from openai.types.chat.chat_completion_content_part_input_audio_param import InputAudio
    from openai.types.responses import ResponseInputImageParam
    space = names() | {name: getattr(chat, name) for name in dir(chat)}
    space |= {"InputAudio": InputAudio, "ResponseInputImageParam": ResponseInputImageParam,
              "OpenAIChatCompletionMessageParam": chat.ChatCompletionMessageParam,
              "OpenAIChatCompletionContentPartParam": chat.ChatCompletionContentPartParam,
              "OpenAIHarmonyMessage": pydantic.create_model("OpenAIHarmonyMessage", author=(dict, ...), channel=(str, ...)),
              "PILImage": pydantic.create_model("PILImage", image_pil=(str, ...)),
              "Image": type("Image", (), {"Image": object}), "torch": type("torch", (), {"Tensor": object})}
    pattern = r"^def _?parse_chat_message_content\(|^class CustomChatCompletionMessageParam|^def _postprocess_messages|_AssistantParser ="
    paths = sorted(path for path in files(root, pattern) if "chat_utils" in path)
    for _ in (0, 1):
        for path in paths:
            run(path, space)
    space.setdefault("_KNOWN_CONTENT_PART_FIELDS", frozenset({"type", "text"}))
    parse = space.get("_parse_chat_message_content") or space["parse_chat_message_content"]
    config = type("Config", (), {"multimodal_config": None, "hf_config": None, "enable_prompt_embeds": False})()
    tracker = type("Tracker", (), {"model_config": config, "_model_config": config,
                                   "create_parser": lambda self, **kwargs: self, "mm_placeholder_storage": lambda self: {}})()
    models = pydantic.TypeAdapter(list[space["ChatCompletionMessageParam"]])

    def messages(given, form):
        read = [message for own in models.validate_python(given) for message in parse(own, tracker, form, False)]
        space["_postprocess_messages"](read)
        return read

    return messages


def sglang(root):
    space, folder = names(), os.path.join(root, "srt/entrypoints/openai")
    run(os.path.join(folder, "protocol.py"), space, until="ChatCompletionRequest")
    for name in ("Function", "Tool", "FunctionResponse", "ToolCall", "ChatCompletionMessageGenericParam", "ChatCompletionMessageUserParam"):
        space[name].model_rebuild(_types_namespace=space)
    run(os.path.join(root, "srt/parser/jinja_template_utils.py"), space, {"process_content_for_template_format"})
    run(os.path.join(folder, "serving_chat.py"), space,
        {"normalize_tool_content", "parse_tool_call_arguments", "normalize_assistant_tool_call_arguments"})
    models, own = pydantic.TypeAdapter(list[space["Tool"]]), pydantic.TypeAdapter(list[space["ChatCompletionMessageParam"]])

    def messages(given, form):
        """As `_apply_jinja_template` calls them."""
        read = [message.model_dump() for message in own.validate_python(given)]
        for message in read:
            space["normalize_assistant_tool_call_arguments"](message)
            message["content"] = "" if message.get("content") is None else message["content"]
        read = [space["process_content_for_template_format"](message, form, [], [], [], []) for message in read]
        for message in read:
            message["content"] = space["normalize_tool_content"](message["role"], message.get("content"))
        return read

    return (lambda tools: [tool.model_dump() for tool in models.validate_python(tools)]), messages


def main():
    found = re.compile(r"(vllm|sglang)-([\d.]+)$")
    order = lambda name: (found.match(name)[1] != "vllm", [int(part) for part in found.match(name)[2].split(".")])
    merged = {}
    for name in sorted(filter(found.match, os.listdir(sys.argv[1])), key=order):
        engine, version = found.match(name).groups()
        root = os.path.join(sys.argv[1], name, engine)
        tools, messages = {"vllm": vllm, "sglang": sglang}[engine](root)
        rows = [{"tools": given, "given": tools(copy.deepcopy(given))} for given in TOOLS]
        rows += [{"format": form, "messages": given, "given": messages(copy.deepcopy(given), form)}
                 for form in ("string", "openai") for given in MESSAGES]
        for row in rows:
            merged.setdefault((engine, json.dumps(row, ensure_ascii=False)), []).append(version)
    for (engine, row), versions in merged.items():
        print(json.dumps({"engine": engine, "versions": versions, **json.loads(row)}, ensure_ascii=False))


main()
