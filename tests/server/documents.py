#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Documents of `winnow serve` and what was kept of a prefix: documents.py WINNOW

A document is read and compressed at start; requests that name it begin after it, on any slot and any route, and nothing that they do changes it.
"""
import os
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, at_once, check, finish, ids, reads_documents, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
CLOSE = 0.02  # the same tokens, in other batches
ROW = 1024    # bytes of a token's keys and values: 4 layers, 2 heads of 32, f16
work = tempfile.TemporaryDirectory()


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def path(name, text):
    with open(f"{work.name}/{name}", "w", encoding="utf-8") as f:
        f.write(text)
    return f.name


def command(*options, rest=()):
    return [winnow, "serve", "-m", model, "--port", "0", *options, "--", "-t", "1", *rest]


def serve(*options, rest=()):
    return Server(command(*options, rest=rest))


def kv(s):
    return s.ask("/winnow/kv").json


def chat(s, messages, tokens=8, **more):
    return s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": True, **more})


def user(text):
    return [{"role": "user", "content": text}]


def logprobs(reply):
    return [t["logprob"] for t in reply.json["choices"][0]["logprobs"]["content"]]


def same(a, b):
    """The first tokens' probabilities; later ones may be of other tokens."""
    return abs(logprobs(a)[0] - logprobs(b)[0]) < CLOSE


def read(reply):
    return reply.json["timings"]["prompt_n"]


def document(s, i):
    return kv(s)["documents"][i]


text, other = words(600, 1), words(700, 2)
long, short = path("long.txt", f"\n{text}\n\n"), path("short.txt", "A few words only.")
named = {"document": "long"}

# Read at start, and nobody reads it again.
with serve("--policy", "keydiff", "--budget", "200", "--slots", "3", "--document", f"long={long}", "--document", f"short={short}",
           "--document", f"other={path('other.txt', other)}", "--save", work.name) as s:
    first = chat(s, user("who"), winnow=named)
    check("a request waits until it was read", first.status == 200, first.text)
    reads_documents(s)
    d = document(s, 0)
    check("it is compressed", d["tokens"] > 1500 and d["entries"] == 200 and kv(s)["documents"][1]["entries"] == kv(s)["documents"][1]["tokens"], kv(s))
    check("its header stays", d["policy"] == "keydiff" and d["budget"] == 200, d)
    check("a question reads itself alone", read(first) < 60, first.json["timings"])
    questions = [f"question {words(3 + i, 50 + i)}" for i in range(5)]
    answers = [chat(s, user(q), winnow=named) for q in questions]
    check("five questions too", all(read(a) < 120 for a in answers), [read(a) for a in answers])
    check("the document is what it was", document(s, 0) == d, document(s, 0), d)
    # The same on other slots, at once, after other documents have been in the slot, and with a system message.
    again = at_once(*[lambda q=q: chat(s, user(q), winnow=named) for q in questions])
    check("the same at once", all(same(a, b) for a, b in zip(answers, again)), [logprobs(a)[0] for a in answers + again])
    chat(s, user("x"), winnow={"document": "other"}, id_slot=0)
    slots = [chat(s, user(questions[0]), winnow=named, id_slot=i) for i in (0, 1, 2)]
    check("on every slot", all(same(answers[0], a) and read(a) < 120 for a in slots), [read(a) for a in slots])
    check("three slots share its cells", kv(s)["bytes"] < (200 + 200 + 50 + 3 * 200) * ROW * 1.3, kv(s))
    system = [{"role": "system", "content": "Be brief. " + words(40, 9)}]
    check("a system message stands behind it", read(chat(s, system + user("who"), winnow=named)) < 250)
    parts = [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}]
    check("in parts, too", chat(s, parts + user("who"), winnow=named).status == 200)
    # A long turn after it is compressed by itself.
    n = kv(s)["compressions"]
    turn = chat(s, user(words(300, 12)), winnow={**named, "budget": 100}, id_slot=1)
    slot = kv(s)["slots"][1]
    check("what a request adds is compressed", kv(s)["compressions"] == n + 1 and slot["document"] == "long" and slot["entries"] < 200 + 100 + 130, slot)
    check("and the document is not", document(s, 0) == d, document(s, 0))
    more = chat(s, user(words(300, 12)) + [{"role": "assistant", "content": turn.json["choices"][0]["message"]["content"]}] + user("and"), winnow={**named, "budget": 100}, id_slot=1)
    check("a conversation goes on behind it", more.status == 200 and read(more) < 200, more.json["timings"])
    check("a request with reuse: never reads all but the document", same(answers[0], chat(s, user(questions[0]), winnow={**named, "reuse": "never"})))
    two = chat(s, user(questions[0]), winnow=named, n=2)
    check("n = 2", two.status == 200 and len(two.json["choices"]) == 2 and same(answers[0], two), two.text)
    # Without the field nothing of it is there.
    plain = chat(s, [{"role": "system", "content": text}] + user("who"), id_slot=1)
    check("who does not name it reads all", read(plain) > 1500, plain.json["timings"])
    # Other routes.
    messages = s.ask("/v1/messages", {"system": "Be brief.", "messages": user("who"), "max_tokens": 4, "winnow": named})
    check("/v1/messages", messages.status == 200 and messages.json["usage"]["input_tokens"] < 120, messages.text)
    blocks = s.ask("/v1/messages", {"system": [{"type": "text", "text": "Be brief."}], "messages": user("who"), "max_tokens": 4, "winnow": named})
    check("with blocks", blocks.status == 200 and blocks.json["usage"]["input_tokens"] < 120, blocks.text)
    response = s.ask("/v1/responses", {"input": "who", "instructions": "Be brief.", "max_output_tokens": 4, "winnow": named})
    check("/v1/responses", response.status == 200 and kv(s)["slots"][int(response.headers["X-Winnow-Slot"])].get("document") == "long", response.text)
    # A slot in a file has the document with it, and its rule.
    chat(s, user(questions[0]), winnow=named, id_slot=2)
    saved = s.ask("/winnow/slots/2?action=save", {"filename": "slot"})
    back = s.ask("/winnow/slots/0?action=restore", {"filename": "slot"})
    check("saved and restored", saved.status == back.status == 200 and kv(s)["slots"][0]["compressed"] and not kv(s)["slots"][0].get("document"), kv(s))
    check("asked again from the document", same(answers[0], chat(s, user(questions[0]), winnow=named, id_slot=0)))
    for i in range(3):
        s.ask(f"/slots/{i}?action=erase", "{}")
    left = kv(s)
    check("erased slots leave the documents", [x["tokens"] for x in left["slots"]] == [0, 0, 0] and [x for x in left["documents"]][0] == d, left)
    check("and their memory", 425 * ROW <= left["bytes"] < left["bytes_uncompressed"] / 5 and
          left["bytes_uncompressed"] == sum(x["tokens"] for x in left["documents"]) * ROW, left)
    check("and they answer as before", same(answers[1], chat(s, user(questions[1]), winnow=named)))

    def refused(name, body, says, param="winnow.document", where="/v1/chat/completions"):
        r = s.ask(where, {"max_tokens": 2, **body})
        e = r.json.get("error", {})
        check(name, r.status == 400 and says in e.get("message", "") and e.get("param") == param, r.text)
    refused("a document that is not there", {"messages": user("x"), "winnow": {"document": "novel"}}, "long, short, other")
    refused("a name that is none", {"messages": user("x"), "winnow": {"document": 3}}, "name")
    refused("no messages", {"prompt": "x", "winnow": named}, "messages", where="/v1/completions")
    check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])

# Where everything is kept, five questions after a document are answered as if the whole prompt were read again for each.
with serve("--policy", "full", "--slots", "2", "--document", f"long={long}") as s:
    for i in range(5):
        q = f"question {words(3 + i, 50 + i)}"
        behind = chat(s, user(q), winnow=named, top_logprobs=1)
        anew = chat(s, [{"role": "system", "content": text}] + user(q), cache_prompt=False, top_logprobs=1)
        check(f"question {i} is answered as if all were read", same(behind, anew) and read(behind) < 120 and read(anew) > 1500, logprobs(behind), logprobs(anew))
        turn = [{"role": "assistant", "content": "yes"}] + user("sure?")
        further = chat(s, user(q) + turn, winnow=named)
        check("and a further turn", same(further, chat(s, [{"role": "system", "content": text}] + user(q) + turn, cache_prompt=False)) and read(further) < 120)

# What is asked about a document comes later: no more of its end stays than of the rest. A question after it is known.
with serve("--ratio", "0.8", "--slots", "1", "--document", f"long={long}") as s:
    until(lambda: document(s, 0)["ready"])
    d = document(s, 0)
    check("a document's end is like the rest", d["policy"] == "keydiff-values-sampled", d)
    chat(s, user(words(300, 8)), winnow=named)
    check("a question's stays", kv(s)["slots"][0]["taken"] == "keydiff-values-sampled:last=32,room=0.5", kv(s)["slots"][0])

# The cap counts documents, and what does not fit is said at start.
with serve("--policy", "keydiff", "--budget", "200", "--slots", "2", "--kv-bytes", str(3300 * ROW), "--evict", "end", "--document", f"long={long}") as s:
    r = chat(s, user("who"), winnow=named)
    check("a request behind it needs room for itself", r.status == 200, r.text)
    r = s.ask("/completion", {"prompt": ids(3150, 5), "n_predict": 10})
    check("and others have the rest", r.status == 400 and "documents take" in r.text, r.text)
    open_end = s.ask("/v1/chat/completions", {"messages": user("x"), "ignore_eos": True})
    check("an answer without an end stops where its room does", open_end.json["usage"]["completion_tokens"] == 1024 and
          open_end.json["choices"][0]["finish_reason"] == "length", open_end.json["usage"])

# Sixteen documents fit into bytes that three uncompressed ones do not fit into.
cap = 1300 * ROW
many = [("--document", f"d{i}={path(f'd{i}.txt', words(120, 40 + i))}") for i in range(16)]
with serve("--policy", "keydiff", "--budget", "30", "--slots", "1", "--kv-bytes", str(cap), *[x for pair in many for x in pair]) as s:
    answers = [chat(s, user("who"), tokens=2, winnow={"document": f"d{i}"}) for i in (0, 15)]
    check("many documents in the bytes of few", all(a.status == 200 and read(a) < 100 for a in answers) and kv(s)["bytes"] <= cap, kv(s), [a.text for a in answers])
    for name in ("\u20ac" * 40, "a" + "\u20ac" * 40, "aa" + "\u20ac" * 40):
        r = chat(s, user("who"), winnow={"document": name})
        check("a name that is cut off within a character", r.status == 400 and "this server has d0" in r.json["error"]["message"], r.text)

with serve() as s:
    r = chat(s, user("x"), winnow=named)
    check("a server without documents", r.status == 400 and "--document" in r.json["error"]["message"], r.text)


def refuses(name, says, *options, rest=(), code=2):
    done = subprocess.run(command(*options, rest=rest), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stderr.splitlines() if line.startswith("winnow") and "unless a request" not in line and not line.startswith("winnow: auto: ")]
    check(name, done.returncode == code and len(lines) == 1 and says in lines[0], done.returncode, done.stderr[-800:])


refuses("a document that does not fit", "bytes", "--policy", "keydiff", "--kv-bytes", str(1000 * ROW), "--document", f"long={long}")
refuses("three whole ones", "document d2: ", "--policy", "keydiff", "--budget", "2000", "--kv-bytes", str(cap), *[x for pair in many[:3] for x in pair])
refuses("one that is longer than the context", "context", "--document", f"huge={path('huge.txt', words(4000, 3))}")
refuses("a file that is not there", "No such file", "--document", "x=/no/such/file")
refuses("a document without a file", "NAME=FILE", "--document", "x=")
refuses("an empty one", "empty", "--document", f"x={path('empty.txt', ' ')}")
refuses("two of one name", "two of that name", "--document", f"x={long}", "--document", f"x={short}")
refuses("no text", "UTF-8", "--document", f"x={model}")
refuses("a policy that looks at the question", "looks at the end", "--policy", "snapkv", "--document", f"x={long}")
refuses("shifted contexts", "--context-shift", "--document", f"x={long}", rest=("--context-shift",))
work.cleanup()
finish()
