#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tools and JSON schemas of a trained model, with `winnow serve` and with llama.cpp's server without winnow: formats.py WINNOW PLAIN_SERVER [MODEL]

The same prompts through the clients `openai` and `anthropic`, whole and in streams. With everything kept the answers are the plain server's, up to the first token for which
both have two choices that are as good: winnow's attention and products round differently than ggml's, which moves log-probabilities. Where an answer differs for that, the test says at
which token and by how much. With a policy, JSON must fit its schema, and calls must parse.

clients.py has the other parts of both interfaces, on a model with random weights, which calls no tools.
"""
import itertools
import json
import os
import sys

from llama_server import TINY, Server, check, finish

try:
    import anthropic
    import openai
except ImportError:
    print("skipped: the packages openai and anthropic are not installed (scripts/setup.sh clients installs them)")
    sys.exit(77)
winnow, plain = sys.argv[1], sys.argv[2]
model = sys.argv[3] if len(sys.argv) > 3 else os.path.join(TINY, "..", "smollm2-135m.gguf")
# The default model's own template writes no tools.
template = ["--chat-template-file", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chat", "qwen2.5.jinja")]
# How far log-probabilities of the same tokens may differ on average: single ones that a grammar forces are improbable, and other CPUs round otherwise. Weights of 4 bits multiply what was rounded to 8, so a last bit of attention can become a step of that rounding.
BOUND = 1.0

ABOUT = ("Anna Berg is thirty-four years old. She lives in Oslo with her two cats and an old dog, in a house by the harbour that her grandmother built. In the mornings she "
         "repairs boats, and in the afternoons she teaches children to sail. On Fridays she takes the ferry to the islands, where her brother Lars keeps bees and sells honey to "
         "those who come by. She has been asked more than once to write a book about the boats of the harbour, and has begun it twice. ")
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age", "pets"], "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "pets": {"type": "array", "items": {"enum": ["cat", "dog", "bee"]}, "maxItems": 3}}}
TOOLS = {"forecast": ("Gives the weather of a town for some days.", {"type": "object", "required": ["town", "days"], "properties": {
    "town": {"type": "string", "maxLength": 16}, "days": {"type": "integer", "minimum": 1, "maximum": 7}}})}


def asked(town, days):
    return f"What will the weather be in {town} in the next {days} days?"


def example(town, days):
    return ("<|im_end|>\n<|im_start|>user\n" + asked(town, days) + "<|im_end|>\n<|im_start|>assistant\n<tool_call>\n" +
            json.dumps({"name": "forecast", "arguments": {"town": town, "days": days}}) + "\n</tool_call>")


# A small model calls what it has seen called. Turns in the system message are part of the header, which no policy touches.
SYSTEM = "You call tools." + example("Bergen", 2) + example("Paris", 5)
FOR_TEXT = [{"role": "user", "content": ABOUT + "Where does Anna live? Answer in one sentence."}]
FOR_JSON = [{"role": "user", "content": ABOUT + "Describe Anna as JSON with her name, age and pets."}]
FOR_TOOL = [{"role": "user", "content": ABOUT}, {"role": "assistant", "content": "I see."}, {"role": "user", "content": asked("Oslo", 3)}]


def fits(schema, x):
    """Whether a value is what a schema of the kinds above describes."""
    if "enum" in schema:
        return x in schema["enum"]
    if schema["type"] == "string":
        return isinstance(x, str) and len(x) <= schema["maxLength"]
    if schema["type"] == "integer":
        return type(x) is int and schema["minimum"] <= x <= schema["maximum"]
    if schema["type"] == "array":
        return isinstance(x, list) and len(x) <= schema["maxItems"] and all(fits(schema["items"], y) for y in x)
    return isinstance(x, dict) and set(schema["required"]) <= set(x) <= set(schema["properties"]) and all(fits(schema["properties"][k], y) for k, y in x.items())


def is_json(text):
    try:
        return fits(SCHEMA, json.loads(text))
    except ValueError:
        return False


def is_call(calls):
    """Whether calls name existing tools, with arguments that these take."""
    return bool(calls) and all(name in TOOLS and fits(TOOLS[name][1], arguments) for name, arguments in calls)


class Answer:
    """What came: text, tool calls as (name, arguments), why it ended, and where they are to be had tokens with log-probabilities."""

    def __init__(self, text, calls, end, tokens=()):
        self.text, self.end, self.tokens = text or "", end, [(t.token, t.logprob) for t in tokens]
        self.calls = [(name, json.loads(arguments) if isinstance(arguments, str) else arguments) for name, arguments in calls]

    def __repr__(self):
        return repr((self.text, self.calls, self.end))

    def __eq__(self, other):
        return (self.text, self.calls) == (other.text, other.calls)


class Asker:
    """A server with both clients. Nothing of an earlier prompt is left when it is asked: so the same is computed each time."""

    def __init__(self, s, field=None):
        base = "http://%s:%d" % s.address()
        self.s, self.extra = s, {"temperature": 0, **({"winnow": field} if field else {})}
        self.openai = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)

    def forget(self):
        check("a slot is erased", self.s.ask("/slots/0?action=erase", "{}").status == 200)

    def chat(self, turns, stream, tokens, system=None, **more):
        self.forget()
        messages = [*([{"role": "system", "content": system}] if system else []), *turns]
        more["logprobs"] = not (stream and "tools" in more)  # both together the server refuses
        r = self.openai.chat.completions.create(model="any", messages=messages, max_tokens=tokens, stream=stream, extra_body=self.extra, **more)
        if not stream:
            c = r.choices[0]
            return Answer(c.message.content, [(t.function.name, t.function.arguments) for t in c.message.tool_calls or []], c.finish_reason, c.logprobs.content)
        text, calls, end, probs = "", {}, None, []
        for c in (part.choices[0] for part in r if part.choices):
            text += c.delta.content or ""
            for t in c.delta.tool_calls or []:
                name, arguments = calls.get(t.index, ("", ""))
                calls[t.index] = (name + (t.function.name or ""), arguments + (t.function.arguments or ""))
            end = c.finish_reason or end
            probs += c.logprobs.content if c.logprobs else []
        return Answer(text, [calls[i] for i in sorted(calls)], end, probs)

    def message(self, turns, stream, tokens, **more):
        self.forget()
        body = {"model": "any", "messages": turns, "max_tokens": tokens, "extra_body": self.extra, **more}
        if stream:
            with self.anthropic.messages.stream(**body) as events:
                r = events.get_final_message()
        else:
            r = self.anthropic.messages.create(**body)
        return Answer("".join(b.text for b in r.content if b.type == "text"), [(b.name, b.input) for b in r.content if b.type == "tool_use"], r.stop_reason)


FORMS = ("json", "call", "message's call")  # what has to be of a form
CHATS = ("text", "json", "call", "offered")


def ask_all(a, names=None, streams=()):
    """What a server answers, by the name of the question; of some the stream as well."""
    tools = [{"type": "function", "function": {"name": name, "description": about, "parameters": of}} for name, (about, of) in TOOLS.items()]
    theirs = [{"name": name, "description": about, "input_schema": of} for name, (about, of) in TOOLS.items()]
    schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}
    questions = {"text": (a.chat, FOR_TEXT, 24, {}), "json": (a.chat, FOR_JSON, 200, {"response_format": schema}),
                 "call": (a.chat, FOR_TOOL, 100, {"system": SYSTEM, "tools": tools, "tool_choice": "required", "parallel_tool_calls": False}),
                 "offered": (a.chat, FOR_TOOL, 100, {"system": SYSTEM, "tools": tools}),
                 "message": (a.message, FOR_TEXT, 24, {}),
                 "message's call": (a.message, FOR_TOOL, 100, {"system": SYSTEM, "tools": theirs, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}})}
    return {(name, how): ask(what, how == "stream", tokens, **more) for name, (ask, what, tokens, more) in questions.items()
            for how in ("whole", "stream") if name in (names or questions) and (how == "whole" or name in streams)}


def check_forms(who, of):
    ends = {"json": "stop", "call": "tool_calls", "message's call": "tool_use"}
    same = {"message": "text", "message's call": "call"}
    for (name, how), x in of.items():
        if name in FORMS:
            check(f"{who}: {name} has its form, {how}", (is_json(x.text) if name == "json" else is_call(x.calls)) and x.end == ends[name], x)
        if how == "stream":
            whole = of[name, "whole"]
            check(f"{who}: a stream of {name} is the whole answer", x == whole and x.end == whole.end, x, whole)
            # White space that nothing follows is not sent.
            check(f"{who}: a stream of {name} has its tokens", x.tokens == whole.tokens[:len(x.tokens)], x.tokens, whole.tokens)
        if name in same and (same[name], how) in of:
            check(f"{who}: {name} is that of the other interface, {how}", x == of[same[name], how], x, of[same[name], how])
        check(f"{who}: {name} has calls that parse, if any, {how}", not x.calls or is_call(x.calls), x)


def check_same(want, got):
    """Compares answers token by token. A token may be another one if it is as probable; then the rest is another answer."""
    n_same = 0
    for key, x in want.items():
        y = got[key]
        n_same += x == y
        apart = [abs(p - q) for (_, p), (_, q) in itertools.takewhile(lambda two: two[0][0] == two[1][0], zip(x.tokens, y.tokens))]
        check(f"log-probabilities of {key[0]}", sum(apart) <= BOUND * len(apart), apart)
        for i, ((a, p), (b, q)) in enumerate(zip(x.tokens, y.tokens)):
            if a != b:
                check(f"{key[0]}: another token {i} is as probable", abs(p - q) <= BOUND, (a, p), (b, q))
                print(f"{key[0]}: token {i} is {b!r} with log-probability {q:.3f}, and of the plain server {a!r} with {p:.3f}: both are as good")
                break
        else:
            check(f"{key[0]} is the plain server's", x == y and x.end == y.end and x.tokens, x, y)
    print(f"{n_same} of {len(want)} answers are the plain server's, word for word")


rest = ["-t", "1", *template]
with Server([plain, "-m", model, "-c", "4096", "-np", "1", "-b", "512", "--cache-ram", "0", "--slot-save-path", "/proc", "--port", "0", "--host", "127.0.0.1", *rest]) as s:
    want = ask_all(Asker(s), CHATS)
check_forms("plain", want)
with Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "1", "--policy", "full", "--", *rest]) as s:
    got = ask_all(Asker(s), streams=(*FORMS, "text", "message"))
    check_forms("full", got)
    check_same(want, got)
    check("nothing was compressed", s.ask("/winnow/kv").json["compressions"] == 0)
    kept = ask_all(Asker(s, {"policy": "snapkv", "ratio": 0.5}), FORMS, ("call",))  # streams of all forms are above
    check("every prompt was compressed", s.ask("/winnow/kv").json["compressions"] == len(kept), s.ask("/winnow/kv").json)
    check_forms("half kept", kept)
    print("half kept:", *(kept[name, "whole"] for name in FORMS))
finish()
