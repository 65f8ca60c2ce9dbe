#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The cap of `winnow serve` (--kv-bytes) under all requests, and what comes back when nobody asks for it: cap.py WINNOW"""
import random
import sys
import tempfile

from llama_server import TINY, Most, Server, at_once, check, finish, ids, reads_documents, until

winnow = sys.argv[1]
CHAT = f"{TINY}/chat/smollm2.gguf"
folder = tempfile.TemporaryDirectory()


def serve(*options, model=f"{TINY}/tiny-llama.gguf", slots=4, rest=()):
    return Server([winnow, "serve", "-m", model, "--port", "0", "--slots", str(slots), "--save", folder.name, *options, "--", "-t", "1", *rest])


def kv(s):
    return s.ask("/winnow/kv").json


def words(n, seed):
    return " ".join(f"w{x}" for x in ids(n, seed))


def erase(s, slots=4):
    for i in range(slots):
        s.ask(f"/slots/{i}?action=erase", "{}")


# One number has one value: the one that is counted is the one that holds.
with serve("--policy", "full", "--kv-bytes", "2M", slots=8) as s:
    most = Most(s)
    many = {"prompt": ids(100, 1), "n_predict": 900, "ignore_eos": True}
    for more in ({"n_cmpl": 8}, {"n": None, "n_cmpl": 8}, {"n": 1, "n_cmpl": 8}, {"n_cmpl": 1, "n": 8}, {"n": 8.0}, {"n": 1, "max_tokens": 2**31 - 1}, {"n": None, "n_cmpl": None, "max_completion_tokens": 3000, "n_predict": None}):
        r = s.ask("/completion", {**many, **more})
        check(f"{more} is more than the cap, or two numbers", r.status == 400 and r.json["error"]["type"] == "invalid_request_error", r.text[:300])
    for more in ({"messages": [{"role": "user", "content": "w1"}]}, {"messages": []}, {"input": "w1"}):
        r = s.ask("/completion", {"prompt": ids(5000, 1), "n_predict": 4, **more})
        check(f"a prompt and {more}", r.status == 400, r.text[:300])
    # A prompt counts in every form.
    for prompt in (ids(5000, 1), [ids(5000, 1)], words(3000, 1), [words(3000, 1)], [5, words(3000, 1)], {"prompt_string": words(3000, 1)}, [{"prompt_string": [5, words(3000, 1)]}]):
        r = s.ask("/v1/completions", {"prompt": prompt, "max_tokens": 2})
        check(f"a long prompt: {str(prompt)[:30]}", r.status == 400 and "takes" in r.text, r.text[:300])
    for prompt, n in ((ids(50, 1), 50), (words(20, 1), None), ([words(20, 1)], None), ([5, words(20, 1)], None)):
        r = s.ask("/completion", {"prompt": prompt, "n_predict": 2})
        check(f"a short prompt: {str(prompt)[:30]}", r.status == 200 and (n is None or r.json["tokens_evaluated"] == n), r.text[:300])
    for path, body in (("/embeddings", {"input": "w1"}), ("/v1/embeddings", {"input": ["w1"]}), ("/embedding", {"content": "w1"}), ("/rerank", {"query": "x", "documents": ["y"]}), ("/infill", {"input_prefix": "x", "input_suffix": "y"})):
        r = s.ask(path, body)
        check(f"{path} is not counted", r.status == 400 and "not counted" in r.text, r.text[:300])
    # What counts or writes prompts takes no cells.
    erase(s, 8)
    before = kv(s)["bytes"]
    messages = [{"role": "user", "content": words(300, 2)}]
    for path, body in (("/tokenize", {"content": words(300, 2)}), ("/apply-template", {"messages": messages}), ("/v1/messages/count_tokens", {"messages": messages}),
                       ("/v1/chat/completions/input_tokens", {"messages": messages}), ("/v1/responses/input_tokens", {"input": words(300, 2)}), ("/lora-adapters", [])):
        r = s.ask(path, body)
        check(f"{path} takes no cells", r.status == 200 and kv(s)["bytes"] == before, r.text[:300], kv(s))
    # Restored slots count. What they hold makes room for requests.
    check("a slot is saved", s.ask("/completion", {"prompt": ids(1400, 1), "n_predict": 1, "id_slot": 0}).status == 200 and s.ask("/slots/0?action=save", {"filename": "large"}).status == 200)
    restored = [s.ask(f"/slots/{i}?action=restore", {"filename": "large"}).status for i in range(8)]
    check("not all of eight are restored", restored[0] == 200 and any(x != 200 for x in restored) and set(restored) <= {200, 400, 503}, restored)
    r = s.ask("/completion", {"prompt": ids(1000, 2), "n_predict": 4, "id_slot": 3})
    check("a request has room all the same", r.status == 200, r.text[:300])
    check("and the file's slot went for it", until(lambda: kv(s)["slots"][0]["tokens"] == 0), kv(s))
    check("the cap held", most.end() <= 2 << 20, most.bytes)


def crowd(s, seed, n=10):
    """A client that asks for all sorts of things; the statuses that it got."""
    r, seen = random.Random(seed), []
    for _ in range(n):
        more = r.choice([{}, {"winnow": {"policy": "full"}}, {"winnow": {"policy": "snapkv"}}, {"winnow": {"policy": "replay"}}, {"n_predict": 150}, {"winnow": {"policy": "h2o"}}])
        seen.append(s.ask("/completion", {"prompt": ids(r.choice([50, 300, 700, 1300]), r.randrange(30)), "n_predict": 20, "ignore_eos": True, **more}).status)
        if r.random() < 0.3:
            s.ask(f"/slots/{r.randrange(4)}?action={r.choice(['save', 'restore'])}", {"filename": f"crowd{r.randrange(2)}"})
    return seen


# Any requests at the same time; and with every slot erased nothing is left, windows included.
for options, more in ((("--policy", "keydiff", "--budget", "100", "--kv-bytes", "3M"), {}), (("--budget", "100", "--kv-bytes", "4M"), {}),
                      (("--policy", "keydiff", "--budget", "120", "--kv-bytes", "4M"), {"model": f"{TINY}/tiny-gemma3.gguf", "rest": ("--swa-full",)}),
                      (("--policy", "keydiff", "--budget", "120", "--kv-bytes", "6M"), {"model": f"{TINY}/tiny-gemma3.gguf"})):
    with serve(*options, **more) as s:
        most = Most(s)
        seen = sum(at_once(*[lambda i=i: crowd(s, i) for i in range(4)]), [])
        cap = kv(s)["cap"]
        check(f"{options} {more}: the cap holds", most.end() <= cap, most.bytes, cap)
        check(f"{options} {more}: some are answered, and nobody's request fails", 200 in seen and set(seen) <= {200, 400, 503}, seen)
        erase(s)
        check(f"{options} {more}: nothing is left", until(lambda: kv(s)["bytes"] == 0), kv(s))

# Documents, lists of them and several answers among other requests: whose slot was claimed and has not begun, keeps what it begins with.
documents = []
for i, n in enumerate((150, 170, 90, 200)):
    with open(f"{folder.name}/d{i}", "w") as f:
        f.write(words(n, i + 1))
    documents += ["--document", f"d{i}={folder.name}/d{i}"]


def crowd_of_documents(s, seed, lists, n=30):
    r, seen = random.Random(seed), []
    for _ in range(n):
        x = r.random()
        if x < lists:
            winnow = {"documents": r.sample(["d0", "d1", "d2", "d3"], r.randint(2, 3)), "reread": r.choice([0, 0.05, 0.3])}
        else:
            winnow = {"document": "d0"}
        if x < 0.7:
            path, body = "/v1/chat/completions", {"messages": [{"role": "user", "content": f"who {r.randrange(5)}"}], "max_tokens": r.choice([2, 30]), "n": r.choice([1, 2]) if lists else 1, "winnow": winnow}
        else:
            path, body = "/completion", {"prompt": ids(r.choice([40, 150, 300]), r.randrange(12)), "n_predict": r.choice([2, 40])}
        seen.append(s.ask(path, {**body, "ignore_eos": True}).status)
    return seen


for options, lists in ((("--policy", "full", "--kv-bytes", "3M"), 0), (("--policy", "keydiff", "--budget", "100", "--kv-bytes", "2200K"), 0.6)):
    with serve(*options, "--context", "3000", "--park", "8M", *documents) as s:
        check("documents are read", reads_documents(s))
        most = Most(s)
        seen = sum(at_once(*[lambda i=i: crowd_of_documents(s, i, lists) for i in range(6)]), [])
        cap = kv(s)["cap"]
        check(f"{options} with documents: the cap holds", most.end() <= cap, most.bytes, cap)
        check(f"{options} with documents: some are answered, and nobody's request fails", 200 in seen and set(seen) <= {200, 400, 503}, seen)

# What one request had observed is not charged to those that come later, nor is it observed for them.
fox = "The quick brown fox jumps over the lazy dog. "
for policy in ("snapkv", "h2o", "compactor", "expected_attention", "tova"):
    with serve("--budget", "200", "--kv-bytes", "480K", model=CHAT, slots=1) as s:
        body = {"prompt": fox * 44, "n_predict": 2, "cache_prompt": False}
        check("a prompt fits", s.ask("/completion", body).status == 200)
        once = s.ask("/completion", {"prompt": "x " * 150, "n_predict": 2, "cache_prompt": False, "winnow": {"policy": policy}})
        check(f"one request with {policy}", once.status == 200, once.text[:300])
        later = [s.ask("/completion", body) for _ in range(2)]
        check(f"after {policy} it fits still", [r.status for r in later] == [200, 200], later[0].text[:300])
        failed = kv(s)
        check(f"after {policy} it is compressed as before", failed["compressions_failed"] == 0 and failed["slots"][0]["compressed"], failed)
# A conversation by a rule that looks back goes on in its slot; another one in between does not make it look at what is gone.
with serve("--policy", "keydiff", "--budget", "100", slots=2) as s:
    h2o = {"policy": "h2o", "budget": 100}
    first = ids(300, 1)
    s.complete(first, 2, id_slot=0, winnow=h2o)
    again = s.complete(first + ids(200, 2), 2, id_slot=0, winnow=h2o)
    check("what a slot holds is gone on with", again["timings"]["cache_n"] > 0, again["timings"])
    s.complete(ids(300, 3), 2, id_slot=1)
    after = s.complete(first + ids(200, 2) + ids(200, 4), 2, id_slot=0, winnow=h2o)
    said = kv(s)
    check("after another rule it is read again, by its own rule", after["timings"]["cache_n"] == 0 and said["compressions_by_fallback"] == 0, after["timings"], said)
finish()
