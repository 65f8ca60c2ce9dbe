#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bodies of requests to `winnow serve`: what they may take, and how a client's mistake is said: bodies.py WINNOW"""
import json
import random
import sys

from llama_server import TINY, Server, check, finish, ids, until

winnow = sys.argv[1]
MIB = 1 << 20


def serve(*options, model=f"{TINY}/tiny-llama.gguf"):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--policy", "keydiff", "--budget", "100", *options, "--", "-t", "1"])


def memory(s, what):
    with open(f"/proc/{s.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(what))


def peak(s, path, body):
    """Bytes that the process had at most for a body, above what it had before."""
    with open(f"/proc/{s.process.pid}/clear_refs", "w", encoding="ascii") as f:
        f.write("5")
    before = memory(s, "VmHWM")
    reply = s.ask(path, body)
    return memory(s, "VmHWM") - before, reply


def said_well(name, reply, statuses=(400,)):
    """An error in our words: 400, a sentence, and no marks of a JSON library."""
    try:
        error = reply.json["error"]
        good = reply.status in statuses and error["code"] == reply.status and len(error["message"]) > 10
    except (ValueError, KeyError, TypeError):
        good = False
    check(name, good and "json.exception" not in reply.text and "parse error" not in reply.text, reply.status, reply.text[:400])


with serve() as s:
    s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 2})
    # Memory: a body is in memory three times before it is looked at, and at most two more of it come to that. No judgement is a number of seconds.
    idle = memory(s, "VmRSS")
    for n in (8, 24):
        for name, path, body in (("text", "/completion", b'{"prompt":"' + b"a" * (n * MIB) + b'","n_predict":1}'),
                                 ("objects", "/v1/chat/completions", b'{"messages":[' + b"{}," * (n * MIB // 3) + b"{}]}"),
                                 ("arrays", "/completion", b'{"prompt":"x","y":[' + b"[]," * (n * MIB // 3) + b'[]],"n_predict":1}'),
                                 ("numbers", "/completion", b'{"prompt":[' + b"1," * (n * MIB // 2) + b'1],"n_predict":1}'),
                                 ("keys", "/v1/messages", b'{"messages":[],' + b",".join(b'"k%d":{}' % i for i in range(n * MIB // 13)) + b"}"),
                                 ("texts", "/v1/responses", b'{"input":[' + b'"",' * (n * MIB // 3) + b'""]}'),
                                 ("nulls", "/tokenize", b'{"content":[' + b"null," * (n * MIB // 5) + b"1]}"),
                                 ("a grammar", "/completion", b'{"prompt":"x","grammar":"root ::= ' + b"(" * (n * MIB) + b'"}'),
                                 ("brackets", "/apply-template", b"[" * (n * MIB)),
                                 ("escapes", "/completion", b'{"prompt":"' + b"\\u0041" * (n * MIB // 6) + b'"}')):
            took, r = peak(s, path, body)
            check(f"{n} MiB of {name} take five times that at most", took <= 5 * len(body) + 4 * MIB, took // MIB, r.text[:200])
            said_well(f"{n} MiB of {name}", r)
    check("memory goes back", until(lambda: memory(s, "VmRSS") < idle + 16 * MIB), memory(s, "VmRSS") // MIB, idle // MIB)
    check("a body of more than 64 MiB", s.ask("/v1/chat/completions", b" " * (64 * MIB + 1)).status == 413)

    # What is no body, on every route.
    messages = [{"role": "user", "content": "w1 w2"}]
    routes = {"/completion": {"prompt": "w1"}, "/completions": {"prompt": "w1"}, "/v1/completions": {"prompt": "w1"}, "/chat/completions": {"messages": messages}, "/v1/chat/completions": {"messages": messages},
              "/v1/messages": {"messages": messages}, "/v1/responses": {"input": "w1"}, "/responses": {"input": "w1"}, "/infill": {"input_prefix": "w1", "input_suffix": "w2"}, "/tokenize": {"content": "w1"},
              "/detokenize": {"tokens": [1]}, "/apply-template": {"messages": messages}, "/v1/messages/count_tokens": {"messages": messages}, "/v1/chat/completions/input_tokens": {"messages": messages},
              "/v1/responses/input_tokens": {"input": "w1"}, "/v1/chat/completions/control": {"id": "x", "action": "reasoning_end"}, "/v1/streams/lookup": {}}
    for path, body in routes.items():
        text = json.dumps(body)
        for name, bad in {"none": b"", "cut": text[:-1], "a number": "7", "text": "hello", "Latin-1": text.replace("w1", "\xe9").encode("latin-1") if "w1" in text else b"\xff", "deep": "[" * 5000,
                          "deep in a field": text[:-1] + ("," if body else "") + '"y":' + '{"a":' * 300 + "1" + "}" * 301, "a key twice": text[:-1] + ("," if body else "") + '"y":{"a":1,"a":2}}',
                          "two": text + text, "NaN": text[:-1] + ("," if body else "") + '"y":NaN}', "too large a number": text[:-1] + ("," if body else "") + '"y":123456789012345678901234567890}'}.items():
            said_well(f"{path}: {name}", s.ask(path, bad if isinstance(bad, bytes) else bad.encode()), (400, 501))

    # Values of other types in every field that is read: never 500, never the library's text.
    values = [None, True, -1, 1.5, 2**40, 10**18, "", "x", [], [None], ["x"], [[1]], {}, {"a": None}, [{}], [{"role": 5}], {"type": 5}]
    fields = ["prompt", "messages", "input", "system", "tools", "tool_choice", "response_format", "json_schema", "grammar", "stop", "logit_bias", "samplers", "response_fields", "lora", "n_predict", "max_tokens", "n", "n_probs", "logprobs",
              "top_logprobs", "seed", "temperature", "top_k", "mirostat", "cache_prompt", "id_slot", "stream_options", "chat_template_kwargs", "reasoning_format", "reasoning_effort", "continue_final_message", "add_generation_prompt",
              "dry_sequence_breakers", "preserved_tokens", "grammar_triggers", "chat_parser", "chat_format", "message_delimiters", "thinking", "reasoning", "metadata", "instructions", "text", "content", "tokens", "winnow", "filename",
              "reasoning_budget_end_tags", "speculative.type", "parallel_tool_calls", "n_discard", "t_max_predict_ms", "n_keep", "repeat_last_n"]
    choice = random.Random(7)
    for path, body in routes.items():
        for field in fields:
            for value in choice.sample(values, 5):
                r = s.ask(path, {**body, "max_tokens": 1, field: value} if path != "/infill" else {**body, field: value})
                if r.status not in (200, 501):
                    said_well(f"{path}: {field} = {value}", r)
    # Messages and their parts.
    for path in ("/v1/chat/completions", "/v1/messages", "/apply-template", "/v1/messages/count_tokens"):
        for message in (5, None, "x", [], {}, {"role": "user"}, {"role": 5, "content": "x"}, {"role": "user", "content": 5}, {"role": "user", "content": [5]}, {"role": "user", "content": [{"type": 5}]}, {"role": "user", "content": [{"type": "text", "text": 5}]},
                        {"role": "user", "content": {}}, {"role": "assistant", "tool_calls": 5}, {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}, {"role": "tool", "content": "x", "tool_call_id": 5},
                        {"role": "user", "content": [{"type": "image_url", "image_url": 5}]}, {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": 5}}]}):
            r = s.ask(path, {"messages": [message], "max_tokens": 1})
            if r.status != 200:
                said_well(f"{path}: {message}", r)

    # Grammars and schemas that would end the server, or stop it for all.
    nest = {}
    for _ in range(60):
        nest = {"type": "object", "properties": {"a": nest}}
    twice = {}
    for _ in range(25):
        twice = {"type": ["object", "array", "string"], "properties": {"a": twice}}
    schemas = {"deep": nest, "doubled at each level": twice, "a long text": {"type": "string", "minLength": 10**9}, "a long list": {"type": "array", "items": {"type": "string"}, "maxItems": 10**9},
               "many values": {"enum": list(range(50000))}, "many properties": {"type": "object", "properties": {f"p{i}": {} for i in range(3000)}},
               "a reference to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "all of itself": {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
               "ways that multiply": {"$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(28)} | {"d28": {"type": "null"}}, "$ref": "#/$defs/d0"},
               "a long name": {"type": "object", "properties": {"\u00e9" * 200000: {}}}, "a long pattern": {"type": "string", "pattern": "^" + "(a|b)" * 20000 + "$"}}
    for name, schema in schemas.items():
        for path, body in (("/completion", {"prompt": "w1", "json_schema": schema}), ("/v1/chat/completions", {"messages": messages, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}),
                           ("/v1/chat/completions", {"messages": messages, "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}),
                           ("/v1/messages", {"messages": messages, "max_tokens": 2, "tools": [{"name": "f", "input_schema": schema}]}), ("/v1/responses", {"input": "w1", "tools": [{"type": "function", "name": "f", "parameters": schema}]}),
                           ("/apply-template", {"messages": messages, "json_schema": schema}), ("/v1/messages/count_tokens", {"messages": messages, "tools": [{"name": "f", "input_schema": schema}]})):
            said_well(f"{path}: a schema: {name}", s.ask(path, body))
    grammars = {"groups": "root ::= " + "(" * 60000 + '"a"' + ")" * 60000, "groups that may be nothing": "root ::= " + "(" * 20000 + '"a"' + ")?" * 20000, "alternatives": "root ::= " + " | ".join(['"a"'] * 50000),
                "repetitions": 'root ::= "' + "a" * 1000 + '"{2000} "' + "b" * 1000 + '"{2000}', "repetitions of repetitions": 'root ::= ((("a"{2000}){2000}){2000}){2000}' + '"a"{0,2000}' * 40, "a number": 'root ::= "a"{1000000000}',
                "ways that multiply": "\n".join(f"{'root' if i == 0 else f'r{i}'} ::= " + (f"r{i + 1}? " * 10 if i < 9 else '"a"') for i in range(10)), "rules": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(60000)),
                "rules that begin with themselves": 'root ::= root "a"', "nothing": "\n\n#", "no end": 'root ::= "a', "no rule of that name": "root ::= x", "another reader's": "%llguidance {}"}
    for name, grammar in grammars.items():
        for path, body in (("/completion", {"prompt": "w1", "n_predict": 1}), ("/v1/chat/completions", {"messages": messages, "max_tokens": 1})):
            said_well(f"{path}: a grammar: {name}", s.ask(path, {**body, "grammar": grammar}))
    # Others are followed.
    r = s.ask("/completion", {"prompt": "w1", "n_predict": 400, "json_schema": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": False}})
    check("a schema is followed", r.status == 200 and set(json.loads(r.json["content"])) == {"a", "b"}, r.text[:300])
    r = s.ask("/completion", {"prompt": "w1", "n_predict": 20, "grammar": 'root ::= ("ab" | "c"){2,3} "d"'})
    check("a grammar is followed", r.status == 200 and r.json["content"].endswith("d"), r.text[:300])
    r = s.ask("/completion", {"prompt": "w1", "n_predict": 3, "repeat_last_n": 2**31 - 1, "dry_multiplier": 1, "dry_penalty_last_n": 2**31 - 1, "ignore_eos": True})
    check("a sampler that would keep all tokens", r.status == 200 and memory(s, "VmRSS") < idle + 64 * MIB, r.text[:300])
    check("the server goes on", s.process.poll() is None and s.ask("/completion", {"prompt": ids(300, 1), "n_predict": 2}).status == 200, s.log()[-2000:])
finish()
