#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Conversations of `winnow serve` that are longer than the context: room.py WINNOW

Room is made in the middle, and nothing of what is there is read again; an answer goes on past the end of the context. What cannot be
shortened is refused, as by a server without it.
"""
import json
import os
import sys
import tempfile

from llama_server import TINY, Server, at_once, check, finish, ids, nearly_same

winnow = sys.argv[1]
CONTEXT = 512
CLOSE = 0.02  # the same tokens, in other batches


def serve(*options, slots=1, context=CONTEXT, model="tiny-llama.gguf", policy=("--policy", "keydiff", "--ratio", "0.5"), rest=()):
    return Server([winnow, "serve", "-m", f"{TINY}/{model}", "--port", "0", "--slots", str(slots), "--context", str(context), *policy, *options, "--", "-t", "1", *rest])


def kv(s):
    return s.ask("/winnow/kv").json


def slot(s, i=0):
    return kv(s)["slots"][i]


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def chat(s, messages, tokens=6, **more):
    return s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more})


def removed(reply):
    return int(reply.headers.get("X-Winnow-Removed", 0))


def usages(reply):
    """The usage of each event that has one, but for Anthropic's first, which comes before the answer."""
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    found = [e.get("usage") or (e.get("response") or {}).get("usage") for e in events]
    return [u for u in found if u]


# A conversation of ten times the context: each turn reads what is new alone, memory is flat.
with serve() as s:
    messages = [{"role": "system", "content": words(8, 1)}]
    total, read, most, replies = 0, [], 0, []
    while total < 10 * CONTEXT:
        messages.append({"role": "user", "content": words(12, 100 + len(messages))})
        a = chat(s, messages)
        check("a long conversation is answered", a.status == 200, a.text[:300])
        if a.status != 200:
            break
        total = a.json["usage"]["total_tokens"]
        read.append((a.json["timings"]["prompt_n"], total))
        most = max(most, kv(s)["bytes"])
        replies.append(a)
        messages.append({"role": "assistant", "content": a.json["choices"][0]["message"]["content"] or "."})
    steps = [n for n, _ in read[1:]]
    check("each turn reads what is new alone", max(steps) < CONTEXT // 3, read)
    check("memory is flat", most <= CONTEXT * kv(s)["bytes_of_a_token"] * 1.1, most, kv(s))
    check("the slot holds no more than the context", slot(s)["tokens"] <= CONTEXT and slot(s)["removed"] > 8 * CONTEXT, slot(s))
    check("a header says how much is gone", removed(replies[0]) == 0 and removed(replies[-1]) > 8 * CONTEXT, replies[-1].headers)
    check("and so does usage", replies[-1].json["usage"]["winnow"]["removed"] == removed(replies[-1]) and "winnow" not in replies[0].json["usage"], replies[-1].json["usage"])
    page = s.ask("/winnow/page?slot=0")
    check("the page of the slot", page.status == 200, page.text[:200])
    # A shorter prefix of it: what is left of that prefix is there, the rest is read.
    a = chat(s, messages[:len(messages) // 2])
    check("going back to an earlier turn", a.status == 200 and a.json["timings"]["prompt_n"] < CONTEXT, a.text[:300])
    a = chat(s, [{"role": "user", "content": words(20, 5)}])
    check("another conversation has nothing removed", a.status == 200 and removed(a) == 0 and "removed" not in slot(s), slot(s))

# The list of requests counts as the server does, also tokens that were removed since.
with serve() as s:
    def counts(messages):
        a, last = chat(s, messages), kv(s)["requests"][0]
        check("read and from the slot", last["read"] == a.json["timings"]["prompt_n"] and last["from_slot"] == a.json["timings"]["cache_n"] and
              last["read"] + last["from_slot"] == a.json["usage"]["prompt_tokens"], last, a.text[:600])
        return last, messages + [{"role": "assistant", "content": a.json["choices"][0]["message"]["content"] or "."}]
    first, messages = counts([{"role": "user", "content": words(200, 1)}])
    check("all is read", first["read"] > CONTEXT and "was" not in first, first)
    for i in range(3):
        last, messages = counts(messages + [{"role": "user", "content": words(12, i)}])
    check("little is read", last["read"] < CONTEXT // 3 and last["from_slot"] > CONTEXT, last)
    turn = messages + [{"role": "user", "content": words(12, 8)}]
    counts(turn)
    last, _ = counts(messages + [{"role": "user", "content": words(10, 8) + " zebra"}])
    check("where they differ", last["was"] and last["differs_at"] >= last["from_slot"] and "zebra" in last["is"], last)

# A sample of a long turn is fed again, and what was said of the conversation stays known: it is parked when the server ends.
with tempfile.TemporaryDirectory() as folder:
    sampled = ("--policy", "auto", "--ratio", "0.5")
    with serve("--state", folder, context=2048, policy=sampled) as s:
        messages = [{"role": "system", "content": "be brief"}]
        for i in range(5):
            messages.append({"role": "user", "content": words(110, i)})
            a = chat(s, messages)
            check("a long turn", a.status == 200, a.text[:300])
            messages.append({"role": "assistant", "content": a.json["choices"][0]["message"]["content"] or "."})
        check("room was made, and a sample fed", removed(a) > 0 and "sampled" in slot(s)["taken"], a.headers, slot(s))
        check("SIGTERM ends it", s.stop() == 0 and "is not parked" not in s.log(), s.log()[-600:])
    with serve("--state", folder, context=2048, policy=sampled) as s:
        a = chat(s, messages + [{"role": "user", "content": "and?"}])
        check("after a restart it goes on", a.status == 200 and a.json["timings"]["prompt_n"] < 100, a.text[:300])

# An answer goes on past the end of the context, in a stream too, and ends at the requested length, or after as many tokens as the context has.
with serve() as s:
    a = chat(s, [{"role": "user", "content": words(20, 7)}], stream=True, stream_options={"include_usage": True})
    check("a short stream has nothing removed", len(usages(a)) == 1 and "winnow" not in usages(a)[0], a.text[-600:])
    a = chat(s, [{"role": "user", "content": words(20, 7)}], 3 * CONTEXT)
    check("an answer of three times the context", a.status == 200 and a.json["usage"]["completion_tokens"] == 3 * CONTEXT, a.text[-300:])
    check("what is removed is said", removed(a) >= 2 * CONTEXT, a.headers)
    a = chat(s, [{"role": "user", "content": words(20, 8)}], -1)
    check("an answer without a length has that of the context", a.json["usage"]["completion_tokens"] == CONTEXT, a.json["usage"])
    a = chat(s, [{"role": "user", "content": words(20, 9)}], 2 * CONTEXT, stream=True)
    check("a stream goes on as well", a.status == 200 and a.text.count("data: ") >= CONTEXT and "[DONE]" in a.text, a.text[-300:])
    a = chat(s, [{"role": "user", "content": words(20, 10)}], 2 * CONTEXT, stream=True, stream_options={"include_usage": True})
    said = usages(a)
    check("its header does not say what the slot held before", "X-Winnow-Removed" not in a.headers, a.headers)
    check("a stream's usage has the number after the answer", len(said) == 1 and said[0]["winnow"]["removed"] > CONTEXT and said[0]["completion_tokens"] == 2 * CONTEXT, said, a.headers)
    for route, body in (("/v1/messages", {"messages": [{"role": "user", "content": words(700, 9)}], "max_tokens": 4}),
                        ("/v1/responses", {"input": words(700, 9), "max_output_tokens": 4})):
        a = s.ask(route, {**body, "stream": True})
        check(f"a stream of {route}", a.status == 200 and usages(a) and usages(a)[-1]["winnow"]["removed"] > CONTEXT, usages(a), a.text[-600:])
    a = chat(s, [{"role": "user", "content": words(700, 9)}], 4)
    check("a prompt that is too long by itself", a.status == 200 and removed(a) > CONTEXT and a.json["usage"]["prompt_tokens"] > 3 * CONTEXT, a.text[:300])
    a = s.ask("/v1/messages", {"messages": [{"role": "user", "content": words(700, 9)}], "max_tokens": 4})
    check("on Anthropic's route", a.status == 200 and removed(a) > CONTEXT and a.json["usage"]["winnow"]["removed"] == removed(a), a.text[:300])

# Prompts without a chat are refused as by llama.cpp's server, unless they ask; and what is asked is checked.
LONG = ids(CONTEXT + 100, 3)


def complete(s, prompt, n=4, **more):
    return s.ask("/completion", {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True, "n_probs": 1, **more})


with serve("--when-full", "refuse") as s:
    plain = complete(s, LONG)
    ends = complete(s, LONG[:CONTEXT - 40], 100)
    no = complete(s, LONG, winnow={"full": "compress"})
    check("--when-full refuse: no room is made", no.status == 400 and "--when-full compress" in no.text and "winnow.full" in no.text, no.text)
    check("a chat is refused there", chat(s, [{"role": "user", "content": words(700, 9)}]).status == 400)
with serve() as s:
    a = complete(s, LONG)
    check("a prompt is refused as llama.cpp's server does", a.status == plain.status and a.json["error"] == {**plain.json["error"], "param": "prompt"}, a.text, plain.text)
    a = complete(s, LONG[:CONTEXT - 40], 100)
    check("and its answer ends with the context", abs(a.json["tokens_predicted"] - ends.json["tokens_predicted"]) <= 1 and a.json["stop_type"] == "limit", a.json["tokens_predicted"], ends.json["tokens_predicted"])
    a = complete(s, LONG, winnow={"full": "compress"})
    check("a prompt that asks has room", a.status == 200 and removed(a) > 100, a.text[:300])
    a = chat(s, [{"role": "user", "content": words(700, 9)}], winnow={"full": "refuse"})
    check("a chat that wants none is refused", a.status == 400 and a.json["error"]["type"] == "exceed_context_size_error", a.text)
    a = complete(s, LONG, winnow={"full": "compress", "policy": "full"})
    check("a policy that keeps everything cannot make room", a.status == 400 and "keeps everything" in a.text, a.text)
    a = chat(s, [{"role": "user", "content": words(700, 9)}], winnow={"policy": "full"})
    check("and is refused where it does not ask", a.status == 400 and a.json["error"]["type"] == "exceed_context_size_error", a.text)
    for wrong in ("yes", 1, None, {}):
        a = complete(s, [1, 2], winnow={"full": wrong})
        check(f"full {wrong!r} is refused", a.status == 400 and '"winnow.full"' in a.text.replace(": ", ":") and "compress" in a.text, a.text)
    long_header = [{"role": "system", "content": words(60, 1)}, {"role": "user", "content": words(10, 2)}]
    a = chat(s, long_header, winnow={"full": "compress"})
    check("a header that leaves no room", a.status == 400 and "quarter" in a.text, a.text)
    check("goes on without it", chat(s, long_header).status == 200)

# Several at once in slots of one cache, and answers as without anything removed where there is room.
with serve(slots=3) as s:
    texts = [ids(200, 40 + i) for i in range(3)]
    alone = [complete(s, t, 8, id_slot=i, cache_prompt=False).json for i, t in enumerate(texts)]
    more = {"winnow": {"full": "compress"}}
    got = at_once(*[lambda i=i: complete(s, ids(1500, 50 + i), 700, id_slot=i, **more) for i in range(3)])
    check("three at once past the end", all(a.status == 200 and a.json["tokens_predicted"] == 700 and removed(a) > 0 for a in got), [a.text[:200] for a in got])
    check("hold no more than the cache", sum(x["tokens"] for x in kv(s)["slots"]) <= 3 * CONTEXT, kv(s))
    again = [complete(s, t, 8, id_slot=i, cache_prompt=False, **more).json for i, t in enumerate(texts)]
    check("answers afterwards are as before", all(nearly_same(a, b, CLOSE) for a, b in zip(alone, again)))

# The context is that of a slot: one conversation does not take the room of another one.
with serve(slots=2) as s:
    check("a prompt that is refused beyond the context of a slot", complete(s, LONG).status == 400)
    got = at_once(lambda: complete(s, ids(CONTEXT - 30, 3), 400), *[lambda i=i: chat(s, [{"role": "user", "content": words(12, i)}], 900) for i in range(3)])
    check("beside one that fills its context", all(a.status == 200 for a in got), [a.text[-200:] for a in got])

# Several answers share cells, and positions of cells are moved for all: nothing is removed of them while they are made, nor of one slot of them afterwards.
with serve(slots=2) as s:
    turn = [{"role": "user", "content": words(20, 3)}]
    a = chat(s, turn, 2 * CONTEXT, n=2)
    check("several answers end with the context", a.status == 200 and removed(a) == 0 and a.json["usage"]["completion_tokens"] <= 2 * CONTEXT, a.text[-300:])
    check("they cannot ask for room", "several answers" in chat(s, turn, 4, n=2, winnow={"full": "compress"}).text)
    both = chat(s, turn, 4, n=2).json["choices"]
    a = chat(s, turn + [both[0]["message"], {"role": "user", "content": words(12, 4)}], 2 * CONTEXT)
    check("one of them goes on", a.status == 200 and removed(a) > CONTEXT, a.text[-300:])
    for i in range(3):
        check("and others beside it", chat(s, turn + [both[1]["message"], {"role": "user", "content": words(12, 5 + i)}], 40).status == 200)
    check("nothing is lost when it ends", s.stop() == 0 and "is not parked" not in s.log() and "Invalid input batch" not in s.log(), s.log()[-600:])

# With a cap the context bounds what a conversation takes.
with serve("--kv-bytes", str(CONTEXT * 1024 * 2)) as s:
    a = chat(s, [{"role": "user", "content": words(700, 9)}], 20)
    check("with --kv-bytes", a.status == 200 and removed(a) > CONTEXT, a.text[:300])

# Conversations from which tokens were removed are parked, and go on: from memory, after a restart, and from saved files.
def go_on(s, messages, tokens=6, **more):
    """The answer to a conversation with one more turn, and the conversation after it."""
    messages = messages + [{"role": "user", "content": words(12, 300 + len(messages))}]
    a = chat(s, messages, tokens, **more)
    check("a conversation goes on", a.status == 200, a.text[:300])
    return a, messages + [{"role": "assistant", "content": a.json["choices"][0]["message"]["content"] or "."}]


def grow(s, seed, times=2.5):
    messages, total = [{"role": "system", "content": words(8, seed)}, {"role": "user", "content": words(12, seed + 50)}, {"role": "assistant", "content": words(2, seed)}], 0
    while total < times * CONTEXT:
        a, messages = go_on(s, messages)
        total = a.json["usage"]["total_tokens"]
    return a, messages


def resumed(a, n_new=CONTEXT // 3):
    return a.json["timings"]["prompt_n"] < n_new and removed(a) > CONTEXT


SHORT = [{"role": "user", "content": "x"}]
for policy in (("--policy", "keydiff", "--ratio", "0.5"), ("--policy", "knorm", "--budget", "300")):
    with tempfile.TemporaryDirectory() as folder:
        with serve("--park", "64M", "--state", folder, policy=policy) as s:
            first, one = grow(s, 11)
            gone = removed(first)
            b, two = grow(s, 12)
            check("the first is parked", gone > CONTEXT and kv(s)["parked"]["parked"] >= 1 and "passed over" not in s.log(), kv(s), s.log()[-600:])
            a, one = go_on(s, one)
            check("it comes back without what was removed", resumed(a) and removed(a) >= gone and kv(s)["parked"]["used"] == 1, a.json["timings"], removed(a), gone, kv(s)["parked"], s.log()[-600:])
            b, two = go_on(s, two)
            check("and so does the second", resumed(b), b.json["timings"], s.log()[-600:])
            for t in range(12):  # room is made again in what came back
                a, one = go_on(s, one)
                b, two = go_on(s, two)
            check("both go on in turn", resumed(a) and resumed(b) and removed(a) > gone + CONTEXT // 4, removed(a), removed(b), gone)
            long = chat(s, one + [{"role": "user", "content": words(300, 5)}], 4)  # more than the slot has room for, at once
            check("a long turn after it came back", long.status == 200 and removed(long) > removed(a) and long.json["timings"]["cache_n"] > 2 * CONTEXT, long.text[:300], s.log()[-600:])
            b, two = go_on(s, two)
            status = s.stop()
            check("SIGTERM ends it", status == 0, status)
        with serve("--park", "64M", "--state", folder, policy=policy) as s:
            a, two = go_on(s, two)
            check("after a restart what the slot held goes on", resumed(a) and removed(a) >= removed(b), a.json["timings"], s.log()[-900:])
            a, one = go_on(s, one)
            check("and what was parked", resumed(a), a.json["timings"], s.log()[-900:])
        with serve("--park", "64M", "--state", folder, "--when-full", "refuse", policy=policy) as s:
            a = chat(s, one)
            check("a server that makes no room refuses it", a.status == 400 and a.json["error"]["type"] == "exceed_context_size_error", a.text)
            check("and goes on", chat(s, SHORT).status == 200)

with tempfile.TemporaryDirectory() as folder:
    save = ("--save", folder)
    with serve(*save) as s:
        a, one = grow(s, 11)
        saved = s.ask("/winnow/slots/0?action=save", {"filename": "one"})
        check("a slot is saved", saved.status == 200 and os.path.getsize(f"{folder}/one") > 0, saved.text, s.log()[-300:])
        want, _ = go_on(s, one, logprobs=True)
    with serve(*save) as s:
        a = s.ask("/winnow/slots/0?action=restore", {"filename": "one"})
        check("and restored", a.status == 200 and slot(s)["removed"] > CONTEXT and slot(s)["tokens"] <= CONTEXT, a.text, slot(s), s.log()[-300:])
        got, _ = go_on(s, one, logprobs=True)
        check("its answer is the same", resumed(got) and got.json["choices"][0]["message"] == want.json["choices"][0]["message"] and removed(got) == removed(want), got.text[:300], want.text[:300])
    with serve("--when-full", "refuse", *save) as s:
        a = s.ask("/winnow/slots/0?action=restore", {"filename": "one"})
        check("a server that makes no room says so", a.status == 400 and "--when-full compress" in a.text, a.text)

# A chat that has the template alone in common with a long conversation takes another slot.
with serve("--park", "0", slots=2) as s:
    a, one = grow(s, 11)
    at = [i for i in range(2) if slot(s, i).get("removed", 0) > 0]
    for _ in range(3):
        chat(s, SHORT)
    a, one = go_on(s, one)
    check("the template alone does not give a long conversation up", len(at) == 1 and removed(a) > 0 and a.json["timings"]["prompt_n"] < CONTEXT // 3, at, a.json["timings"], kv(s)["slots"])

# Models whose cells cannot be moved say why.
with serve(model="tiny-gemma3.gguf") as s:
    a = chat(s, [{"role": "user", "content": "x"}], winnow={"full": "compress"})
    check("sliding windows", a.status == 400 and "sliding window" in a.text, a.text)

with serve(rest=("-ctk", "q8_0", "-ctv", "q8_0")) as s:
    a = chat(s, [{"role": "user", "content": "x"}], winnow={"full": "compress"})
    check("quantised keys of small heads", a.status == 400 and "-ctk f16" in a.text, a.text)
    check("and a prompt that fits", chat(s, [{"role": "user", "content": "x"}]).status == 200)

finish()
