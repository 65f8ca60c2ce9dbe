#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Parked conversations of `winnow serve`: parked.py WINNOW

More conversations than slots: each goes on where it was, from memory or from a folder, with the answers of a server with a slot for each. What is
parked belongs to the API key that brought it. Limits are kept, and what cannot be used is passed over.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from llama_server import TINY, Server, at_once, check, comparable, finish, ids, nearly_same, until

winnow = sys.argv[1]
# The same computation with other rows in a batch.
CLOSE = 0.02
N, TURNS, LENGTH = 6, 3, 300


def serve(*options, slots=2, model="tiny-llama.gguf", policy=("--policy", "full"), rest=()):
    return Server([winnow, "serve", "-m", f"{TINY}/{model}", "--port", "0", "--slots", str(slots), *policy, *options, "--", "-t", "1", *rest])


def kv(s):
    return s.ask("/winnow/kv").json


def parked(s):
    return kv(s)["parked"]


def cached(answer):
    return answer["timings"]["cache_n"]


def begin(i):
    return ids(LENGTH, i)


def turn(i, t):
    return ids(40, 100 * t + i)


def talk(s, n=N, turns=TURNS, **more):
    """Conversations in turn, each with its own earlier turns; the answers [turn][conversation]."""
    texts, out = [begin(i) for i in range(n)], []
    for t in range(turns):
        out.append([])
        for i in range(n):
            texts[i] = texts[i] + turn(i, t)
            answer = s.complete(texts[i], 6, **more)
            texts[i] = texts[i] + answer["tokens"]
            out[-1].append(answer)
    return out


def says(s, text):
    return [line for line in s.log().splitlines() if line.startswith("winnow") and text in line]


# Answers are those of a server that never parks.
for name, policy in (("full", ("--policy", "full")), ("keydiff", ("--policy", "keydiff", "--budget", "120")), ("ratio", ("--policy", "keydiff", "--ratio", "0.5"))):
    with serve("--park", "0", slots=N, policy=policy) as s:
        want = talk(s)
        check(f"{name}: nothing is parked where it is off", parked(s)["parked"] == 0 and parked(s)["bytes_most"] == 0, kv(s))
    with serve("--park", "64M", policy=policy) as s:
        got = talk(s)
        now = parked(s)
        check(f"{name}: later turns read what is new alone", all(a["timings"]["prompt_n"] <= 42 for t in got[1:] for a in t), [[a["timings"]["prompt_n"] for a in t] for t in got])
        check(f"{name}: and are answered as without parking", all(nearly_same(a, b, CLOSE) for x, y in zip(want, got) for a, b in zip(x, y)))
        check(f"{name}: each is parked once", now["in_memory"] <= N and now["used"] == N * (TURNS - 1) and now["evicted"] == 0 and now["on_disk"] == 0, now)
        text = s.ask("/metrics").text
        check(f"{name}: metrics", f"winnow:parked_used_total {now['used']}\n" in text and "winnow:parked_bytes " in text)
        size = now["bytes"]
    if name == "full":
        whole = size
check("what is compressed takes less", size < 0.75 * whole, size, whole)

# A whole slot is compressed further when it is parked, and goes on.
with serve("--park", "64M", "--park-ratio", "0.75") as s:
    got = talk(s)
    check("--park-ratio: later turns read what is new alone", all(a["timings"]["prompt_n"] <= 42 for t in got[1:] for a in t), [[a["timings"]["prompt_n"] for a in t] for t in got])
    check("--park-ratio: takes a part of the bytes", parked(s)["bytes"] < 0.5 * whole and kv(s)["compressions"] > 0, parked(s), whole)

# A policy of blocks judges each block once, also where the conversation was parked or saved in between, and after a restart.
def grow(s, between):
    text, entries, answers = ids(400, 31), [], []
    for t in range(4):
        answers.append(s.complete(text, 6))
        entries.append(kv(s)["slots"][0]["entries"])
        text = text + answers[-1]["tokens"] + ids(200, 40 + t)
        s = between(s, t)
    return entries, answers, s


for size in ((), ("--ratio", "0.5")):
    blocks = ("--policy", "lagkv:lag=32,sink=4", *size)
    with serve("--park", "0", slots=1, policy=blocks) as s:
        want, answers, _ = grow(s, lambda s, t: s)
    with serve("--park", "64M", slots=1, policy=blocks) as s:
        got, again, _ = grow(s, lambda s, t: s.complete(ids(300, 60 + t), 1) and s)
        check(f"lagkv {size}: what stays is the same where it was parked", got == want and all(nearly_same(a, b, CLOSE) for a, b in zip(answers, again)), got, want)
    with tempfile.TemporaryDirectory() as folder:
        def end(s, t):
            s.stop()
            return serve("--park", "64M", "--state", folder, slots=1, policy=blocks)
        got, again, s = grow(end(serve("--park", "0", slots=1, policy=blocks), 0), end)
        s.stop()
        check(f"lagkv {size}: and after restarts", got == want and all(nearly_same(a, b, CLOSE) for a, b in zip(answers, again)), got, want)
check("earlier blocks stay", want[0] > 150, want)

# Memory alone has room for two of six: the oldest are gone, and read again.
with serve("--park", str(2 * whole // N + whole // N // 2)) as s:
    got = talk(s, turns=2)
    now = parked(s)
    check("a small --park holds its limit", now["bytes"] <= now["bytes_most"] and now["evicted"] > 0 and now["in_memory"] <= 2, now)
    a = s.complete(begin(N - 3) + turn(N - 3, 0), 1)
    check("and has the newest", cached(a) > LENGTH, a["timings"])
with serve("--park", "4K") as s:
    talk(s, turns=2)
    check("--park smaller than one conversation: said once", len(says(s, "--park allows 4096")) == 1 and parked(s)["bytes"] == 0, s.log()[-600:], parked(s))

# Two forks of one conversation, from one parked prompt.
with serve("--park", "64M", slots=1) as s:
    s.complete(begin(1), 1)
    s.complete(begin(2), 1)
    a = s.complete(begin(1)[:200] + ids(30, 77), 4)
    b = s.complete(begin(1)[:250] + ids(30, 78), 4)
    check("forks begin with what they share", 190 <= cached(a) <= 201 and 240 <= cached(b) <= 251, a["timings"], b["timings"])

# Owners: the same text under another key is read.
with serve("--park", "64M", slots=1) as s:
    def ask(i, prompt, header="Authorization"):
        value = ("one", "two")[i]
        headers = {header: f"Bearer {value}" if header == "Authorization" else value}
        return s.ask("/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0}, headers).json
    ask(0, begin(1))
    ask(0, begin(2))
    n = parked(s)["used"]
    check("another key's is read anew", cached(ask(1, begin(1) + [30])) < 5 and parked(s)["used"] == n)
    check("the same key's comes back", cached(ask(0, begin(2) + [30])) >= LENGTH - 1, parked(s))
    check("under any header that has it", cached(ask(0, begin(1) + [31], "x-api-key")) >= LENGTH - 1, parked(s))

# Reuse rules are those of slots.
with serve("--park", "64M", slots=1) as s:
    s.complete(begin(1), 1, winnow={"policy": "keydiff", "budget": 60})
    s.complete(begin(2), 1)
    check("kept for another policy: read anew", cached(s.complete(begin(1) + [30], 1)) == 0)
    s.complete(begin(2) + [30], 1)
    check("for the same: it goes on", cached(s.complete(begin(1) + [31], 1, winnow={"policy": "keydiff", "budget": 60})) >= LENGTH)
    s.complete(begin(2) + [31], 1)
    check("never: it is read", cached(s.complete(begin(1) + [32], 1, winnow={"policy": "keydiff", "budget": 60, "reuse": "never"})) == 0)
    # A slot that was restored and cut back is saved as what it is.
    s.complete(begin(2) + [32], 1)
    s.complete(begin(1)[:250] + [33], 1)
    s.complete(begin(3), 1)
    check("parked again after it was cut back", cached(s.complete(begin(1)[:250] + [33, 34], 1)) >= 250 and not says(s, "passed over"), s.log()[-600:])

# Chats in their routes, at once.
with serve("--park", "64M", policy=("--policy", "auto", "--ratio", "0.5")) as s:
    def chat(i, messages):
        r = s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0})
        check("a chat is answered", r.status == 200, r.text)
        return messages + [{"role": "assistant", "content": r.json["choices"][0]["message"]["content"]}], r.json["timings"]
    words = [" ".join(f"w{x}" for x in ids(120, i)) for i in range(8)]
    first = at_once(*[lambda i=i: chat(i, [{"role": "user", "content": words[i]}])[0] for i in range(8)])
    second = at_once(*[lambda m=m: chat(0, m + [{"role": "user", "content": "and then?"}])[1] for m in first])
    check("chats come back", sum(t["cache_n"] > 200 for t in second) == 8, second)
    r = s.ask("/v1/messages", {"messages": first[0] + [{"role": "user", "content": "and now?"}], "max_tokens": 4})
    check("on another route, too", r.status == 200 and r.json["usage"].get("cache_read_input_tokens", 999) > 200, r.text)

# Why a prompt was read: where its tokens came from, and where it breaks.
with serve("--park", "64M", slots=1) as s:
    def last(key=None):
        return s.ask("/winnow/kv", headers={"Authorization": f"Bearer {key}"} if key else None).json["requests"]

    def ask(day, *turns):
        messages = [{"role": "system", "content": f"Today is 2026-11-{day}. Be brief."}] + [{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(turns)]
        check("a chat is answered", s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0}).status == 200)
        return last()[0]
    one = ask(27, words[0])
    check("new: all is read", one["from_slot"] == one["parked"] == 0 and one["read"] > 200 and "cause" not in one, one)
    two = ask(28, words[0])
    check("a date in the system message", two["cause"].startswith("a date") and "2026-11-2" in two["before"] and two["was"].startswith("7") and two["is"].startswith("8") and
          two["differs_at"] == two["from_slot"] > 10, two)
    s.complete(ids(300, 3), 2)
    check("another conversation", last()[0]["cause"] == "another conversation had the slot" and last()[0]["read"] == 300, last()[0])
    three = ask(28, words[0], "yes", "and?")
    check("parked", three["parked"] > 200 and three["from_slot"] == 0 and three["read"] < 60, three)
    three = ask(28, words[0], "yes", "and more?")
    check("an edited turn: from the slot, up to there", three["from_slot"] > 200 and three["was"].startswith("?") and three["is"].startswith(" more"), three)
    check("texts are shown to their owner alone", all("was" not in x for x in last("other")) and any("was" in x for x in last()))
    s.complete(ids(300, 3), 2, winnow={"policy": "keydiff", "budget": 60, "reuse": "never"})
    check("another policy", "another policy" in last()[0]["cause"] or "another conversation" in last()[0]["cause"], last()[0])
    check("the log has a line for each", len(says(s, "tokens read, ")) == 6 and len(last()) == 6, s.log()[-900:])

# What another client said is said to nobody: not to who gets its slot, nor to who gets a slot into which somebody restored a file.
with tempfile.TemporaryDirectory() as folder, serve("--park", "64M", "--save", folder, slots=1) as s:
    def of(key, text):
        r = s.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": "Be brief and polite to everybody who writes to you."}, {"role": "user", "content": text}], "max_tokens": 4},
                  {"Authorization": f"Bearer {key}"})
        check("a chat is answered", r.status == 200, r.text)
        host = "http://%s:%d" % s.address()
        told = subprocess.run([winnow, "ctl", "why", "--url", host, "--api-key", key], capture_output=True, text=True).stdout
        return s.ask("/winnow/kv", headers={"Authorization": f"Bearer {key}"}).json["requests"][0], s.ask("/winnow/kv", headers={"Authorization": f"Bearer {key}"}).text + told
    secret = "the number is hunter2 " * 8
    of("one", secret)
    mine, all_of_it = of("two", "hello")
    check("another key's text is not told", "hunter" not in all_of_it and "number" not in all_of_it and "was" not in mine and mine["is"].startswith("hello"), all_of_it)
    check("that it was another's is", mine["cause"] == "another client's conversation had the slot" and mine["from_slot"] > 10, mine)
    mine, _ = of("two", "help")
    check("the same key's is told", mine["was"].startswith(("lo", "o", "hello")), mine)
    of("one", secret)
    check("a slot is saved", s.ask("/winnow/slots/0?action=save", {"filename": "one"}, {"Authorization": "Bearer one"}).status == 200)
    of("two", "hello")
    check("a slot is restored", s.ask("/winnow/slots/0?action=restore", {"filename": "one"}, {"Authorization": "Bearer one"}).status == 200)
    mine, all_of_it = of("two", "hello again")
    check("a restored text is not told", "hunter" not in all_of_it and "number" not in all_of_it, all_of_it)

# A prompt may go back into the header of what was compressed: it is parked, and comes back.
with serve("--park", "64M", slots=1, policy=("--policy", "keydiff", "--ratio", "0.5"), rest=()) as s:
    def short(system, text):
        r = s.ask("/v1/chat/completions", {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}], "max_tokens": 4, "temperature": 0, "ignore_eos": True, "winnow": {"reuse": "any"}})
        check("a chat is answered", r.status == 200, r.text)
        return r.json["timings"]
    system, long = " ".join(f"w{x}" for x in ids(40, 1)), " ".join(f"w{x}" for x in ids(60, 2))
    short(system, long)
    check("it goes back into the header", short(system[:80], "hi")["cache_n"] > 60)
    short("x", long)
    check("and comes back from where it was parked", short(system[:80], "hi")["cache_n"] > 90 and not says(s, "passed over"), s.log()[-600:])

# A slot that was restored, and that nobody has asked, keeps no other one from being known: what comes back is counted, compressed and parked as any other.
with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saves:
    keydiff = {"policy": "keydiff", "ratio": 0.5}
    with serve("--park", "64M", "--state", folder, "--save", saves, slots=3) as s:
        a, b, c = (ids(136, i, 5, 200) for i in (71, 72, 73))
        s.complete(ids(200, 70, 5, 200), 1, id_slot=0)
        s.complete(c, 1, id_slot=1)
        check("a slot is saved", s.ask("/winnow/slots/1?action=save", {"filename": "c"}).status == 200)
        s.complete(ids(300, 74, 5, 200), 1, id_slot=2)
        s.complete(a, 1, id_slot=1)
        s.complete(ids(90, 75, 5, 200), 1, id_slot=0)
        s.complete(ids(60, 76, 5, 200), 1, id_slot=1)  # a is parked, and free cells do not follow each other
        check("a slot is restored", s.ask("/winnow/slots/1?action=restore", {"filename": "c"}).status == 200)
        text = a[:100] + ids(30, 77, 5, 200)
        got = s.complete(text, 1, id_slot=2)
        last, slot = kv(s)["requests"][0], kv(s)["slots"][2]
        check("it came back", cached(got) == 100 == last["parked"] and last["read"] == 30 and last["from_slot"] == 0, got["timings"], last)
        check("its entries are counted", slot["tokens"] == 130 and slot["entries"] == 130, slot)
        got = s.complete(text + ids(200, 78, 5, 200), 1, id_slot=2, winnow={**keydiff, "reuse": "any"})
        check("it is compressed", cached(got) == 130 and kv(s)["slots"][2]["compressed"] and kv(s)["slots"][2]["entries"] < 200, kv(s)["slots"][2])
        check("SIGTERM ends it", s.stop() == 0 and not says(s, "is not parked"), s.log()[-600:])

# The same of models whose states cannot be cut: the list says where tokens differ, however far the server goes back for it.
for model in ("foreign/lfm2.gguf", "foreign/granitehybrid.gguf", "foreign/gpt-oss.gguf", "tiny-gemma3.gguf", "tiny-llama.gguf"):
    with serve("--park", "64M", slots=1, model=model) as s:
        text = ids(150, 21, 5, 50)
        text = text + s.complete(text, 3)["tokens"] + ids(60, 22, 5, 50)
        s.complete(text, 3)
        other = text[:100] + [51] + ids(60, 23, 5, 50)
        answers = [s.complete(x, 3) for x in (other, ids(200, 24, 5, 50), text, text)]
        same, back, new, changed, grown, begun = s.ask("/winnow/kv").json["requests"]
        check(f"{model}: all is read", begun["read"] == 150 and "cause" not in begun, begun)
        check(f"{model}: a conversation goes on", grown["from_slot"] > 140 and grown["from_slot"] + grown["read"] == len(text) and "cause" not in grown, grown)
        check(f"{model}: a token differs", changed["differs_at"] == 100 and changed["from_slot"] + changed["read"] == len(other) and changed["from_slot"] <= 100, changed)
        check(f"{model}: another conversation", new["from_slot"] + new["read"] == 200 and "another conversation" in new["cause"], new)
        check(f"{model}: what was parked", back["parked"] + back["read"] == len(text) and back["parked"] > 140, back)
        check(f"{model}: the same prompt", same["from_slot"] + same["read"] == len(text) and "differs_at" not in same and (same["read"] == 1 or "ends of turns" in same["cause"]), same)
        done = subprocess.run([winnow, "ctl", "why", "--url", "http://%s:%d" % s.address()], capture_output=True, text=True)
        check(f"{model}: ctl why", done.returncode == 0 and len([x for x in done.stdout.splitlines() if x.startswith("slot 0: ")]) == 6 and "differs from token 100 on" in done.stdout, done.stdout, done.stderr)

# Models with windows, and with recurrent layers. The last token that a limit allowed is not in the cache: it is read with the next turn, and nothing else is.
for model in ("foreign/gemma4.gguf", "foreign/lfm2.gguf", "tiny-gemma3.gguf", "foreign/gpt-oss.gguf", "foreign/granitehybrid.gguf", "foreign/qwen35.gguf"):
    with serve("--park", "0", slots=3, model=model) as s:
        want = [s.complete(ids(120, i, 5, 50), 4) for i in range(3)]
        want = [s.complete(ids(120, i, 5, 50) + w["tokens"] + ids(10, i + 9, 5, 50), 4) for i, w in enumerate(want)]
    with serve("--park", "64M", slots=1, model=model) as s:
        got = [s.complete(ids(120, i, 5, 50), 4) for i in range(3)]
        got = [s.complete(ids(120, i, 5, 50) + w["tokens"] + ids(10, i + 9, 5, 50), 4) for i, w in enumerate(got)]
        told = [(a, b) for a, b in zip(want, got) if comparable(a, b)]
        check(f"{model}: answers as without parking", told and all(nearly_same(a, b, 0.1) for a, b in told), s.log()[-400:])
        check(f"{model}: comes back, and reads its new tokens and the last one", all(a["timings"]["prompt_n"] == 11 for a in got), [a["timings"] for a in got], parked(s),
              s.log()[-600:])

# Bit for bit: one slot that is parked in turn computes what a slot of its own computes, where the same tokens come in the same batches. In more slots, or in
# windows, the same tokens are in other cells, whose sums are rounded otherwise.
def bits(s, texts, i):
    a = s.complete(texts.setdefault(i, ids(150, i, 5, 200)), 8)
    texts[i] = texts[i] + a["tokens"] + ids(40, 100 * i + len(texts[i]), 5, 200)
    return a["tokens"], a.get("completion_probabilities"), a["timings"]["prompt_n"]


for model, policy in (("tiny-llama.gguf", ("--policy", "full")), ("tiny-llama.gguf", ("--policy", "keydiff", "--budget", "100")), ("tiny-qwen2.gguf", ("--policy", "full")), ("foreign/lfm2.gguf", ("--policy", "full"))):
    alone = {}
    for i in range(3):
        with serve("--park", "0", slots=1, model=model, policy=policy) as s:
            texts = {}
            alone[i] = [bits(s, texts, i) for _ in range(3)]
    with serve("--park", "64M", slots=1, model=model, policy=policy) as s:
        texts = {}
        turns = [[bits(s, texts, i) for i in range(3)] for _ in range(3)]
    check(f"{model} {policy[1]}: bit for bit", all(turns[t][i] == alone[i][t] for t in range(3) for i in range(3)), turns, alone)

# A folder: what has no room in memory is there.
with tempfile.TemporaryDirectory() as folder:
    with serve("--park", str(whole // N * 2), "--state", folder) as s:
        got = talk(s)
        check("from the folder: later turns read what is new alone", all(a["timings"]["prompt_n"] <= 42 for t in got[1:] for a in t), [[a["timings"]["prompt_n"] for a in t] for t in got])
        check("each has its file", until(lambda: parked(s)["on_disk"] >= N - 2) and parked(s)["bytes"] <= parked(s)["bytes_most"], parked(s))
        files = [f for f in os.listdir(folder) if f.endswith(".park")]
        check("in files of their own, for nobody else", len(files) <= N and all(os.stat(f"{folder}/{f}").st_mode & 0o77 == 0 for f in files), os.listdir(folder))
        two = subprocess.run([winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--state", folder], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        check("two servers on one folder", two.returncode == 2 and len([x for x in two.stderr.splitlines() if "another server uses this folder" in x]) == 1, two.stderr[-600:])
        # Files that are cut and flipped while the server runs.
        for i, f in enumerate(sorted(files)):
            with open(f"{folder}/{f}", "r+b") as x:
                if i % 2:
                    x.truncate(os.path.getsize(x.name) // 2)
                else:
                    x.seek(-1000, 2)
                    x.write(b"flipped!")
        more = talk(s)
        check("damaged files are passed over, and all is answered as before", all(nearly_same(a, b, CLOSE) for x, y in zip(got, more) for a, b in zip(x, y)) and
              0 < len(says(s, "is passed over: it is damaged")) <= len(files), s.log()[-900:])
        check("SIGTERM ends it", s.stop() == 0)
    with serve("--park", "0", "--state", folder, "--park-disk", str(whole // N * 3)) as s:
        talk(s, turns=2)
        # What is being written to the folder is in memory until then.
        check("a folder alone, with a limit", until(lambda: parked(s)["disk_bytes"] <= parked(s)["disk_bytes_most"] and parked(s)["in_memory"] == 0) and parked(s)["on_disk"] > 0, parked(s))
        check("the folder has no more than that", until(lambda: sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder)) <= whole // N * 3), os.listdir(folder))

# Folders that cannot be used.
for name, path in (("no name", ""), ("a file", __file__), ("no folder above", "/nonexistent/there"), ("read-only", "/proc")):
    done = subprocess.run([winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--state", path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    lines = [x for x in done.stderr.splitlines() if x.startswith("winnow") and "--state" in x]
    check(f"refused: {name}", done.returncode == 2 and len(lines) == 1, done.returncode, done.stderr[-600:])
# A disk that takes no more: what is parked stays in memory.
limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 200; exec "$@"', "bash"]
with tempfile.TemporaryDirectory() as folder:
    with Server([*limited, winnow, "serve", "-m", f"{TINY}/tiny-llama.gguf", "--port", "0", "--slots", "2", "--policy", "full", "--state", folder, "--", "-t", "1"]) as s:
        got = talk(s)
        check("a full disk: later turns read what is new alone", all(a["timings"]["prompt_n"] <= 42 for t in got[1:] for a in t), s.log()[-600:])
        check("a full disk: said once", len(says(s, "is not written and stays in memory")) == 1 and os.listdir(folder) == ["winnow.lock"], s.log()[-600:], os.listdir(folder))
finish()
