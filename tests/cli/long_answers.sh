# SPDX-License-Identifier: MIT
# Methods made for long answers, where they matter: entries go while hundreds of tokens are generated. A code of 64 digits is
# copied and a chain of sums is followed; a tiny model does neither, but every rule and every scorer works as with a large one.
. "$(dirname "$0")/lib.sh"
llama=$tiny/tiny-llama.gguf
need_file "$llama"
py "$work/questions.jsonl" <<'PY'
import json, random, sys
rng = random.Random(3)
with open(sys.argv[1], "w") as f:
    for i in range(2):
        code = "".join(str(rng.randrange(10)) for _ in range(64))
        filler = " ".join(rng.choice(["grey", "river", "under", "stone", "walks", "home"]) for _ in range(60))
        print(json.dumps({"id": f"copy-{i}", "context": f"{filler}. The code is {code}. {filler}.", "answer": code,
                          "question": "Copy the code of 64 digits, five times.", "max_new": 320}), file=f)
        steps = [rng.randrange(1, 10) for _ in range(40)]
        total = sum(steps)
        chain = ". ".join(f"x{k + 1} is x{k} plus {s}" for k, s in enumerate(steps))
        print(json.dumps({"id": f"chain-{i}", "context": f"x0 is 0. {chain}.", "answer": str(total),
                          "question": "Work out x40, one step after the other.", "max_new": 320}), file=f)
PY
policies=rkv,triattention:stats=prompt,h2o,snapkv:window=8
good 'long answers' eval -m "$llama" -t 1 --quiet --jsonl "$work/questions.jsonl" --lengths 2000 --policies $policies --budgets 64 \
    --evict-every 16:64 --answer-tokens 320 --out "$work/run"
py "$work/run" <<'PY' || fail 'long answers: records'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/results.jsonl")]
by = {}
for r in rows:
    assert "bad" not in r and r["gen_tokens"] == 320, r
    by.setdefault(r["policy"].split(":")[0].split("+")[0], []).append(r)
assert sorted(by) == ["full", "h2o", "rkv", "snapkv", "triattention"] and all(len(x) == 4 for x in by.values()), {k: len(v) for k, v in by.items()}
texts = {k: [r["pred"] for r in sorted(v, key=lambda r: r["index"])] for k, v in by.items()}
for name in ("rkv", "triattention"):  # they choose other entries than attention alone does
    assert texts[name] != texts["full"] and texts[name] != texts["h2o"] != texts["snapkv"], name
PY

# The cache stays at its target, however long the answer is, and the same run gives the same tokens. When a tiny model ends its
# answer depends on the last bits of its numbers, and so on the CPU: of several prompts the first with a long answer is taken.
long_answer() {
    local step
    for step in 37 41 43 47 53 59 61 67 71 73; do
        seq 150 | awk -v step=$step '{ print 1 + ($1 * step) % 200 }' >"$work/ids"
        good "$1, step $step" run -m "$llama" --tokens "$work/ids" --policy "$1" --budget 64 --evict-every 16 -n 400 -t 1 --json || return 1
        json "$1, step $step" "$work/out" 'o["kept_tokens_mean"] == 64' || return 1
        python3 -c 'import json, sys; sys.exit(len(json.load(open(sys.argv[1]))["tokens"]) <= 100)' "$work/out" && return
    done
    fail "$1: no answer has more than 100 tokens"
    return 1
}
for policy in rkv triattention:stats=prompt; do
    long_answer "$policy" || continue
    cp "$work/out" "$work/first"
    good "$policy, two threads" run -m "$llama" --tokens "$work/ids" --policy "$policy" --budget 64 --evict-every 16 -n 400 -t 2 --json
    py "$work/first" "$work/out" <<'PY' || fail "$policy: other tokens with two threads"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["tokens"] == b["tokens"]
PY
done
finish
