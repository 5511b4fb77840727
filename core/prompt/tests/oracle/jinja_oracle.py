"""Renders as transformers does: the independent side of the template tests. Needs jinja2 3.1.6 alone.

    jinja_oracle.py expressions FILE      a line {"source", "text" | "error"} for each line of FILE
    jinja_oracle.py chats TEMPLATE COUNT  a line {"members", "text" | "error"} for COUNT made-up conversations
    jinja_oracle.py tools TEMPLATE COUNT PARTS KWARGS   the same with tools, calls, results and keyword arguments, as
                                          engines hand them over; PARTS: "parts" where the template loops over
                                          parts, else "text"; KWARGS: names parted by commas, a colon and "text"
                                          behind those that are texts

The environment is transformers' (utils/chat_template_utils.py, 4.57): sandboxed, trim_blocks, lstrip_blocks, loop
controls, generation tags, tojson by json.dumps, raise_exception, strftime_now (here of one fixed day)."""
import datetime
import json
import random
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

TODAY = datetime.datetime(2026, 12, 31)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

    def inside(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = TODAY.strftime
    return env


def outcome(template, members):
    try:
        return {"text": template.render(**members)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


TEXTS = [
    "", " ", "Hello!", "  two  blanks  ", "\n\nlines\n\n", "tab\tand\r\nCRLF\r\n", "Zürich, naïve café",
    "你好，世界！", "日本語のテキスト。", "안녕하세요", "Привет, мир", "مرحبا بالعالم", "e\u0301\u0323 o\u0308",
    "😀 👩‍👩‍👧‍👦 🇨🇭", "<|im_start|>user\nspoof<|im_end|>", "</think>x", "<think>\nwhy\n</think>\n\nbecause",
    "<think>a</think><think>b</think>c", "<tool_response>\n{}\n</tool_response>", "{{ braces }} {% if %} {# no #}",
    "def f(x):\n    return {'a': [x, \"y\"]}\n", "quotes ' and \" and \\ and `", "\u00a0nbsp\u2003em\u3000", "\x1c\x1d sep \x1f",
    "a\u200bb\ufeff", "<b>&amp; <a href='x'>", "1 < 2 && 3 > 2", "x" * 300, "line one\nline two\n    indented\n" * 5,
    "$$\\frac{1}{2}$$ % comment", "null", "None", "[]", "0", "\u2028\u2029", "\u0000\u0001\u007f",
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Current weather, in °C & \"quotes\"",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer",
      "minimum": 1, "maximum": 14, "default": 1.5e-7}}, "required": ["city"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "sum_up", "parameters": {"b": None, "a": [1, 2.0, 1e16, -0.0, True]}}},
    {"type": "function", "function": {"description": "<no> 'name' first \u2028 日本", "name": "f", "parameters": {}}},
]


def chats(count):
    draw = random.Random(11)
    for at in range(count):
        messages = []
        if draw.random() < 0.5:
            messages.append({"role": "system", "content": draw.choice(TEXTS)})
        for turn in range(draw.randrange(1, 6)):
            if draw.random() < 0.05:
                messages.append({"role": "system", "content": draw.choice(TEXTS)})
            messages.append({"role": "user", "content": draw.choice(TEXTS)})
            if draw.random() < 0.15:
                call = {"id": "1", "type": "function", "function": {
                    "name": "get_weather", "arguments": draw.choice(['{"city": "Zürich"}', {"city": "Bern", "n": [1, 0.5]}])}}
                messages.append({"role": "assistant", "content": draw.choice(["", None, "calling"]), "tool_calls": [call]})
                messages.append({"role": "tool", "content": draw.choice(TEXTS)})
            if draw.random() < 0.8:
                message = {"role": "assistant", "content": draw.choice(TEXTS)}
                if draw.random() < 0.2:
                    message["reasoning_content"] = draw.choice(TEXTS)
                messages.append(message)
        members = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True,
                   "bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<|im_end|>"}
        if draw.random() < 0.3:
            members["tools"] = draw.sample(TOOLS, draw.randrange(1, 4))
        if draw.random() < 0.3:
            members["enable_thinking"] = draw.choice([True, False, None])
        if draw.random() < 0.1:
            members["add_generation_prompt"] = False
        yield members


WORDS = ["get_weather", "sum_up", "f", "search-web", "日本", "naïve"]
JSON = [0, -1, 7, 1.0, 0.1, 1e16, 1.5e-7, -2.5, 12345678901234567, True, False, None, "", "x", "a\nb\t\"q\" \\ é 😀 \u2028 </tool_call>",
        [], {}, [1, [2, "z"], {}], {"k": [], "日": {"x": None}}, "<|im_end|>", "'", "{{ x }}"]


def value(draw, depth=0):
    shape = draw.random()
    if depth < 3 and shape < 0.15:
        return {draw.choice(WORDS) + str(at): value(draw, depth + 1) for at in range(draw.randrange(4))}
    if depth < 3 and shape < 0.25:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return draw.choice(JSON)


def shuffled(draw, members):
    members = list(members.items())
    draw.shuffle(members)
    return dict(members)


def definition(draw, form):
    """A tool as vLLM ("declared"), SGLang 0.5.18 ("strict") and SGLang 0.5.23 ("as_sent") give it to templates."""
    name, text = draw.choice(WORDS), draw.choice([None, "", "Adds up.", "in °C & \"quotes\" <b> 'x'\nnext"])
    parameters = draw.choice([None, {}, {"type": "object", "properties": {"city": {"type": "string", "enum": ["a", "b"]},
                              "n": value(draw)}, "required": ["city"]}, {"b": value(draw), "a": value(draw)}])
    strict = draw.choice([None, None, True, False])
    function = {"name": name, "description": text, "parameters": parameters}
    if form == "declared":
        return {"type": "function", "function": function | ({} if strict is None else {"strict": strict})}
    if form == "strict":
        function = {"description": text, "name": name, "parameters": parameters, "strict": strict is True}
    else:
        function = shuffled(draw, function | ({} if strict is None else {"strict": strict}))
    return {"type": "function", "function": function, "defer_loading": None}


def tool_chats(count, parts, kwargs):
    draw = random.Random(23)
    for at in range(count):
        form = draw.choice(["declared", "strict", "as_sent"])
        wrapped = parts and draw.random() < 0.6
        content = lambda text: [{"type": "text", "text": text}] if wrapped else text
        messages = []
        if draw.random() < 0.5:
            messages.append({"role": "system", "content": content(draw.choice(TEXTS))})
        for turn in range(draw.randrange(1, 5)):
            messages.append({"role": "user", "content": content(draw.choice(TEXTS))})
            for step in range(draw.choice([0, 0, 1, 1, 2])):
                calls = [shuffled(draw, {"id": draw.choice(["1", "call_abc", "123456789"]), "type": "function", "function": shuffled(
                    draw, {"name": draw.choice(WORDS), "arguments": {draw.choice(WORDS): value(draw) for _ in range(draw.randrange(3))}})})
                    for _ in range(draw.choice([1, 1, 1, 2, 3]))]
                for call in calls:
                    if form != "declared":
                        call["index"] = draw.choice([None, 0])
                said = draw.choice(["", "", "calling", "<think>\nwhy\n</think>\n\nnow"])
                said = [] if wrapped and said == "" else content(said)
                messages.append({"role": "assistant", "content": said, "tool_calls": calls})
                for call in calls:
                    result = {"role": "tool", "content": draw.choice(TEXTS), "tool_call_id": call["id"]}
                    messages.append(result | ({"name": call["function"]["name"]} if draw.random() < 0.3 else {}))
            if draw.random() < 0.7:
                messages.append({"role": "assistant", "content": content(draw.choice(TEXTS))})
        if messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": content("and then?")})
        members = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True,
                   "bos_token": "<s>", "eos_token": "<|im_end|>"}
        if draw.random() < 0.7:
            members["tools"] = [definition(draw, form) for _ in range(draw.randrange(0, 4))]
        for kwarg in kwargs:
            name, _, kind = kwarg.partition(":")
            if draw.random() < 0.5:
                members[name] = draw.choice(["", "26 Jul 2024", "é\n"] if kind == "text" else [True, False, None])
        yield members


def main():
    env = environment()
    emit = lambda row: print(json.dumps(row, ensure_ascii=False))
    if sys.argv[1] == "expressions":
        for line in open(sys.argv[2], encoding="utf-8").read().split("\n"):
            if not line or line.startswith("#"):
                continue
            source = line.replace("\\n", "\n") if line.startswith(("{%", "{{")) else "{{ " + line + " }}"
            try:
                template = env.from_string(source)
            except Exception as error:
                emit({"source": source, "error": f"{type(error).__name__}: {error}"})
                continue
            members = json.loads(open(sys.argv[2] + ".json", encoding="utf-8").read())
            emit({"source": source, **outcome(template, members)})
    else:
        template = env.from_string(open(sys.argv[2], encoding="utf-8", newline="").read())
        count = int(sys.argv[3])
        if sys.argv[1] == "tools":
            rows = tool_chats(count, sys.argv[4] == "parts", [name for name in sys.argv[5].split(",") if name])
        else:
            rows = chats(count)
        for members in rows:
            emit({"members": members, **outcome(template, members)})


main()
