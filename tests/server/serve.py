#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`winnow serve` as its clients see it: serve.py WINNOW

What must be right of policies, reuse, sequences that end, cells that die and the cap on memory; docs/use/server.md says what is meant.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import threading

from llama_server import TINY, Server, at_once, check, finish, ids, nearly_same, until

winnow = sys.argv[1]
model = f"{TINY}/tiny-llama.gguf"
CLOSE = 0.02  # the same tokens, in other batches
ROW = 1024    # bytes of a token's keys and values: 4 layers, 2 heads of 32, f16


def serve(*options, slots=4, model=model, rest=(), **variables):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), *options, "--", "-t", "1", *rest], {"WINNOW_VERBOSE": "1", **variables})


def kv(s):
    return s.ask("/winnow/kv").json


def slot(s, i):
    return kv(s)["slots"][i]


def n_compressed(s):
    return kv(s)["compressions"]


def chat(s, messages, tokens=8, **more):
    return s.ask("/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": True, **more})


def user(text):
    return [{"role": "user", "content": text}]


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


document, other = ids(700, 1), ids(900, 2)
questions = [ids(30, 10 + i) for i in range(5)]

# Slots are compressed by what their requests say; each once, with any others in the batch.
with serve("--policy", "full") as s:
    # A size has no effect where everything is kept, and is that of another policy.
    for field, param in (({"budget": 50}, "winnow.budget"), ({"ratio": 0.5, "reuse": "never"}, "winnow.ratio")):
        r = s.ask("/completion", {"prompt": [1, 2], "n_predict": 1, "winnow": field})
        check(f"{field} without a policy", r.status == 400 and r.json["error"]["param"] == param and "the policy keeps everything, the given size has no effect" in r.text, r.text[:300])
    whole = [s.complete(document, 12, id_slot=0), s.complete(other, 12, id_slot=1)]
    check("full: nothing is dropped", n_compressed(s) == 0 and slot(s, 0)["entries"] == 711, kv(s))
    sizes = [None, 192, 400, 64]
    before = n_compressed(s)
    at_once(*[lambda i=i: s.complete(ids(1000, 20 + i), 40, id_slot=i, cache_prompt=False,
                                     **({} if sizes[i] is None else {"winnow": {"policy": "keydiff", "budget": sizes[i]}})) for i in range(4)])
    held = [x["entries"] for x in kv(s)["slots"]]
    check("four slots with sizes of their own", held == [1039, 192 + 39, 400 + 39, 64 + 39], held)
    check("each was compressed once", n_compressed(s) == before + 3, kv(s))
    s.complete(ids(1025, 30), 3, id_slot=0, cache_prompt=False, winnow={"policy": "snapkv", "budget": 100})
    check("a prompt of twice 512 tokens and one more", slot(s, 0)["entries"] == 102 and n_compressed(s) == before + 4, kv(s))
    # The same requests to the same slots get what a request alone gets.
    alone = s.complete(document, 12, id_slot=0, cache_prompt=False, winnow={"policy": "keydiff", "budget": 150})
    both = at_once(lambda: s.complete(document, 12, id_slot=2, cache_prompt=False, winnow={"policy": "keydiff", "budget": 150}),
                   lambda: s.complete(other, 12, id_slot=3, cache_prompt=False))
    check("beside another request a compressed one answers as alone", nearly_same(alone, both[0], CLOSE), alone, both[0])
    check("and the other one is not touched", nearly_same(whole[1], both[1], CLOSE), whole[1], both[1])
    # Entries of a slot are counted once, also where another slot is compressed with a batch in which it has tokens.
    at_once(lambda: s.complete(other, 100, id_slot=3, cache_prompt=False),
            lambda: [s.complete(ids(200, 60 + i), 1, id_slot=i % 2, cache_prompt=False, winnow={"policy": "keydiff", "budget": 50}) for i in range(6)])
    check("entries beside slots that are compressed", slot(s, 3)["entries"] == slot(s, 3)["tokens"] == 999, slot(s, 3))
    metrics = s.ask("/metrics").text
    check("Prometheus' lines", re.search(r'^winnow:kv_bytes [1-9]\d*$', metrics, re.M) and 'winnow:slot_entries{slot="3"}' in metrics, metrics[-800:])

# What a rule keeps that looks at the question is not for another question; what another one keeps is.
with serve("--policy", "keydiff", "--budget", "200", slots=1) as s:
    def read(question, **more):
        return s.complete(document + question, 4, **more)["timings"]["prompt_n"]
    check("the first question reads all", read(questions[0]) == 730)
    check("five questions about one document read it once", [read(q) for q in questions[1:]] == [30] * 4, kv(s))
    check("reuse: never", read(questions[0], winnow={"reuse": "never"}) == 730)
    check("another size is another rule", read(questions[1], winnow={"budget": 100}) == 730)
    snap = {"policy": "snapkv", "budget": 200}
    check("another policy too", read(questions[0], winnow=snap) == 730)
    check("a second question after a policy that looked at the first", read(questions[1], winnow=snap) == 730)
    check("the same prompt again", read(questions[1], winnow=snap) <= 1)
    check("reuse: any", read(questions[2], winnow={**snap, "reuse": "any"}) == 30)
    a = s.complete(document + questions[3], 12)
    b = s.complete(document + questions[4], 12)
    c = s.complete(document + questions[3], 12, cache_prompt=False)
    n = n_compressed(s)
    s.complete(document + questions[3] + ids(400, 40), 4)
    check("what a later turn adds is compressed once it is enough", n_compressed(s) == n + 1, kv(s))

def kept(s, i):
    """Of each head of a slot, whether it holds its tokens."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', s.ask(f"/winnow/page?slot={i}").text, re.S)[1])
    return [[int(bits[t // 4], 16) >> t % 4 & 1 for t in range(data["n"])] for layer in data["plans"][0]["layers"] for bits in layer]


# The end of a prompt, with what is asked, stays as far as it fits.
LAST = ":last=32,room=0.3"
SAMPLED = "keydiff-values-sampled:last=32,room=0.5"


def mean(heads, first, end):
    return sum(sum(h[first:end]) for h in heads) / len(heads)


# Where nobody names a policy, the table of what was measured chooses one; without profiles it looks with every query of a prompt. A
# second turn has the queries of its own prompt alone: a ratio leaves what the first one has kept, a budget is shared by tokens. A prompt
# in several batches gets budgets of heads from a sample.
for size, taken, old, new in [(("--ratio", "0.5"), "keydiff-sampled" + LAST, 350, 401 / 2), (("--budget", "300"), "keydiff-sampled" + LAST, 300 * 711 // 1112, 300 - 300 * 711 // 1112)]:
    with serve(*size, slots=2) as s:
        check("what is chosen is said", s.log().count("auto: prompts by replay: ") == 1 and kv(s)["policy"] == "auto", s.log()[:400], kv(s)["policy"])
        first = s.complete(document, 12, id_slot=0)
        once = kept(s, 0)
        check("and shown", slot(s, 0)["policy"] == "auto" and slot(s, 0)["taken"] == taken, slot(s, 0))
        check("the first turn has its size", abs(mean(once, 0, 700) - (350 if size[0] == "--ratio" else 300)) < 1 and mean(once, 700, 711) == 11, slot(s, 0))
        second = s.complete(document + first["tokens"] + other[:400], 4, id_slot=0)
        twice = kept(s, 0)
        check("the second turn reads itself", second["timings"]["prompt_n"] == 401 and n_compressed(s) == 2, second["timings"])
        check("what it brings is compressed", abs(mean(twice, 711, 1112) - new) < 2, mean(twice, 711, 1112), new)
        if size[0] == "--ratio":
            check("what was kept before stays", [h[:700] for h in twice] == [h[:700] for h in once])
            check("and the answer between is compressed", abs(mean(twice, 700, 711) - 5.5) <= 1, mean(twice, 700, 711))
        else:
            check("what was kept before has its share", abs(mean(twice, 0, 711) - old) <= 1, mean(twice, 0, 711), old)
        s.complete(document, 3, id_slot=1, winnow={"policy": "knorm"})
        check("a request names another", slot(s, 1)["policy"] == "knorm" and "taken" not in slot(s, 1), slot(s, 1))
        s.complete(document, 3, id_slot=1, winnow={"policy": "auto"})
        check("or the same by its name", slot(s, 1)["taken"] == taken and n_compressed(s) == 4, slot(s, 1))
        for _ in range(2):
            s.complete(document, 3, id_slot=1, cache_prompt=False, winnow={"policy": "replay:sinks=400", "budget": 300})
        check("what a policy refuses another one does", n_compressed(s) == 6 and not kv(s)["compressions_failed"] and slot(s, 1)["entries"] == 302, kv(s))
        check("and that is counted", kv(s)["compressions_by_fallback"] == 2 and "winnow:compressions_by_fallback_total 2\n" in s.ask("/metrics").text, kv(s))
        own = []
        for dropped, budget in ((0.02, 5000), (0.3, 5000), (0.02, 200)):
            s.complete(document, 3, id_slot=1, cache_prompt=False, winnow={"policy": f"replay+quality:dropped={dropped}", "budget": budget})
            own.append(slot(s, 1)["entries"])
        check("a quality takes what it needs, and no more than a size that is given", 702 > own[0] > own[1] > 3 and abs(own[2] - min(own[0], 202)) <= 1, own)
        check("and said once", s.log().count("keydiff is taken in place of replay:sinks=400 where that cannot be had: ") == 1, s.log()[-1500:])

# Before the last batch of a prompt a sample of it is fed again, which says how much each head keeps; the prompt and its answer are as without.
with serve("--ratio", "0.9", slots=3) as s:
    check("what prompts in several batches get is said", s.log().count("auto: prompts by replay: ") == 1 and
          s.log().count(f"auto: prompts that come in several batches by {SAMPLED}: ") == 1, s.log()[:800])
    plain = s.complete(document, 12, id_slot=2, winnow={"policy": "full"})
    first = s.complete(document, 12, id_slot=0)
    counts = [sum(h[:700]) for h in kept(s, 0)]
    check("budgets from a sample", slot(s, 0)["taken"] == SAMPLED and len(set(counts)) > 1 and abs(sum(counts) / len(counts) - 70) < 1, slot(s, 0), counts)
    check("the end of the prompt stays as far as it fits", all(all(h[684:700]) for h in kept(s, 0)) and not all(all(h[668:700]) for h in kept(s, 0)), kept(s, 0))
    check("nothing of what was fed stays", slot(s, 0)["tokens"] == 711 and kv(s)["bytes"] < (711 + 82 + 3) * 2 * ROW and not kv(s)["compressions_by_fallback"], kv(s))
    check("the first token is the whole prompt's", first["tokens"][0] == plain["tokens"][0], first["tokens"], plain["tokens"])
    s.complete(ids(512, 3), 3, id_slot=1)
    check("a prompt in one batch has none", slot(s, 1)["taken"] == "replay" and not kv(s)["compressions_by_fallback"], slot(s, 1))
    both = at_once(lambda: s.complete(document, 12, id_slot=0, cache_prompt=False), lambda: s.complete(other, 12, id_slot=1, cache_prompt=False))
    check("two at once have one each", [slot(s, i)["taken"] for i in range(2)] == [SAMPLED] * 2 and
          [sum(h[:700]) for h in kept(s, 0)] == counts and nearly_same(first, both[0], CLOSE), first, both[0], kv(s))
    named = {"policy": "replay-sampled", "ratio": 0.5}
    s.complete(ids(400, 3), 3, id_slot=1, cache_prompt=False, winnow=named)
    check("a policy that is named, and has none", kv(s)["compressions_by_fallback"] == 1 and "no sample of this prompt was fed" in s.log(), kv(s), s.log()[-600:])
    long = s.complete(ids(1600, 4), 12, id_slot=1, cache_prompt=False, winnow=named)
    check("and has one", kv(s)["compressions_by_fallback"] == 1 and abs(slot(s, 1)["entries"] - 811) < 1, kv(s))
    s.complete(ids(1600, 4) + long["tokens"] + ids(900, 5), 4, id_slot=1, winnow=named)
    check("as a later turn of itself", kv(s)["compressions_by_fallback"] == 1 and abs(slot(s, 1)["entries"] - (811 - 5.5 + 450 + 4)) < 3, kv(s))
    fed = s.ask("/v1/chat/completions", {"messages": user(words(300, 8)), "max_tokens": 4})
    check("behind the header of a chat", slot(s, int(fed.headers["X-Winnow-Slot"]))["taken"] == SAMPLED, fed.text, kv(s))
# Where layers slide libllama writes over what is out of their window alone, if all that is fed is one computation. What such layers hold
# does not grow with a prompt, and is no part of a token's bytes or entries.
with serve("--ratio", "0.9", slots=2, model=f"{TINY}/tiny-gemma3.gguf") as s:
    check("a sliding window", s.log().count(f"auto: prompts that come in several batches by {SAMPLED}: ") == 1, s.log()[:800])
    for n in (700, 1600, 2300):
        long = ids(n, n)
        plain = s.complete(long, 12, id_slot=1, cache_prompt=False, winnow={"policy": "full"})
        first = s.complete(long, 12, id_slot=0, cache_prompt=False)
        check(f"budgets from a sample of {n} tokens", slot(s, 0)["taken"] == SAMPLED and not kv(s)["compressions_by_fallback"] and
              abs(slot(s, 0)["entries"] - (n / 10 + 11)) < 1, slot(s, 0), kv(s))
        check(f"the first token is the whole prompt's, {n}", first["tokens"][0] == plain["tokens"][0], first["tokens"], plain["tokens"])
    again = s.complete(long + first["tokens"] + ids(900, 5), 4, id_slot=0)
    check("a second turn reads itself", again["timings"]["prompt_n"] == 901 and slot(s, 0)["taken"] == SAMPLED, again["timings"], slot(s, 0))
    row = kv(s)["bytes_of_a_token"]
    check("a token's bytes are those of the one layer that sees all", row == 2 * 64 * 2 * 2 and slot(s, 1)["entries"] == 2311 and slot(s, 1)["bytes"] == 2311 * row, kv(s))
    check("windows are in what is held", 6 * 16 * row < kv(s)["bytes"] - slot(s, 0)["bytes"] - slot(s, 1)["bytes"] < 6 * 1024 * row + 64 * 4096, kv(s))
    windows = kv(s)["bytes_uncompressed"] - (2311 + slot(s, 0)["tokens"]) * row
    check("and in what would be held", 6 * 16 * row < windows <= 6 * 1024 * row + 64 * 4096, kv(s))
with serve("--ratio", "0.9", slots=1, model=f"{TINY}/tiny-gemma3.gguf", rest=("-ub", "32")) as s:
    s.complete(document, 3)
    check("a window, and computations too small for what would be fed", n_compressed(s) == 1 and slot(s, 0)["taken"] == "replay", slot(s, 0), s.log()[-600:])
with serve("--ratio", "0.9", slots=1, model=f"{TINY}/tiny-gemma3.gguf", rest=("-ub", "64")) as s:
    s.complete(ids(2300, 2300), 3, winnow={"policy": "keydiff-sampled:every=32"})
    check("or for all of it: then less is fed", n_compressed(s) == 1 and not kv(s)["compressions_by_fallback"], slot(s, 0), s.log()[-600:])
with serve("--ratio", "0.5", "--evict", "end", "--kv-bytes", str(6 * 768 * 512 + 2 * 1300 * 512), slots=1, model=f"{TINY}/tiny-gemma3.gguf") as s:
    s.complete(ids(1200, 6), 12)
    check("a cap counts windows once", n_compressed(s) == 1 and kv(s)["bytes"] < kv(s)["cap"], kv(s))
    long = s.ask("/completion", {"prompt": ids(1300, 6), "n_predict": 12})
    check("and says so", long.status == 400 and "sliding windows 2359296" in long.text, long.text)
# Where a cap leaves no room for it, none is fed.
with serve("--ratio", "0.9", "--kv-bytes", str(780 * ROW + 700 * 4 * 4 * 32 * 2), slots=1) as s:
    s.complete(document, 3)
    check("a cap without room", kv(s)["bytes"] < 780 * ROW and n_compressed(s) == 1, slot(s, 0), kv(s))

# Of a named one the server says nothing, and a request has the choice all the same. Where memory is bounded, queries count.
with serve("--policy", "knorm", "--kv-bytes", str(4000 * ROW), slots=1) as s:
    check("a named policy is not chosen", "auto:" not in s.log() and kv(s)["policy"] == "knorm", s.log()[:400])
    s.complete(ids(300, 5), 3, winnow={"policy": "auto"})
    check("a request asks for the choice", slot(s, 0)["taken"] == "replay" and abs(slot(s, 0)["entries"] - 152) < 1, slot(s, 0))
    body = {"prompt": ids(2500, 5), "n_predict": 10}
    check("a prompt that fits without queries", s.ask("/completion", body).status == 200)
    long = s.ask("/completion", {**body, "winnow": {"policy": "auto"}})
    image = s.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]})
    check("a model without images says so itself", image.status == 400 and "image input is not supported" in image.json["error"]["message"], image.text)
    check("does not fit with them", long.status == 400 and "2500 tokens" in long.json["error"]["message"], long.text)

# With profiles of shares and gates these decide, by each prompt's length and the size that it asks for. These gates say that they are from pieces of 300 tokens.
with tempfile.TemporaryDirectory() as folder:
    gates = json.loads((pathlib.Path(__file__).parents[2] / "share/profiles/smollm2-135m/inputgate.json").read_text())
    gates["settings"]["length"] = 300
    with open(f"{folder}/gates.json", "w") as f:
        json.dump(gates, f)
    with serve("--context", "1024", "--save", folder, slots=1, model=f"{TINY}/../smollm2-135m.gguf", WINNOW_PROFILE=f"{folder}/gates.json") as s:
        rows = [(600, "kvzap:recent=32,room=0.3+shares"), (None, "kvgate+shares" + LAST)]
        check("profiles are looked for", all(f"auto: prompts{f' of up to {upto} tokens' if upto else ''} by {recipe}: " in s.log() for upto, recipe in rows), s.log()[:1200])
        chat(s, user(words(60, 1)), tokens=2)
        check("and used", n_compressed(s) == 1 and "in place of" not in s.log() and slot(s, 0)["taken"] == rows[0][1], s.log()[-800:])
        # After a short prompt one that no request has claimed, of whose length nothing was known.
        s.complete(ids(20, 2), 2, cache_prompt=False)
        s.ask("/completion", {"prompt": [*ids(700, 3), "w"], "n_predict": 3})
        check("what a prompt that is left to the server needs was observed", slot(s, 0)["taken"] == "kvgate+shares" + LAST and "in place of" not in s.log(), slot(s, 0), s.log()[-400:])
        for n, more, recipe in [(359, {}, rows[0][1]), (360, {}, rows[0][1]), (601, {}, rows[1][1]), (400, {"ratio": 0.75}, rows[0][1]), (400, {"budget": 200}, rows[0][1]),
                                (400, {"budget": 5}, rows[0][1]), (300, {"ratio": 0.99}, "replay")]:
            s.complete(ids(n, n), 3, cache_prompt=False, winnow=more)
            check(f"{n} tokens, {more}", slot(s, 0)["taken"] == recipe and "in place of" not in s.log(), slot(s, 0), s.log()[-400:])
        more = s.complete(ids(300, 300) + ids(30, 301), 3, winnow={"ratio": 0.99})
        check("a prompt goes on with what the same choice kept", more["timings"]["prompt_n"] == 30, more["timings"])
        # Of what comes from a file gates on hidden states have said nothing: what is cached is judged.
        s.complete(ids(500, 500), 3, cache_prompt=False)
        for action in ("save", "restore", "erase"):  # the server would take another slot
            for name in ("99", "-1", "x", "0x0", ""):
                r = s.ask(f"/winnow/slots/{name}?action={action}", {"filename": "other"})
                check(f"{action} of slot '{name}'", r.status in (400, 404) and not os.path.exists(os.path.join(folder, "other")), r.text)
        check("saved", s.ask("/winnow/slots/0?action=save", {"filename": "slot"}).status == 200 and s.ask("/winnow/slots/0?action=erase", {}).status == 200)
        check("restored", s.ask("/winnow/slots/0?action=restore", {"filename": "slot"}).status == 200)
        more = s.complete(ids(500, 500) + ids(300, 501), 3)
        check("and goes on", more["timings"]["prompt_n"] == 300 and slot(s, 0)["taken"] == rows[1][1] and "in place of" not in s.log(), more["timings"], slot(s, 0), s.log()[-600:])

# A quality in place of a size: the scorer with which fewest entries stay, as long as it can be asked. A later turn is judged by itself.
with serve("--keep-quality", "0.9", slots=1, model=f"{TINY}/../smollm2-135m.gguf") as s:
    rows = ["prompts of up to 6000 tokens by kvzap:recent=32+quality:q=0.9: ", "prompts by kvgate+quality:q=0.9: "]
    check("what may be chosen is said", all(row in s.log() for row in rows) and kv(s)["policy"] == "auto+quality:q=0.9", s.log()[:800])
    first = s.complete(document, 12)
    once = kept(s, 0)
    check("it has no size", slot(s, 0)["taken"] == "kvzap:recent=32+quality:q=0.9" and not {"budget", "ratio"} & slot(s, 0).keys(), slot(s, 0))
    check("a part stays", 30 < mean(once, 0, 700) < 690 and mean(once, 700, 711) == 11, mean(once, 0, 700))
    second = s.complete(document + first["tokens"] + other[:400], 4)
    twice = kept(s, 0)
    check("the second turn is compressed", second["timings"]["prompt_n"] == 401 and n_compressed(s) == 2 and mean(twice, 711, 1112) < 400, second["timings"], mean(twice, 711, 1112))
    check("and the first one has lost nothing", [h[:700] for h in twice] == [h[:700] for h in once])
    own = [slot(s, 0)["entries"]]
    for q, more in ((0.9, {}), (0.7, {}), (0.7, {"budget": 40})):
        s.complete(document, 3, cache_prompt=False, winnow={"policy": f"auto+quality:q={q}", **more})
        own.append(slot(s, 0)["entries"])
    check("less quality takes less, and a budget is the most", own[1] > own[2] > own[3] == 42, own)
    third = s.complete(document + [1] + other[:400], 4, winnow={"policy": "auto+quality:q=0.7", "budget": 40})
    check("of which every turn has a part", third["timings"]["prompt_n"] <= 402 and slot(s, 0)["entries"] == 43, slot(s, 0))
    for policy in ("auto+quality:q=1.5", "auto+quality", "keydiff+quality:q=0.9"):
        r = s.ask("/completion", {"prompt": ids(20, 2), "winnow": {"policy": policy}})
        check(f"{policy} is refused", r.status == 400 and r.json["error"]["param"] == "winnow.policy", r.text)
    check("and a size alone is another rule", s.complete(document, 3, winnow={"policy": "auto", "ratio": 0.5}) and "quality" not in slot(s, 0)["taken"], slot(s, 0))
# What was read without being observed cannot be judged: of a size something else takes care, a quality is kept.
for policy, done in (("kvzap:recent=32", 1), ("auto+quality:q=0.9", 0)):
    with serve("--policy", "full", slots=1, model=f"{TINY}/../smollm2-135m.gguf") as s:
        s.complete(ids(300, 9), 2)
        s.complete(ids(300, 9) + ids(200, 8), 3, winnow={"policy": policy, "reuse": "any"})
        check(f"{policy} of what was not observed", kv(s)["compressions_by_fallback"] == done and kv(s)["compressions_failed"] == 1 - done and
              (slot(s, 0)["entries"] == 502) == (not done), kv(s), s.log()[-600:])
with serve("--policy", "replay", slots=1) as s:
    asked = {"policy": "replay+quality:dropped=0.2"}
    first = s.complete(document, 12, winnow=asked)
    once = kept(s, 0)
    s.complete(document + first["tokens"] + other[:400], 4, winnow=asked)
    twice = kept(s, 0)
    check("by queries too a turn is judged by itself", [h[:711] for h in twice] == [h[:711] for h in once] and mean(twice, 711, 1112) < 401 and
          not kv(s)["compressions_by_fallback"], mean(twice, 711, 1112))

# Layers that the policy does not support are asked once; models with recurrent layers, whose slots are not distinguished, not at all.
with serve("--context", "1024", slots=1, model=f"{TINY}/foreign/gemma4.gguf") as s:
    s.complete(ids(300, 0, n_kind=80), 3, cache_prompt=False)
    check("what needs no queries of a prompt goes with layers that share caches", slot(s, 0)["taken"] == "keydiff-sampled" + LAST and n_compressed(s) == 1 and
          not kv(s)["compressions_by_fallback"], kv(s), s.log()[-800:])
    s.complete(ids(600, 0, n_kind=80), 3, cache_prompt=False, winnow={"policy": "auto", "ratio": 0.1})
    check("also where nearly all stays", slot(s, 0)["taken"] == "keydiff-sampled" + LAST and n_compressed(s) == 2 and not kv(s)["compressions_by_fallback"], slot(s, 0), s.log()[-800:])
    for seed in range(2):
        s.complete(ids(300, seed, n_kind=80), 3, cache_prompt=False, winnow={"policy": "replay"})
    check("another policy goes with every model", n_compressed(s) == 4 and kv(s)["compressions_by_fallback"] == 2 and s.log().count("keydiff is taken in place of replay") == 1,
          kv(s), s.log()[-800:])
    s.complete(ids(300, 2, n_kind=80), 3, cache_prompt=False, winnow={"policy": "replay+quality:dropped=0.3"})
    check("where a quality is to be kept nothing else drops anything", slot(s, 0)["entries"] == 302 and not slot(s, 0)["compressed"] and kv(s)["compressions_failed"] == 1 and
          n_compressed(s) == 4 and kv(s)["compressions_by_fallback"] == 2, kv(s), s.log()[-800:])
with serve("--context", "1024", slots=1, model=f"{TINY}/foreign/lfm2.gguf") as s:
    s.complete(ids(300, 1, n_kind=80), 3)
    check("recurrent layers", kv(s)["policy"] == "keydiff" and "keydiff is taken in place of auto, because" in s.log() and
          re.search(r"of 301 tokens, 150 entries", s.log()), s.log()[-800:])

# A header that documents share is kept whole: the second document begins with it as if it were read again.
system = {"role": "system", "content": "You answer in one word. " + words(20, 7)}
with serve("--budget", "200", slots=1) as s:
    first = chat(s, [system] + user("A " + words(300, 8)))
    protected = slot(s, 0)["protected"]
    check("the header is known", 60 < protected < 200, slot(s, 0))
    turns = [system] + user("A " + words(300, 8)) + [{"role": "assistant", "content": first.json["choices"][0]["message"]["content"]}] + user(words(200, 10))
    check("and whole, also after a further turn, which has its size", all(all(h[:protected]) for h in kept(s, 0)) and n_compressed(s) == 1 and
          chat(s, turns).status == 200 and n_compressed(s) == 2 and all(all(h[:protected]) for h in kept(s, 0)) and abs(slot(s, 0)["entries"] - 207) < 2, slot(s, 0))
    second = chat(s, [system] + user("B " + words(300, 9))).json
    cached = second["usage"]["prompt_tokens"] - second["timings"]["prompt_n"]
    check("the second document reuses it", protected <= cached < protected + 8, second["timings"], protected)
    fresh = chat(s, [system] + user("B " + words(300, 9)), cache_prompt=False).json
    p, q = ([t["logprob"] for t in x["choices"][0]["logprobs"]["content"]] for x in (second, fresh))
    check("and answers as if nothing had been there", abs(p[0] - q[0]) < CLOSE, p, q)

# Cells that no sequence has any more take no memory.
with serve("--policy", "keydiff", "--budget", "100", "--park", "0", slots=2) as s:
    stream = {"n_predict": 4000, "ignore_eos": True, "temperature": 0, "stream": True, "id_slot": 0}
    want = s.complete(document, 12, id_slot=0)
    came = s.leave("/completion", {**stream, "prompt": other}, lambda came: came.count(b"data: ") > 5)
    check("a client that leaves while it is answered", until(lambda: not slot(s, 0)["busy"]), kv(s))
    held = slot(s, 0)
    check("leaves what was kept and the answer so far", held["compressed"] and held["entries"] < 100 + 4000, held)
    again = s.complete(document, 12, id_slot=0)
    check("what comes next is right, too", nearly_same(want, again, CLOSE), want, again)
    check("and holds nothing else", kv(s)["bytes"] < 300 * ROW, kv(s))
    n = n_compressed(s)
    answer = chat(s, user(words(200, 11)), tokens=6)
    two = chat(s, user(words(200, 12)), tokens=6, n=2).json
    check("n = 2 gives two answers of one prompt", len(two["choices"]) == 2 and n_compressed(s) == n + 2, two, kv(s))
    check("a slot is erased", s.ask("/slots/0?action=erase", "{}").status == 200 and slot(s, 0)["tokens"] == 0, kv(s))

# The server looks for clients that have left once a second, so the prompt is one that takes longer to read.
with serve("--policy", "keydiff", "--budget", "100", "--park", "0", slots=2, model=f"{TINY}/../smollm2-135m.gguf") as s:
    want = s.complete(ids(100, 1), 4, id_slot=0)
    s.leave("/completion", {**stream, "prompt": ids(7000, 5)}, lambda came: slot(s, 0)["tokens"] >= 512)
    check("a client that leaves while its prompt is read leaves nothing", until(lambda: slot(s, 0)["tokens"] == 0), kv(s))
    check("and no bytes", kv(s)["bytes"] == 0 and not kv(s)["compressions"], kv(s))
    again = s.complete(ids(100, 1), 4, id_slot=0)
    check("what comes next is right", nearly_same(want, again, CLOSE), want, again)

# The cap holds before anything is read, and others go on.
with serve("--policy", "keydiff", "--budget", "100", "--evict", "end", "--kv-bytes", str(4000 * ROW), slots=3) as s:
    long = s.ask("/completion", {"prompt": ids(6000, 5), "n_predict": 10})
    check("what can never fit is the client's fault", long.status == 400 and "6000 tokens" in long.json["error"]["message"], long.text)
    stop = threading.Event()
    running = threading.Thread(target=lambda: s.leave("/completion", {"prompt": ids(600, 6), "n_predict": 3000, "ignore_eos": True, "stream": True, "id_slot": 0},
                                                      lambda came: stop.is_set()))
    running.start()
    check("a request runs", until(lambda: slot(s, 0)["compressed"]), kv(s))
    busy = s.ask("/completion", {"prompt": ids(1500, 7), "n_predict": 10})
    check("no room now: 503", busy.status == 503 and busy.headers["Retry-After"] and busy.json["error"]["type"] == "unavailable_error", busy.text)
    small = s.ask("/completion", {"prompt": ids(300, 8), "n_predict": 10})
    check("a smaller one has room", small.status == 200, small.text)
    check("the first was not disturbed", slot(s, 0)["busy"], kv(s))
    stop.set()
    running.join()
    check("its room comes back", until(lambda: not slot(s, 0)["busy"]) and s.ask("/completion", {"prompt": ids(1500, 7), "n_predict": 10}).status == 200, kv(s))
    for i in range(6):
        s.complete(ids(2500, 50 + i), 4, id_slot=i % 3)
        check("the cap holds", kv(s)["bytes"] <= 4000 * ROW, kv(s))
    several = s.ask("/completion", {"prompt": ["x", "y"], "n_predict": 2})
    check("what cannot be counted is refused", several.status == 400 and several.json["error"]["param"] == "prompt", several.text)
    hidden = s.ask("/completion", {"prompt": {"prompt_string": words(3000, 9)}, "n_predict": 2})
    check("in whatever form", hidden.status == 400 and hidden.json["error"]["param"] == "prompt", hidden.text)
    for path, body in [("/infill", {"input_prefix": "x", "input_suffix": "y"}), ("/v1/audio/transcriptions", {"model": "any"}), ("/audio/transcriptions", {"model": "any"})]:
        r = s.ask(path, body)
        check(f"and so is {path}, which is not", r.status == 400 and "not counted" in r.text, r.text)
    # Of several lengths none is another one; a number without a fraction is a whole one.
    both = s.ask("/completion", {"prompt": ids(50, 4), "n_predict": 3960, "max_tokens": 3, "ignore_eos": True})
    check("two lengths", both.status == 400 and both.json["error"]["param"] == "max_tokens", both.text)
    both = s.ask("/v1/chat/completions", {"messages": user("x"), "n_predict": 3, "max_completion_tokens": 3, "ignore_eos": True})
    check("one length with two names", both.json["usage"]["completion_tokens"] == 3, both.text)
    two = s.ask("/completion", {"prompt": ids(50, 4), "n_predict": 1980, "n": 2.0, "ignore_eos": True})
    check("two answers count twice", two.status == 400 and "may hold" in two.text, two.text)
    part = s.ask("/completion", {"prompt": ids(50, 4), "n_predict": 3960.5, "ignore_eos": True})
    check("a fraction of a token", part.status == 400 and part.json["error"]["param"] == "n_predict", part.text)
    for n in (0, -1, 4, 2**33):
        for key in ("n", "n_cmpl"):
            r = s.ask("/completion", {"prompt": "x", "n_predict": 2, key: n})
            check(f"{key} = {n}", r.status == 400 and r.json["error"]["param"] == key, r.text)
    check("refusals are counted", kv(s)["refused"] == 1, kv(s))

# More clients than slots: all are answered, and nothing is left.
with serve("--budget", "100", slots=2) as s:
    replies = at_once(*[lambda i=i: s.ask("/v1/completions", {"prompt": words(100 + 10 * i, i), "max_tokens": 5}) for i in range(16)])
    check("16 clients, two slots", [r.status for r in replies] == [200] * 16, [r.text[:200] for r in replies if r.status != 200])
    check("all slots are free", until(lambda: not any(x["busy"] for x in kv(s)["slots"])), kv(s))

    def refused(name, field, says, path="/v1/chat/completions"):
        r = s.ask(path, {"messages": user("x"), "max_tokens": 2, "winnow": field})
        e = r.json.get("error", {})
        check(name, r.status == 400 and says in e.get("message", "") and e.get("type") == "invalid_request_error" and e.get("param", "").startswith("winnow"), r.text)
    refused("an unknown policy", {"policy": "snapvk"}, "snapkv")
    refused("a policy that cannot be had", {"policy": "kvzip"}, "kvzip")
    refused("a policy that is no text", {"policy": 3}, "winnow.policy")
    refused("a budget that is none", {"budget": 0}, "winnow.budget")
    refused("a ratio that is none", {"ratio": 1}, "winnow.ratio")
    refused("two sizes", {"ratio": 0.5, "budget": 3}, "not both")
    refused("an unknown key", {"polcy": "snapkv"}, "polcy")
    refused("a reuse that is none", {"reuse": "often"}, "winnow.reuse")
    refused("no object", "snapkv", "object")
    refused("a route without policies", {"policy": "keydiff"}, "route", "/infill")
    refused("Anthropic's route refuses as the others", {"policy": "snapvk"}, "snapkv", "/v1/messages")
    for path, body in [("/v1/messages", {"messages": user(words(200, 31)), "max_tokens": 4}), ("/v1/responses", {"input": words(200, 32), "max_output_tokens": 4})]:
        n = n_compressed(s)
        r = s.ask(path, {**body, "winnow": {"policy": "knorm", "budget": 120}})
        held = slot(s, int(r.headers["X-Winnow-Slot"]))
        check(f"{path} takes the field", r.status == 200 and n_compressed(s) == n + 1 and held["policy"] == "knorm" and held["entries"] < 130, r.text, held)
    check("the server's own errors are its own", s.ask("/v1/chat/completions", {"max_tokens": 2}).status == 400)
    check("a body that is no JSON", s.ask("/v1/chat/completions", "{").status == 400)
    check("a slot that is not there", s.ask("/completion", {"prompt": "x", "id_slot": 7}).status == 400)
    several = s.ask("/completion", {"prompt": ["x", "y"], "n_predict": 2})
    check("several prompts are the server's", several.status == 200 and len(several.json) == 2, several.text)
    for query in ("slot=4294967296", "slot=-4294967296", "slot=1x", "slot=9", "document=%FF%FE", "document=" + "%E2%82%AC" * 40):
        page = s.ask(f"/winnow/page?{query}")
        check(f"no page of {query}", page.status == 400 and "there is no" in page.json["error"]["message"], page.text)
    check("without --save no files", s.ask("/winnow/slots/0?action=save", {"filename": "a"}).status == 400)
    messages = s.ask("/v1/messages", {"messages": user(words(200, 3)), "max_tokens": 4})
    check("Anthropic's route has the server's policy", messages.status == 200 and n_compressed(s) > 0, messages.text)
    check("SIGTERM ends it", s.stop() == 0, s.log()[-500:])

# A slot in a file has the size of what was kept, and goes on where it was: on another slot, also a used one, and after a restart.
with tempfile.TemporaryDirectory() as folder:
    with serve("--policy", "keydiff", "--budget", "100", "--save", folder, slots=2) as s:
        s.complete(document, 12, id_slot=0)
        for action in "save", "restore":
            own = s.ask(f"/winnow/slots/0?action={action}", {"filename": "winnow-look.0.0"})
            check(f"{action} of a name that is the server's own", own.status == 400 and "for itself" in own.text, own.text)
        saved = s.ask("/winnow/slots/0?action=save", {"filename": "slot"})
        size = os.path.getsize(f"{folder}/slot")
        check("saved", saved.status == 200 and saved.json["n_saved"] == 711, saved.text)
        check("the file has the size of what was kept", size < 200 * ROW < 711 * ROW, size)
        more = s.complete(document + questions[0], 12, id_slot=0)
        check("and was reused", more["timings"]["prompt_n"] == 30, more["timings"])
        s.complete(other, 12, id_slot=1)
        back = s.ask("/winnow/slots/1?action=restore", {"filename": "slot"})
        check("restored onto a used slot", back.status == 200 and back.json["n_restored"] == 711, back.text)
        check("with what it held", slot(s, 1)["tokens"] == 711 and slot(s, 1)["entries"] == 111, kv(s))
        again = s.complete(document + questions[0], 12, id_slot=1, winnow={"reuse": "any"})
        check("its prefix is reused", again["timings"]["prompt_n"] == 30, again["timings"])
        check("and answers the same", nearly_same(more, again, CLOSE), more, again)
        check("cells are known again", slot(s, 1)["tokens"] == 741 and slot(s, 1)["entries"] < 160, kv(s))
        n = n_compressed(s)
        s.complete(document + questions[0] + ids(400, 41), 12, id_slot=1, winnow={"reuse": "any"})
        check("what a later turn adds is compressed", n_compressed(s) == n + 1 and slot(s, 1)["entries"] < 130, kv(s))
        for i in range(2):
            s.ask(f"/slots/{i}?action=erase", "{}")
        check("and nothing is left of both", kv(s)["bytes"] == 0, kv(s))
    # What was restored and is never asked is gone with its slot, its memory too, even if libllama alone knows where it was.
    with serve("--ratio", "0.9", "--save", folder, slots=3) as s:
        def restored(i):
            check(f"restored into slot {i}", s.ask(f"/winnow/slots/{i}?action=restore", {"filename": "slot"}).status == 200)
        restored(0)
        restored(1)
        held = kv(s)["bytes"]
        s.ask("/slots/0?action=erase", "{}")
        check("an erased one has no tokens", slot(s, 0)["tokens"] == 0 and slot(s, 0)["entries"] == 0 and not slot(s, 0)["compressed"], kv(s))
        s.ask("/slots/1?action=erase", "{}")
        check("and once both are no memory", held > 0 and kv(s)["bytes"] == 0, held, kv(s))
        restored(0)
        restored(0)
        restored(1)
        fresh = s.complete(other, 12, id_slot=0, cache_prompt=False)
        check("another prompt in its place is read as anew", slot(s, 0)["taken"] == SAMPLED and abs(slot(s, 0)["entries"] - (len(other) / 10 + 11)) < 1, slot(s, 0))
        again = s.complete(document + questions[0], 12, id_slot=1, winnow={"reuse": "any"})
        check("beside which the other one goes on", again["timings"]["prompt_n"] == 30 and nearly_same(more, again, CLOSE), again)
        check("as if nothing had been there", fresh["tokens"] == s.complete(other, 12, id_slot=2, cache_prompt=False)["tokens"], fresh)
        for i in range(3):
            s.ask(f"/slots/{i}?action=erase", "{}")
        check("nothing is left of these either", kv(s)["bytes"] == 0, kv(s))
    with open(f"{folder}/slot", "r+b") as f:
        good = f.read()
    with serve("--save", folder, slots=1) as s:
        check("after a restart", s.ask("/winnow/slots/0?action=restore", {"filename": "slot"}).status == 200)
        again = s.complete(document + questions[0], 12, winnow={"reuse": "any"})
        check("it goes on", again["timings"]["prompt_n"] == 30 and nearly_same(more, again, CLOSE), again)
        for name, data in {"cut": good[:-100], "longer": good + b"x", "none": b"", "text": b"hello" * 1000,
                           "other": good[:16] + bytes(8) + good[24:]}.items():
            with open(f"{folder}/{name}", "wb") as f:
                f.write(data)
            r = s.ask("/winnow/slots/0?action=restore", {"filename": name})
            check(f"a damaged file: {name}", r.status == 400 and "restore" in r.text, r.text)
        check("a file that is not there", s.ask("/winnow/slots/0?action=restore", {"filename": "no"}).status == 400)
        check("a file elsewhere", s.ask("/winnow/slots/0?action=restore", {"filename": "../slot"}).status == 400)
        check("the server goes on", s.complete(document, 3)["tokens_predicted"] == 3)

with serve("--api-key", "secret") as s:
    check("a key is asked for", s.ask("/winnow/kv").status == 401 and s.ask("/v1/completions", {"prompt": "x", "max_tokens": 1}).status == 401)
    key = {"Authorization": "Bearer secret"}
    check("and taken", s.ask("/winnow/kv", headers=key).status == 200 and
          s.ask("/v1/chat/completions", {"messages": user("x"), "max_tokens": 1}, key).status == 200)
finish()
