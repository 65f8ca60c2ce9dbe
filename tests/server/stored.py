#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stored caches as documents of `winnow serve`: stored.py WINNOW

A file of `winnow compress` is loaded and not read again. Answers about it are those of `winnow ask`, on any slot and route, and do not change
it. A file that does not fit the server is refused at start, in one line.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, at_once, check, finish, ids, reads_documents

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
work = tempfile.TemporaryDirectory()
N = 8


def run(*arguments):
    return subprocess.run([winnow, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def path(name, text):
    with open(f"{work.name}/{name}", "w", encoding="utf-8") as f:
        f.write(text)
    return f.name


def compress(name, text, *options, of=model):
    made = f"{work.name}/{name}.wkv"
    done = run("compress", "-m", of, "-f", path(f"{name}.txt", text), "-o", made, *options)
    check(f"{name} is stored", done.returncode == 0, done.stderr)
    return made


def ask(stored, question, of=model):
    done = run("ask", "-m", of, "-c", stored, "-p", question, "-n", str(N), "--json")
    check("ask", done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["tokens"]


def command(*options, rest=()):
    return [winnow, "serve", "-m", model, "--port", "0", *options, "--", "-t", "1", *rest]


def user(text):
    return [{"role": "user", "content": text}]


def chat(s, messages, **more):
    return s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": N, "temperature": 0, "logprobs": True, **more})


def tokens(reply):
    return [t["id"] for t in reply.json["choices"][0]["logprobs"]["content"]]


def same(answer, asked):
    """The server lists no tokens of a character that is not whole when the answer ends."""
    n = min(len(answer), len(asked))
    return n > 2 and answer[:n] == asked[:n]


def read(reply):
    return reply.json["timings"]["prompt_n"]


long = words(600, 1) + "."
first = compress("first", long, "--policy", "snapkv+adakv", "--ratio", "0.6")
brief = compress("brief", words(300, 2) + ".", "--policy", "keydiff", "--budget", "150", "--system", "Be brief.")
questions = [f"question {words(3 + i, 50 + i)}" for i in range(3)]
asked = [ask(first, q) for q in questions]
n_first = json.loads(run("inspect", first, "--json").stdout)

with Server(command("--policy", "keydiff", "--budget", "200", "--slots", "3", "--document", f"first={first}", "--document", f"brief={brief}",
                    "--document", f"text={path('text.txt', words(300, 3))}", "--save", work.name)) as s:
    named = {"document": "first"}
    answers = [chat(s, user(q), winnow=named) for q in questions]
    reads_documents(s)
    documents = s.ask("/winnow/kv").json["documents"]
    d = documents[0]
    check("it is there as it was stored", d["stored"] and d["tokens"] == n_first["n_tokens"] and abs(d["entries"] - n_first["kept_tokens_mean"]) < 0.1 and
          d["ratio"] == 0.6 and d["policy"] == "adakv", d)
    check("and the others", documents[1]["stored"] and documents[1]["budget"] == 150 and not documents[2]["stored"] and documents[2]["entries"] == 200, documents)
    for q, a, b in zip(questions, answers, asked):
        check(f"'{q}' is answered as by ask", same(tokens(a), b) and read(a) < 120, tokens(a), b, a.json["timings"])
    again = at_once(*[lambda i=i: chat(s, user(questions[0]), winnow=named, id_slot=i) for i in range(3)])
    check("on every slot, at once", all(same(tokens(a), asked[0]) for a in again), [tokens(a) for a in again], asked[0])
    turn = user(questions[0]) + [{"role": "assistant", "content": again[0].json["choices"][0]["message"]["content"]}] + user("and")
    check("a conversation goes on", chat(s, turn, winnow=named).status == 200 and read(chat(s, turn, winnow=named)) < 200)
    check("a long turn is compressed by itself", chat(s, user(words(300, 12)), winnow={**named, "budget": 100}).status == 200 and s.ask("/winnow/kv").json["compressions"] > 1)
    check("nothing has changed it", s.ask("/winnow/kv").json["documents"] == documents, s.ask("/winnow/kv").json)
    check("and it answers as before", same(tokens(chat(s, user(questions[1]), winnow=named)), asked[1]))
    # The system message that it was stored with.
    want = ask(brief, questions[2])
    for name, messages in (("without", []), ("with it", [{"role": "system", "content": "Be brief."}])):
        reply = chat(s, messages + user(questions[2]), winnow={"document": "brief"})
        check(f"a request {name}", reply.status == 200 and same(tokens(reply), want) and read(reply) < 120, reply.text, want)
    other = chat(s, [{"role": "system", "content": "Be long."}] + user("x"), winnow={"document": "brief"})
    check("with another one", other.status == 400 and "another system message" in other.text, other.text)
    check("where there was none", chat(s, [{"role": "system", "content": "Be long."}] + user("x"), winnow=named).status == 400)
    # Other routes, and messages in parts.
    parts = chat(s, [{"role": "user", "content": [{"type": "text", "text": "who"}]}], winnow=named)
    check("in parts", parts.status == 200 and read(parts) < 120, parts.text)
    messages = s.ask("/v1/messages", {"messages": user("who"), "max_tokens": 4, "winnow": named})
    check("/v1/messages", messages.status == 200 and messages.json["usage"]["input_tokens"] < 120, messages.text)
    for form in ("who", [{"role": "user", "content": [{"type": "input_text", "text": "who"}]}]):
        response = s.ask("/v1/responses", {"input": form, "max_output_tokens": 4, "winnow": named})
        check("/v1/responses", response.status == 200 and s.ask("/winnow/kv").json["slots"][int(response.headers["X-Winnow-Slot"])].get("document") == "first", response.text)
    # A text document in the same server.
    check("a text answers, too", read(chat(s, user("who"), winnow={"document": "text"})) < 120)
    # A slot in a file has what was stored with it.
    chat(s, user(questions[0]), winnow=named, id_slot=2)
    saved, back = [s.ask(f"/winnow/slots/{i}?action={a}", {"filename": "slot"}) for i, a in ((2, "save"), (0, "restore"))]
    check("saved and restored", saved.status == back.status == 200 and s.ask("/winnow/kv").json["slots"][0]["compressed"], back.text)
    check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])

# As a slot: `winnow export` writes what a server restores, and a request continues there, and otherwise would start over.
plain = compress("plain", long, "--policy", "keydiff", "--ratio", "0.6")
for name, stored in (("slot", plain), ("looks", first)):
    done = run("export", stored, "--slot", f"{work.name}/{name}", "-m", model)
    check("exported", done.returncode == 0, done.stderr)
done = run("export", compress("other", words(40, 5), "--policy", "full", of=f"{TINY}/tiny-qwen2.gguf"), "--slot", f"{work.name}/foreign", "-m", f"{TINY}/tiny-qwen2.gguf")
check("exported of another model", done.returncode == 0, done.stderr)
with Server(command("--policy", "keydiff", "--ratio", "0.6", "--slots", "2", "--save", work.name)) as s:
    def restore(slot, name):
        return s.ask(f"/winnow/slots/{slot}?action=restore", {"filename": name})
    check("restored", restore(0, "slot").status == 200 and restore(1, "looks").status == 200, s.log()[-500:])
    slots = s.ask("/winnow/kv").json["slots"]
    kept = [json.loads(run("inspect", x, "--json").stdout) for x in (plain, first)]
    check("as they were stored", all(a["tokens"] == b["n_tokens"] and abs(a["entries"] - b["kept_tokens_mean"]) < 0.1 and a["compressed"] for a, b in zip(slots, kept)), slots)
    reply = chat(s, user(f"{long}\n\n{questions[0]}"), id_slot=0)
    check("a request of the same policy goes on there", same(tokens(reply), ask(plain, questions[0])) and read(reply) < 120, reply.text)
    anew = chat(s, user(f"{long}\n\n{questions[0]}"), id_slot=1)
    check("one of another policy reads anew", read(anew) > 1500, anew.json["timings"])
    restore(1, "looks")
    reply = chat(s, user(f"{long}\n\n{questions[0]}"), id_slot=1, winnow={"reuse": "any"})
    check("unless it says that it may", same(tokens(reply), asked[0]) and read(reply) < 120, reply.text)
    check("of another model", restore(0, "foreign").status == 400 and "another model" in s.log(), s.log()[-500:])

# It is part of a user's message. A request without such a message is not answered.
with Server(command("--policy", "keydiff", "--slots", "1", "--document", f"first={first}")) as s:
    reads_documents(s)
    for messages in ([{"role": "system", "content": "Be brief."}], [{"role": "assistant", "content": "Yes."}], []):
        r = chat(s, messages, winnow=named)
        check(f"no message of a user: {messages}", r.status == 400 and r.json["error"].get("param") == "winnow.document" and "no message" in r.text, r.text)
    check("and with one it is", same(tokens(chat(s, user(questions[0]), winnow=named)), asked[0]))

# What was stored says by which policy it was compressed; the server's own may look at questions then.
with Server(command("--policy", "snapkv", "--slots", "1", "--document", f"first={first}")) as s:
    check("the server's policy is for what comes", same(tokens(chat(s, user(questions[0]), winnow=named)), asked[0]))


def refuses(name, says, *documents, rest=(), options=()):
    done = subprocess.run(command(*options, *[x for d in documents for x in ("--document", f"x={d}")], rest=rest), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    lines = [line for line in done.stderr.splitlines() if line.startswith("winnow") and "unless a request" not in line and not line.startswith("winnow: auto: ")]
    check(name, done.returncode == 2 and len(lines) == 1 and says in lines[0], done.returncode, done.stderr[-800:])


with open(first, "rb") as f:
    whole = f.read()
with open(f"{work.name}/cut.wkv", "wb") as f:
    f.write(whole[:9000])
small = words(40, 5)
refuses("another model", "belongs to model", f"{work.name}/other.wkv")
# Of the same shape, with another base of RoPE: its documents, and slots that were saved with it.
with open(model, "rb") as f:
    whole = f.read()
key = b"llama.rope.freq_base" + struct.pack("<I", 6)
at = whole.index(key) + len(key)
turned = f"{work.name}/turned.gguf"
with open(turned, "wb") as f:
    f.write(whole[:at] + struct.pack("<f", 500000.0) + whole[at + 4:])
refuses("another base of RoPE", "belongs to model", compress("based", small, "--policy", "full", of=turned))
done = run("export", f"{work.name}/based.wkv", "--slot", f"{work.name}/based", "-m", turned)
check("exported of another base", done.returncode == 0, done.stderr)
with Server([winnow, "serve", "-m", turned, "--port", "0", "--slots", "1", "--save", work.name, "--", "-t", "1"]) as s:
    chat(s, user("who"), id_slot=0)
    check("saved by another base", s.ask("/winnow/slots/0?action=save", {"filename": "saved"}).status == 200)
    check("restored by the same", all(s.ask("/winnow/slots/0?action=restore", {"filename": name}).status == 200 for name in ("saved", "based")), s.log()[-500:])
with Server(command("--slots", "1", "--save", work.name)) as s:
    for name in ("saved", "based"):
        r = s.ask("/winnow/slots/0?action=restore", {"filename": name})
        check(f"the slot {name} of another base", r.status == 400 and "another model" in s.log(), r.text, s.log()[-500:])
    check("nothing was put there", s.ask("/winnow/kv").json["slots"][0]["tokens"] == 0, s.ask("/winnow/kv").json["slots"])
refuses("a file that is cut off", "cut off", f"{work.name}/cut.wkv")
refuses("no stored cache", "no stored cache", path("text.wkv", "x"))
refuses("a cache without flash attention", "another form", first, rest=("-fa", "off"))
os.mkfifo(f"{work.name}/pipe.wkv")
refuses("a pipe", "not a regular file", f"{work.name}/pipe.wkv")
os.mkdir(f"{work.name}/folder.wkv")
refuses("a folder", "folder.wkv", f"{work.name}/folder.wkv")
# Between the check by `winnow serve` and the server's opening, another file may replace it: here one whose fingerprint is that of the model,
# and whose shape is not.
mqa = f"{TINY}/tiny-llama-mqa.gguf"
shape = compress("shape", words(40, 5), "--policy", "full", of=mqa)
with open(shape, "rb") as f:
    own = re.search(rb'"fingerprint": *"([0-9a-f]{32})"', f.read())[1].decode()
server = os.path.join(os.path.dirname(winnow), "winnow-llama-server")
st = os.stat(model)
files = f"{st.st_dev} {st.st_ino} {st.st_size} {st.st_mtime_ns // 10**9} {st.st_mtime_ns % 10**9} {len(os.fsencode(model))} {model}\n"
swapped = {"WINNOW_SERVE_MODEL_FILES": files, "WINNOW_SERVE_DOCUMENTS": f"x={shape}\n", "WINNOW_SERVE_FINGERPRINT": own, "WINNOW_SERVE_POLICY": "keydiff"}
done = subprocess.run([server, "-m", model, "-dev", "WINNOW", "-ngl", "99", "--fit", "off", "-kvu", "-np", "1", "-c", "2048", "-b", "512", "--cache-ram", "0", "--host",
                       "127.0.0.1", "--port", "0", "-t", "1"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env={**os.environ, **swapped})
# Another thread may have begun a line of the log there, with its time.
lines = [line for line in done.stderr.splitlines() if re.match(r"([\d.]+ )?([A-Z] )?winnow", line)]
check("another shape", done.returncode == 2 and len(lines) == 1 and "document x: libllama does not take it" in lines[0] and
      "listening on" not in done.stderr + done.stdout, done.returncode, done.stderr[-800:])
refuses("another type", "-ctk q8_0", compress("q8", small, "--policy", "full", "--kv-type", "q8_0", "--kv-rotate", "off"))
refuses("a rotation that libllama has not", "--kv-rotate off", compress("turned", small, "--policy", "full", "--kv-type", "q8_0"))
refuses("no template", "--raw", compress("raw", small, "--policy", "full", "--raw"))
refuses("another template", "as it was stored", first, rest=("--chat-template", "llama3"))
refuses("too little memory", "bytes", first, options=("--kv-bytes", "100K"))
work.cleanup()
work = tempfile.TemporaryDirectory()

# Parked by the command: a chat about the document begins with it, in a server that somebody starts later, and goes on like one that has read it.
for policy in (("--policy", "full"), ("--policy", "keydiff", "--budget", "100")):
    state = f"{work.name}/state-{policy[1]}"
    parked = compress(f"parked-{policy[1]}", words(150, 77), *policy)
    done = run("export", "-m", model, parked, "--state", state)
    check("a document is parked", done.returncode == 0 and len([f for f in os.listdir(state) if f.endswith(".park")]) == 1, done.stderr)
    question = user(words(150, 77) + "\n\nwho")
    with Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--state", state, *policy, "--", "-t", "1"]) as s:
        held = run("export", "-m", model, parked, "--state", state)
        check("not while a server has the folder", held.returncode == 2 and len(held.stderr.splitlines()) == 1 and "another server uses this folder" in held.stderr, held.stderr)
        got = chat(s, question)
        check("it is not read again", got.json["timings"]["cache_n"] > 650 and got.json["timings"]["prompt_n"] < 30, got.json["timings"])
        stored_tokens = ask(parked, "who")
        check("the answer of `winnow ask`", [t["id"] for t in got.json["choices"][0]["logprobs"]["content"]][:1] == stored_tokens[:1], got.text[:300], stored_tokens)
    with Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--state", state, *policy, "--", "-t", "1"]) as s:
        other = s.ask("/v1/chat/completions", {"messages": question, "max_tokens": N, "temperature": 0}, {"Authorization": "Bearer somebody"})
        check("it is of nobody who has a key", other.json["timings"]["prompt_n"] > 500, other.json["timings"])
    with Server([winnow, "serve", "-m", model, "--port", "0", "--slots", "2", "--state", state, "--policy", "keydiff", "--budget", "90", "--", "-t", "1"]) as s:
        got = chat(s, question)
        check("another policy reads it", got.json["timings"]["prompt_n"] > 500, got.json["timings"])

# A vocabulary of SentencePiece that puts a blank before a text and after special tokens, which the prompt's text does not have.
blank = f"{TINY}/chat/llama2.gguf"
state, text = f"{work.name}/state-blank", words(150, 78) + "."
kept = compress("kept", text, "--policy", "keydiff", "--ratio", "0.5", of=blank)
n_kept, want = json.loads(run("inspect", kept, "--json").stdout)["n_tokens"], ask(kept, "who", of=blank)
for to in (("--state", state), ("--slot", f"{work.name}/kept")):
    done = run("export", "-m", blank, kept, *to)
    check(f"exported {to[0]}", done.returncode == 0, done.stderr)
with Server([winnow, "serve", "-m", blank, "--port", "0", "--slots", "2", "--state", state, "--save", work.name, "--policy", "keydiff", "--ratio", "0.5", "--document", f"kept={kept}",
             "--", "-t", "1"]) as s:
    question = user(f"{text}\n\nwho")
    check("restored", s.ask("/winnow/slots/1?action=restore", {"filename": "kept"}).status == 200)
    for what, got in (("parked", chat(s, question, id_slot=0)), ("as a slot", chat(s, question, id_slot=1)), ("as a document", chat(s, user("who"), winnow={"document": "kept"}))):
        check(f"a blank before texts: {what}", got.status == 200 and same(tokens(got), want) and read(got) < 40, got.text[:600], want)
        if what != "as a document":
            check(f"a blank before texts: {what}: all of it", got.json["timings"]["cache_n"] >= n_kept - 8, got.json["timings"], n_kept)
both = run("export", "-m", model, parked, "--state", state, "--slot", f"{work.name}/x")
check("a slot or a folder", both.returncode == 2 and "exclude each other" in both.stderr, both.stderr)
finish()
