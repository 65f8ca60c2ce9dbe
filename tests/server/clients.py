#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The clients `openai` and `anthropic` with `winnow serve`, compared with llama.cpp's server without winnow: clients.py WINNOW PLAIN_SERVER

Streaming, tools, JSON schemas, further turns. What is not compressed must be what the plain server answers; with a policy the form must be. A model with random
weights calls no tool by itself: what is compared is how tools are written into the prompt and what comes back of an answer that has some.
"""
import json
import sys

from llama_server import TINY, Server, check, finish, ids

try:
    import anthropic
    import openai
except ImportError:
    print("skipped: the packages openai and anthropic are not installed (scripts/setup.sh clients installs them)")
    sys.exit(77)
winnow, plain = sys.argv[1], sys.argv[2]
model = f"{TINY}/chat/qwen2.5.gguf"
BOUND = 0.05  # two ways to compute the same logits of a model with random weights
long = " ".join(f"w{x}" for x in ids(300, 4))
tools = [{"type": "function", "function": {"name": "weather", "description": "The weather of a place",
                                            "parameters": {"type": "object", "properties": {"place": {"type": "string", "maxLength": 8}}, "required": ["place"]}}}]
schema = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": {
    "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}, "kind": {"enum": ["cat", "dog"]}}, "required": ["age", "kind"], "additionalProperties": False}}}


def base(s):
    return "http://%s:%d" % s.address()


def near(a, b):
    """Whether two lists of (token, logprob) agree until one where both choices are about as probable."""
    for (x, p), (y, q) in zip(a, b):
        if abs(p - q) > BOUND:
            return False
        if x != y:
            return True
    return bool(a) and bool(b)


def chat(client, content, field=None, **more):
    extra = {"ignore_eos": True, **({"winnow": field} if field else {})}
    return client.chat.completions.create(model="any", messages=[{"role": "user", "content": content}], temperature=0,
                                          **{"max_tokens": 12, **more}, extra_body=extra)


def with_openai(s, field=None, max_retries=0):
    """What a session with that client gives. Retries are for the plain server, which ends a connection after a stream without saying so."""
    client = openai.OpenAI(base_url=base(s) + "/v1", api_key="none", max_retries=max_retries)
    got = {}
    answer = chat(client, long, field, logprobs=True)
    got["answer"] = [(t.token, t.logprob) for t in answer.choices[0].logprobs.content]
    parts = list(chat(client, long, field, stream=True, stream_options={"include_usage": True}))
    got["stream"] = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    got["stream usage"] = [p.usage.completion_tokens for p in parts if p.usage]
    got["text"] = answer.choices[0].message.content
    got["json"] = json.loads(client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": long}], temperature=0, max_tokens=400, response_format=schema, extra_body={"winnow": field} if field else None).choices[0].message.content)
    call = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "weather?"}], temperature=0, max_tokens=400, tools=tools, tool_choice="required",
                                          extra_body={"winnow": field} if field else None).choices[0]
    got["tool"] = [(c.function.name, sorted(json.loads(c.function.arguments))) for c in call.message.tool_calls or []]
    turns = [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Oslo"}'}}]}, {"role": "tool", "tool_call_id": "1", "content": "rain"}]
    got["tool's answer"] = client.chat.completions.create(model="any", messages=turns, tools=tools, max_tokens=4, temperature=0, extra_body={"ignore_eos": True}).usage.completion_tokens
    response = client.responses.create(model="any", input=long, max_output_tokens=6, temperature=0, extra_body={"winnow": field} if field else None)
    got["response"] = response.status in ("completed", "incomplete") and len(response.output) > 0
    events = [e.type for e in client.responses.create(model="any", input="hello", max_output_tokens=6, temperature=0, stream=True)]
    got["response stream"] = (events[0], events[-1])
    got["models"] = len(client.models.list().data)
    try:
        chat(client, "x", {"policy": "none"} if field else None, max_tokens=2, response_format={"type": "none"})
        got["error"] = "none"
    except openai.APIStatusError as error:
        got["error"] = type(error).__name__
    return got


def with_anthropic(s, field=None, max_retries=0):
    client = anthropic.Anthropic(base_url=base(s), api_key="none", max_retries=max_retries)
    extra = {"temperature": 0, **({"winnow": field} if field else {})}
    got = {}

    def ask(content, **more):
        return client.messages.create(model="any", messages=[{"role": "user", "content": content}], **{"max_tokens": 10, **more}, extra_body=extra)
    answer = ask(long, system="Be brief.")
    got["text"] = "".join(b.text for b in answer.content if b.type == "text")
    got["usage"] = answer.usage.output_tokens
    with client.messages.stream(model="any", max_tokens=10, system="Be brief.", messages=[{"role": "user", "content": long}], extra_body=extra) as stream:
        got["stream"] = "".join(stream.text_stream)
        got["stop"] = stream.get_final_message().stop_reason
    call = ask("weather?", max_tokens=400, tool_choice={"type": "any"}, tools=[{"name": "weather", "description": "The weather", "input_schema": tools[0]["function"]["parameters"]}])
    got["tool"] = [(b.name, sorted(b.input)) for b in call.content if b.type == "tool_use"]
    got["count"] = client.messages.count_tokens(model="any", messages=[{"role": "user", "content": long}]).input_tokens
    return got


with Server([plain, "-m", model, "-c", "16384", "-np", "4", "-kvu", "-b", "512", "-t", "1", "--cache-ram", "0", "--port", "0", "--host", "127.0.0.1"]) as s:
    want, want_messages = with_openai(s, max_retries=2), with_anthropic(s, max_retries=2)
with Server([winnow, "serve", "-m", model, "--port", "0", "--policy", "full", "--", "-t", "1"]) as s:
    got, got_messages = with_openai(s), with_anthropic(s)
    policy = {"policy": "keydiff", "budget": 120}
    before = s.ask("/winnow/kv").json["compressions"]
    kept, kept_messages = with_openai(s, policy), with_anthropic(s, policy)
    check("with a policy prompts are compressed", s.ask("/winnow/kv").json["compressions"] >= before + 3, s.ask("/winnow/kv").json)
for name, x in want.items():
    if name == "answer":
        check("openai: the answer is the plain server's", near(x, got[name]), x, got[name])
    elif name in ("text", "stream"):
        check(f"openai: {name}", got[name] == x or not near(want["answer"], got["answer"]) or [t for t, _ in want["answer"]] != [t for t, _ in got["answer"]], x, got[name])
    elif name == "json":
        check("openai: a JSON schema is kept", all(sorted(y["json"]) == ["age", "kind"] and 0 <= y["json"]["age"] <= 99 and y["json"]["kind"] in ("cat", "dog")
                                                    for y in (want, got, kept)), x, got[name], kept[name])
    else:
        check(f"openai: {name} as the plain server", got[name] == x, x, got[name])
        if name not in ("error",):
            check(f"openai: {name} with a policy", kept[name] == x, x, kept[name])
# The second request about a compressed prompt begins with what was kept, and may answer differently than the first.
check("openai: a stream is the answer", all(y["stream"] == y["text"] for y in (want, got)), got)
check("openai: an unknown policy is a client's fault", kept["error"] == "BadRequestError", kept["error"])
for name, x in want_messages.items():
    check(f"anthropic: {name} as the plain server", got_messages[name] == x, x, got_messages[name])
    if name not in ("text", "stream", "usage", "stop"):
        check(f"anthropic: {name} with a policy", kept_messages[name] == x, x, kept_messages[name])
check("anthropic: a stream is the answer", all(y["stream"] == y["text"] for y in (want_messages, got_messages)), got_messages)
finish()
