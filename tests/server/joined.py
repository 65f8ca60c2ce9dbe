#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Requests that begin with several documents: joined.py WINNOW

Each document is read once. Where all tokens of later ones are read again, answers are those of a prompt that has their texts. Else a part is moved, and keys of
the first layer, which depend on tokens and positions alone, are those of that prompt. Lists that are asked for in turn take each other's place.
"""
import re
import struct
import subprocess
import sys
import tempfile

from llama_server import TINY, Most, Server, at_once, check, finish, ids, reads_documents

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
CLOSE = 0.02  # the same tokens, in other batches
work = tempfile.TemporaryDirectory()


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


texts = {"a": words(150, 1), "b": words(170, 2), "c": words(90, 3), "tiny": "A few words."}


def path(name, text):
    with open(f"{work.name}/{name}", "w", encoding="utf-8") as f:
        f.write(text)
    return f.name


def documents(names="abc"):
    return [x for name in [*names] for x in ("--document", f"{name}={path(name, texts[name])}")]


def serve(*options, of=model):
    return Server([winnow, "serve", "-m", of, "--port", "0", *options, "--", "-t", "1"])


def chat(s, field, system=None, question="who", **more):
    messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": question}]
    return s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": True, "winnow": field, **more})


def first(reply):
    return reply.json["choices"][0]["logprobs"]["content"][0]["logprob"] if reply.status == 200 else reply.text


def same(x, y):
    return x.status == y.status == 200 and abs(first(x) - first(y)) < CLOSE


def read(reply):
    return reply.json["timings"]["prompt_n"] if reply.status == 200 else reply.text


def kv(s):
    return s.ask("/winnow/kv").json


def state_of(s, reply):
    """What libllama has of the slot of a reply."""
    slot = reply.headers["X-Winnow-Slot"]
    saved = s.ask(f"/winnow/slots/{slot}?action=save", {"filename": "slot"})
    check("a slot with several documents is saved", saved.status == 200, saved.text)
    with open(f"{work.name}/slot", "rb") as f:
        packed = f.read()
    at, state = packed.index(struct.pack("<I", 0xAF143CD8)) - 16, b""
    while at < len(packed):
        plain, ones = struct.unpack_from("<QQ", packed, at)
        state += packed[at + 16:at + 16 + plain] + b"\xff" * ones
        at += 16 + plain
    return state


def keys_of(state):
    """Rows of the first layer's keys, in the order of their positions, and of the last one's."""
    _, _, _, n = struct.unpack_from("<IIII", state)
    at, layers = 16 + 12 * n, []
    _, n_layers = struct.unpack_from("<II", state, at)
    at += 8
    for _ in range(n_layers):
        row = struct.unpack_from("<Q", state, at + 4)[0]
        layers.append([struct.unpack_from(f"<{row // 2}e", state, at + 12 + i * row) for i in range(n)])
        at += 12 + n * row
    return layers[0], layers[-1]


def furthest(xs, ys, n):
    return max(abs(x - y) for one, other in zip(xs[:n], ys[:n]) for x, y in zip(one, other))


# Everything is kept.
with serve("--policy", "full", "--slots", "2", "--context", "3000", "--save", work.name, *documents()) as s:
    reads_documents(s)  # else one is read in the slot that is saved
    anew = chat(s, {}, texts["a"] + "\n\n" + texts["b"])
    keys = keys_of(state_of(s, anew))
    whole = chat(s, {"documents": ["a", "b"], "reread": 1})
    check("all is read again: as a prompt with both texts", same(anew, whole) and read(whole) < 60, first(anew), first(whole), read(whole))
    joined = chat(s, {"documents": ["a", "b"]}, id_slot=0)
    check("the request reads its question alone", read(joined) < 60, read(joined))
    moved = keys_of(state_of(s, joined))
    n = len(keys[0]) - 8
    check("the same keys in the first layer, at new positions", len(moved[0]) == len(keys[0]) and furthest(keys[0], moved[0], n) < 0.01, furthest(keys[0], moved[0], n))
    check("and other ones in the last, which have not seen the first document", furthest(keys[1], moved[1], n) > 0.05, furthest(keys[1], moved[1], n))
    plain = chat(s, {"documents": ["a", "b"], "reread": 0}, id_slot=0)
    check("nothing is read again", read(plain) < 60 and furthest(keys[0], keys_of(state_of(s, plain))[0], n) < 0.01, read(plain))
    other = chat(s, {"documents": ["b", "a"], "reread": 1})
    check("the other order", same(other, chat(s, {}, texts["b"] + "\n\n" + texts["a"])), first(other))
    three = chat(s, {"documents": ["c", "a", "b"], "reread": 1})
    check("three of them", same(three, chat(s, {}, "\n\n".join(texts[x] for x in "cab"))), first(three))
    slot = kv(s)["slots"][int(three.headers["X-Winnow-Slot"])]
    again = at_once(*[lambda i=i: chat(s, {"documents": ["a", "b"]}, id_slot=i) for i in (0, 1)])
    check("on all slots", all(same(joined, x) and read(x) < 60 for x in again), first(joined), [first(x) for x in again])
    check("their names are shown", kv(s)["slots"][0]["document"] == "a+b", kv(s)["slots"])
    before = [(d["name"], d["entries"]) for d in kv(s)["documents"]]
    # More lists than there is place for: each takes the place of another one.
    for i in range(12):
        came = chat(s, {"documents": ["c", "b"], "reread": 0.2 + i / 40})
        check("a list of many", came.status == 200 and read(came) < 60, came.text)
    check("the first one again", same(joined, chat(s, {"documents": ["a", "b"]})))
    inline = chat(s, {}, texts["c"] + "\n\n" + texts["b"], id_slot=int(came.headers["X-Winnow-Slot"]))
    check("texts that nobody wants joined are read", read(inline) > 100, read(inline))
    held = chat(s, {"documents": ["b", "c"]}, id_slot=1)
    for i in range(8):
        chat(s, {"documents": ["c", "a"], "reread": 0.3 + i / 40}, id_slot=0)
    inline = chat(s, {}, texts["b"] + "\n\n" + texts["c"], id_slot=1)
    check("also where their list is gone", held.status == 200 and read(inline) > 100, read(inline))
    goes_on = [chat(s, {"documents": ["a", "b"]}, question=f"what {i}") for i in range(3)]
    check("more questions", all(x.status == 200 and read(x) < 60 for x in goes_on))
    check("no document has changed", before == [(d["name"], d["entries"]) for d in kv(s)["documents"]], kv(s)["documents"])
    check("one alone is what it was", same(chat(s, {"documents": ["a"]}), chat(s, {"document": "a"})))
    for field, says in (({"documents": []}, "list of 1 to 8"), ({"documents": "a"}, "list of 1 to 8"), ({"documents": ["a"] * 9}, "list of 1 to 8"), ({"documents": ["a", "a"]}, "twice"),
                        ({"documents": ["a", "x"]}, "there is no 'x'"), ({"documents": ["a", 1]}, "name of a document"), ({"documents": ["a", "b"], "document": "a"}, "not both"),
                        ({"documents": ["a", "b"], "reread": 1.5}, "from 0 to 1"), ({"documents": ["a", "b"], "reread": "x"}, "from 0 to 1"), ({"reread": 0.5}, "several documents")):
        bad = chat(s, field)
        check(f"{field} is refused", bad.status == 400 and says in bad.text, bad.text)

# A part of each is kept, and one is too short to be moved.
with serve("--policy", "keydiff", "--budget", "150", "--slots", "2", "--context", "3000", "--document", f"tiny={path('tiny', texts['tiny'])}", *documents()) as s:
    reads_documents(s)
    joined = chat(s, {"documents": ["a", "b"]}, id_slot=0)
    slot = kv(s)["slots"][0]
    check("compressed ones are joined", read(joined) < 60 and 250 < slot["entries"] < 420, slot)
    chat(s, {"documents": ["b", "c", "a"]}, id_slot=0)
    for i in range(9):
        chat(s, {"documents": ["c", "b"], "reread": 0.2 + i / 40}, id_slot=0)
    check("the same after their place was given away", same(joined, chat(s, {"documents": ["a", "b"]}, id_slot=1)))
    short = chat(s, {"documents": ["a", "tiny", "b"]})
    check("a short one is read", read(short) < 60, short.text)
    check("at the end, too", read(chat(s, {"documents": ["a", "tiny"]})) < 100)
    two = chat(s, {"documents": ["a", "b"]}, n=2)
    check("n = 2", two.status == 200 and len(two.json["choices"]) == 2 and same(joined, two), two.text)

# Stored ones.
made = {}
for name in "ab":
    made[name] = f"{work.name}/{name}.wkv"
    done = subprocess.run([winnow, "compress", "-m", model, "-f", path(name, texts[name]), "-o", made[name], "--policy", "full"], capture_output=True, text=True, timeout=300)
    check("it is stored", done.returncode == 0, done.stderr)
with serve("--policy", "full", "--slots", "2", "--context", "3000", *[x for name in "ab" for x in ("--document", f"{name}={made[name]}")], *documents("c")) as s:
    anew = chat(s, {}, question=texts["a"] + "\n\n" + texts["b"] + "\n\nwho")
    check("stored documents are joined", same(anew, chat(s, {"documents": ["a", "b"], "reread": 1})), first(anew))
    check("and moved", read(chat(s, {"documents": ["b", "a"]})) < 60)
    mixed = chat(s, {"documents": ["a", "c"]})
    check("texts and stored ones stand at different places", mixed.status == 400 and "of one kind" in mixed.text, mixed.text)

# Bounded memory. The later documents of a list count, and what is in their way leaves.
def bounded(cap, *policy):
    s = serve(*policy, "--slots", "2", "--context", "3000", "--kv-bytes", str(cap), *documents())
    reads_documents(s)
    return s


for policy in (("--policy", "full"), ("--policy", "keydiff", "--budget", "100")):
    MANY = 200000
    with bounded("64M", *policy) as s:
        mine = s.complete(ids(200, 61), 3, id_slot=1)
        asked = chat(s, {"documents": ["a", "b"]}, id_slot=0)
        check(f"{policy}: with room", asked.status == 200 and read(asked) < 60, asked.text)
        went = s.complete(ids(200, 61) + mine["tokens"] + [9], 2, id_slot=1)
        check("what has room stays", went["timings"]["cache_n"] >= 200, went["timings"])
    with bounded("64M", *policy) as s:
        never = chat(s, {"documents": ["a", "b"]}, max_tokens=MANY)
        check("what can never fit is refused", never.status == 400 and "one after the other takes" in never.text, never.text)
        found = re.search(r"prompt of (\d+) tokens.*takes (\d+) bytes.*documents take (\d+); putting.*takes (\d+) of.*whole pages (\d+)", never.text)
        n_prompt, peak, by_documents, by_list, by_pages = (int(x) for x in found.groups())
        row = (peak - by_list) // (n_prompt + MANY)
    cap = by_documents + by_pages + by_list + (n_prompt + 4) * row
    with bounded(cap, *policy) as s:
        most = Most(s)
        for i in (0, 1):
            s.complete(ids(60, 70 + i), 2, id_slot=i)
        held = [x["tokens"] for x in kv(s)["slots"]]
        joined = chat(s, {"documents": ["a", "b"]}, id_slot=0)
        check("with no room to spare", min(held) > 50 and same(asked, joined) and read(joined) < 60, held, first(asked), first(joined))
        check("the other slot has left", kv(s)["slots"][1]["tokens"] == 0, kv(s)["slots"])
        check("a list that has it", same(joined, chat(s, {"documents": ["a", "b"]}, id_slot=1)))
        check("another list takes its place", chat(s, {"documents": ["a", "c"]}).status == 200)
        check("and a prompt that of both", s.complete(ids(60, 72), 2, id_slot=1)["timings"]["prompt_n"] == 60)
        check("the first one again", same(joined, chat(s, {"documents": ["a", "b"]}, id_slot=0)))
        seen = [x.status for x in at_once(*[lambda i=i: chat(s, {"documents": [["a", "b"], ["b", "a"], ["a", "c"], ["c", "b"]][i % 4]}) for i in range(12)])]
        check("many at once", 200 in seen and set(seen) <= {200, 400, 503}, seen)
        check("the cap held", most.end() <= cap, most.bytes, cap)
    with bounded(cap - row, *policy) as s:
        check("a token less", chat(s, {"documents": ["a", "b"]}).status == 400 and chat(s, {"documents": ["a"]}).status == 200)

# Where it cannot be had.
with Server([winnow, "serve", "-m", f"{TINY}/tiny-gemma3.gguf", "--port", "0", "--slots", "2", *documents("ab"), "--", "-t", "1", "--swa-full"]) as s:
    sliding = chat(s, {"documents": ["a", "b"]})
    check("a sliding window", sliding.status == 400 and "sliding window" in sliding.text, sliding.text)
    check("one alone is served", chat(s, {"documents": ["a"]}).status == 200)
finish()
