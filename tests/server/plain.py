#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""llama.cpp's own server over the backend, loaded by GGML_BACKEND_PATH: plain.py SERVER LIBRARY

The environment sets a policy, and nothing else of the server knows of it. Compared are a server without the backend and one
that keeps everything.
"""
import pathlib
import re
import sys
import tempfile
import zlib

from llama_server import TINY, Server, at_once, check, finish, ids, nearly_same, until

server, library = sys.argv[1], sys.argv[2]
model = f"{TINY}/tiny-llama.gguf"
PLAIN = [server, "-m", model, "-c", "8192", "-np", "2", "-kvu", "-b", "512", "-t", "1", "--cache-ram", "0", "--port", "0",
         "--host", "127.0.0.1"]
OURS = PLAIN + ["-dev", "WINNOW", "-ngl", "99"]
# Two ways to compute the same logits of a model with random weights in f16.
BOUND = 0.05
# The same way, with other rows in a batch.
CLOSE = 0.02


def env(policy=None, budget=None):
    e = {"GGML_BACKEND_PATH": library, "WINNOW_VERBOSE": "1"}
    if policy:
        e.update(WINNOW_POLICY=policy, WINNOW_BUDGET=str(budget))
    return e


def compressions(s):
    return [(int(n), int(k)) for n, k in re.findall(r"of (\d+) tokens, (\d+) entries per head are kept", s.log())]


def once(s, *lengths):
    """Whether prompts of these lengths were compressed to 150, each once: with the first token of the answer, unless the prompt's
    last token came alone (decision 050)."""
    found = sorted(compressions(s))
    return len(found) == len(lengths) and all(n in (m, m + 1) and k == 150 for (n, k), m in zip(found, sorted(lengths)))


first, second, long_one = ids(700, 1), ids(900, 2), ids(1025, 3)

# Without eviction the answers are those of a server without us; a prefix that is reused too.
with Server(PLAIN) as s:
    want = s.complete(first, 12, id_slot=0)
    want_second = s.complete(second, 12, id_slot=1)
with Server(OURS, env()) as s:
    check("layers are ours", "layers with a ragged cache: 4" in s.log(), s.log()[-2000:])
    whole = s.complete(first, 12, id_slot=0)
    again = s.complete(first, 12, id_slot=0)
    check("the answer is that without the backend", nearly_same(want, whole, BOUND), want, whole)
    check("the prefix was reused", again["timings"]["prompt_n"] <= 1, again["timings"])
    check("a reused prefix answers the same", nearly_same(whole, again, CLOSE), whole, again)
    extended = s.complete(first + second[:100], 12, id_slot=0)
    fresh = s.complete(first + second[:100], 12, id_slot=1, cache_prompt=False)
    check("what follows a reused prefix was read alone", extended["timings"]["prompt_n"] <= 101, extended["timings"])
    check("and answers as read at once", nearly_same(extended, fresh, CLOSE), extended, fresh)
    both = at_once(lambda: s.complete(first, 12, id_slot=0, cache_prompt=False),
                   lambda: s.complete(second, 12, id_slot=1, cache_prompt=False))
    check("two slots at once: the first", nearly_same(whole, both[0], CLOSE), whole, both[0])
    check("two slots at once: the second", nearly_same(want_second, both[1], BOUND), want_second, both[1])
    check("nothing was compressed", not compressions(s), compressions(s))
    check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])

# With eviction: once for each prompt, for any length and any other prompts in the batch.
with Server(OURS, env("snapkv", 150)) as s:
    alone = s.complete(first, 12, id_slot=0)
    check("a prompt is compressed once", once(s, 700), compressions(s))
    check("and its answer is another one", not nearly_same(want, alone, BOUND), alone)
    s.complete(long_one, 12, id_slot=1)
    check("a prompt of twice 512 tokens and one more", once(s, 700, 1025), compressions(s))
with Server(OURS, env("snapkv", 150)) as s:
    both = at_once(lambda: s.complete(first, 40, id_slot=0), lambda: s.complete(second, 40, id_slot=1))
    check("two slots at once are each compressed once", once(s, 700, 900), compressions(s))
    check("the first as alone", nearly_same(alone, both[0], CLOSE), alone, both[0])
    # The same question again finds what was kept; nothing is evicted a second time.
    n = len(compressions(s))
    s.complete(first, 12, id_slot=0)
    check("the same prompt again is not compressed again", len(compressions(s)) == n, compressions(s))
    # A longer prompt after it: its new tokens are enough.
    s.complete(first + second[:400], 12, id_slot=0)
    check("what a later turn adds is compressed", len(compressions(s)) == n + 1, compressions(s))

# Two answers of one prompt: in one cache for all slots they share what is kept. With a stream for each, the copy has rows of its own, and no queries of
# them were noted: it stays whole (docs/use/llama-cpp.md).
with Server(OURS, env("snapkv", 150)) as s:
    two = s.complete(first, 12, n_cmpl=2)
    check("n = 2 in one cache", len(two) == 2 and len(compressions(s)) == 1 and all(nearly_same(alone, x, CLOSE) for x in two), two, compressions(s))
with Server([x for x in OURS if x != "-kvu"] + ["-no-kvu"], env("snapkv", 150)) as s:
    two = s.complete(first, 12, n_cmpl=2)
    check("n = 2 in streams", len(two) == 2 and len(compressions(s)) == 1 and nearly_same(alone, two[0], CLOSE) and nearly_same(want, two[1], BOUND), two, compressions(s))

# A client that goes away: while its prompt is read, and while its answer comes. What the next one gets is as on a fresh server.
with Server(OURS, env("snapkv", 150)) as s:
    stream = {"n_predict": 4000, "ignore_eos": True, "temperature": 0, "stream": True, "id_slot": 0}
    started = s.log().count("processing task")
    s.leave("/completion", {**stream, "prompt": ids(6000, 5)}, lambda came: s.log().count("processing task") > started)
    check("the slot is free again", until(lambda: s.log().count("stop processing") > 0), s.log()[-1000:])
    after = s.complete(first, 12, id_slot=0)
    check("after a prompt that was left while it was read", nearly_same(alone, after, CLOSE), alone, after)
    stopped = s.log().count("stop processing")
    came = s.leave("/completion", {**stream, "prompt": second}, lambda came: came.count(b"data: ") > 3)
    check("the answer had begun", b"data: " in came, came[-300:])
    check("the slot is free once more", until(lambda: s.log().count("stop processing") > stopped), s.log()[-1000:])
    after = s.complete(first, 12, id_slot=0)
    check("after an answer that was left", nearly_same(alone, after, CLOSE), alone, after)

# "auto" is chosen when a prompt was read, by its length and the profiles that are named; and a quality in place of a size.
chosen = lambda s: re.findall(r"winnow: (\d+) tokens by (\S+)", s.log())
profiles = pathlib.Path(__file__).parents[2] / "share/profiles/smollm2-135m"
by_gates = {"GGML_BACKEND_PATH": library, "WINNOW_VERBOSE": "1", "WINNOW_PROFILE": ":".join(str(profiles / f"{kind}.json") for kind in ("shares", "gate", "inputgate", "quality"))}
small = [f"{TINY}/../smollm2-135m.gguf" if x == model else x for x in OURS]
with Server(OURS, env("auto", 150)) as s:
    s.complete(first, 12, id_slot=0)
    check("without profiles by replay", once(s, 700) and [recipe for _, recipe in chosen(s)] == ["replay"], chosen(s), compressions(s))
with Server(small, {**by_gates, "WINNOW_POLICY": "auto", "WINNOW_BUDGET": "200"}) as s:
    s.complete(ids(300, 1), 3, id_slot=0)
    check("with profiles by gates", [recipe for _, recipe in chosen(s)] == ["kvzap:recent=32,room=0.3+shares"], chosen(s), s.log()[-800:])
    s.complete(ids(300, 2), 3, id_slot=1, cache_prompt=False)
    check("each prompt", len(chosen(s)) == len(compressions(s)) == 2 and all(abs(k - 200) <= 1 for _, k in compressions(s)), chosen(s), compressions(s))
with Server(small, {**by_gates, "WINNOW_POLICY": "auto+quality:q=0.8"}) as s:
    a = s.complete(ids(400, 3), 6, id_slot=0)
    s.complete(ids(400, 3) + a["tokens"] + ids(300, 4), 6, id_slot=0)
    check("a quality", [recipe for _, recipe in chosen(s)] == ["kvzap:recent=32+quality:q=0.8"] * 2 and 30 < compressions(s)[0][1] < 390, chosen(s), compressions(s))
    check("of which the first turn keeps its part", compressions(s)[1][1] > compressions(s)[0][1], compressions(s))
with Server(OURS, {"GGML_BACKEND_PATH": library, "WINNOW_POLICY": "auto+quality:q=0.8"}) as s:
    check("a quality that nobody has measured is said", re.search(r"winnow: nothing is compressed: .*calibrate quality", s.log()), s.log()[-1000:])

# Files of the server's own, and its cache of prompts: of full size, and what was dropped compresses well. They come back, also after a restart.
with tempfile.TemporaryDirectory() as folder:
    saves, sizes = [*OURS, "--slot-save-path", folder, "--cache-ram", "64"], []
    for name, policy in (("whole", env()), ("kept", env("keydiff", 150))):
        with Server(saves, policy) as s:
            begun = first + s.complete(first, 6, id_slot=0)["tokens"]
            saved = s.ask("/slots/0?action=save", {"filename": name})
            want = s.complete(begun + ids(20, 5), 6, id_slot=0)
            s.complete(ids(len(first), 6), 6, id_slot=0)
            back = s.complete(begun + ids(20, 5), 6, id_slot=0)
            check(f"{name}: back from --cache-ram", saved.status == 200 and back["timings"]["cache_n"] >= len(first) and nearly_same(want, back, CLOSE), back["timings"], saved.text)
        with Server(saves, policy) as s:
            s.ask("/slots/1?action=restore", {"filename": name})
            back = s.complete(begun + ids(20, 5), 6, id_slot=1)
            check(f"{name}: back after a restart", back["timings"]["cache_n"] >= len(begun) - 1 and want["tokens"][0] == back["tokens"][0], back["timings"], want["tokens"], back["tokens"])
            # The backend does not know that a restored sequence was compressed before.
            check(f"{name}: and compressed with the next prompt", [n for n, _ in compressions(s)] == [len(begun) + 21] * (name == "kept"), compressions(s))
        with open(f"{folder}/{name}", "rb") as f:
            data = f.read()
        sizes.append((len(data), len(zlib.compress(data))))
    check("files have the full size", sizes[0][0] == sizes[1][0], sizes)
    check("and small ones compressed", sizes[1][1] < 0.5 * sizes[0][1], sizes)

# What a user gets wrong is said, and the server goes on as it can.
with Server(OURS, env("snapvk", 150)) as s:
    check("an unknown policy is said", re.search(r"winnow: nothing is compressed: .*snapvk", s.log()), s.log()[-2000:])
    s.complete(first, 2)
    check("and nothing is compressed", not compressions(s))
finish()
