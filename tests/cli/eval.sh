# SPDX-License-Identifier: MIT
# winnow eval: the list of tasks; samples as JSONL, with the length that was asked for, the same every time.
. "$(dirname "$0")/lib.sh"
smollm2=$models/smollm2-135m.gguf
need_file "$smollm2"

good 'list' eval --list
for word in niah_single_1 niah_multikey_3 vt cwe fwe qa_syn_2 niah_grid passkey64 scb_kv_syn string_match_all qa_f1 smoke kvcompose; do
    grep -q "^$word " "$work/out" || fail "--list lacks $word"
done

# What the list calls the least length is enough for every task that makes its own data.
awk '/^$/ { exit } $2 == "ruler" || $2 == "needle" || $2 == "passkey" || $2 == "scb" { print $1, $5, $6 }' "$work/out" >"$work/least"
while read -r task least data; do
    [ "$data" = file ] && continue
    good "$task at its least length" eval --dump-samples -m "$smollm2" --tasks "$task" --lengths "$least" --samples 2 --depths 0,100
done <"$work/least"
[ "$(wc -l <"$work/least")" -ge 20 ] || fail "least lengths: $(cat "$work/least")"

good 'samples' eval --dump-samples -m "$smollm2" --tasks ruler,niah_grid,passkey64,scb --lengths 1024 --samples 2 --depths lin5
cp "$work/out" "$work/first"
[ -s "$work/err" ] && fail "samples: $(cat "$work/err")"
good 'again' eval --dump-samples -m "$smollm2" --tasks ruler,niah_grid,passkey64,scb --lengths 1024 --samples 2 --depths lin5
cmp -s "$work/first" "$work/out" || fail 'the same seed gives other samples'
good 'alone' eval --dump-samples -m "$smollm2" --tasks vt --lengths 1024 --samples 2
grep '"task":"vt"' "$work/first" | cmp -s - "$work/out" || fail 'a task alone gives other samples'
good 'other seed' eval --dump-samples -m "$smollm2" --tasks vt --lengths 1024 --samples 2 --seed 43
cmp -s "$work/first" "$work/out" && fail 'another seed gives the same samples'
cat >"$work/check.py" <<'PY'
import collections, json, sys
keys = {"task", "n_target", "index", "seed", "context", "question", "answer_prefix", "refs", "max_new", "metric",
        "needle_spans", "meta"}
tasks = collections.Counter()
n = int(sys.argv[2])
for line in open(sys.argv[1], encoding="utf-8"):
    o = json.loads(line)
    assert keys <= set(o) <= keys | {"turns"}, o.keys()
    assert o["n_target"] == n and o["seed"] == 42 and o["refs"] and o["index"] == tasks[o["task"]]
    tasks[o["task"]] += 1
    assert o["meta"]["tokens"] <= n, o["task"]
    if o["task"].startswith(("niah_single", "niah_multi", "passkey")) and o["task"] not in ("niah_multikey_2", "niah_multikey_3"):
        assert o["meta"]["tokens"] >= 0.97 * n - 26, (o["task"], o["meta"])
    raw = o["context"].encode()
    for a, b in o["needle_spans"]:
        span = raw[a:b].decode()
        assert any(r in span for t in o.get("turns", [o]) for r in t["refs"]) or o["task"] in ("vt", "qa_syn_1", "qa_syn_2"), span
    if o["task"].startswith("niah_"):
        assert all(raw.decode().count(r) == 1 for r in o["refs"]), o["task"]
    if "haystack" in o["meta"]:
        assert o["meta"]["haystack"] == "prose"
        assert o["meta"].get("style", "RULER-style (synthetic haystack)") == "RULER-style (synthetic haystack)"
assert len(tasks) == 20 and tasks["passkey64"] == tasks["niah_grid"] == 5 and tasks["cwe"] == 2, tasks
PY
python3 "$work/check.py" "$work/first" 1024 || fail 'samples are not what they should be'

# CompressKV's code puts a marker in front of every prompt of the grid, as text.
good 'without a marker' eval --dump-samples -m "$smollm2" --tasks niah_grid --lengths 512 --depths 50 --needle sf
cp "$work/out" "$work/plain"
good 'with a marker' eval --dump-samples -m "$smollm2" --tasks niah_grid --lengths 512 --depths 50 --needle sf --niah-compat compresskv
python3 - "$work/plain" "$work/out" 2>"$work/err" <<'PY' || fail "niah-compat: $(tail -n 3 "$work/err")"
import json, sys
plain, marked = (json.loads(open(path, encoding="utf-8").read()) for path in sys.argv[1:])
mark, begin = "<|im_start|> ", "This is a very long story book: <book> "
assert plain["context"].startswith(begin) and marked["context"].startswith(mark + begin)
assert marked["context"][len(mark):] == plain["context"]
for o in (plain, marked):
    (span,) = o["needle_spans"]
    assert o["context"].encode()[span[0]:span[1]].decode().strip().startswith("The best thing to do in San Francisco")
PY
bad 'unknown marker' "--niah-compat 'kvpress' is unknown" eval --dump-samples -m "$smollm2" --tasks niah_grid --niah-compat kvpress

# The same with two other tokenizers; their small vocabularies make more tokens of a text.
for name in qwen2.5 gemma3; do
    need_file "$tiny/chat/$name.gguf"
    good "samples, $name" eval --dump-samples -m "$tiny/chat/$name.gguf" --tasks ruler,niah_grid,passkey64,scb --lengths 3072 --samples 2 --depths lin5
    python3 "$work/check.py" "$work/out" 3072 || fail "samples with the tokenizer of $name are not what they should be"
done

# The text is as hard to compress as prose is, and noise is not.
good 'prose' eval --dump-samples -m "$smollm2" --tasks niah_single_2,niah_single_1 --lengths 8192 --samples 1
python3 -c '
import gzip, json, sys
prose, noise = (json.loads(line)["context"].encode() for line in open(sys.argv[1]))
ratio = [len(gzip.compress(t)) / len(t) for t in (prose, noise)]
sys.exit(not (ratio[0] > 0.18 and ratio[1] < 0.02))' "$work/out" || fail 'gzip ratios of prose and noise'

# A text of the user, and a folder of texts.
mkdir "$work/texts"
seq -f 'Sentence number %g says that all is well.' 1 400 >"$work/texts/a.txt"
seq -f 'And %g says so too.' 1 400 >"$work/texts/b.txt"
for source in "$work/texts/a.txt" "$work/texts"; do
    good "haystack $source" eval --dump-samples -m "$smollm2" --tasks niah_single_2 --lengths 512 --samples 2 --haystack "$source"
    grep -q '"haystack":"file:' "$work/out" || fail "$source: $(cut -c1-200 "$work/out")"
    python3 - "$work/out" <<'PY' || fail "$source is not in the contexts, each with a piece of its own"
import json, re, sys
first = [re.search(r"(Sentence number|And) (\d+) says", json.loads(line)["context"]).group() for line in open(sys.argv[1])]
assert len(set(first)) == 2, first
PY
done

# Documents of the user.
python3 - >"$work/squad.jsonl" <<'PY'
import json
for i in range(40):
    print(json.dumps({"type": "doc", "id": i, "text": f"Title {i}\nThe capital of land {i} is city {i * 7919}."}))
for i in range(3):
    print(json.dumps({"type": "qa", "question": f"What is the capital of land {i}?", "answers": [f"city {i * 7919}"], "gold": [i], "more": [i + 1]}))
PY
good 'qa_1' eval --dump-samples -m "$smollm2" --tasks qa_1 --lengths 1024 --samples 3 --squad "$work/squad.jsonl"
[ "$(grep -c '"refs":\["city' "$work/out")" -eq 3 ] || fail 'qa_1 of the user'
bad 'too few questions' 'has 3 questions' eval --dump-samples -m "$smollm2" --tasks qa_1 --lengths 1024 --samples 4 --squad "$work/squad.jsonl"
good 'group with files' eval --dump-samples -m "$smollm2" --tasks ruler --lengths 2048 --samples 1 --squad "$work/squad.jsonl"
grep -q '"task":"qa_1"' "$work/out" || fail 'ruler lacks qa_1'
grep -q '"task":"qa_syn_1"' "$work/out" && fail 'ruler has qa_1 and what stands in for it'

# The two files of benchmarks, made up, as scripts/qa_records.py turns them into records.
py "$work" <<'PY' || fail 'no made-up files'
import json, sys
def town(i):
    return f"Title {i}", [f"Town {i} lies on river {i * 7919}.", f" River {i * 7919} ends in lake {i * 31}."]
# Each question has ten paragraphs. Two are the evidence, one of them by two sentences.
hotpot = [{"_id": str(q), "question": f"In which lake ends the river of town {q}?", "answer": f"lake {q * 31}", "type": "bridge", "level": "hard",
           "supporting_facts": [[f"Title {q}", 0], [f"Title {q + 1}", 0], [f"Title {q}", 1]], "context": [town(q + k) for k in (5, 1, 0, 2, 3, 4, 6, 7, 8, 9)]} for q in range(40)]
json.dump(hotpot, open(sys.argv[1] + "/hotpot.json", "w"))
paragraph = lambda a, k: {"context": f"Land {a} has province {a * 100 + k}.", "qas": [
    {"question": f"Which land has province {a * 100 + k}?", "answers": [{"text": f"Land {a}", "answer_start": 0}] * 2, "id": "x"},
    {"question": "Nobody knows?", "answers": [], "is_impossible": True, "id": "y"}]}
json.dump({"version": "v2.0", "data": [{"title": f"Land_{a}", "paragraphs": [paragraph(a, k) for k in range(5)]} for a in range(20)]}, open(sys.argv[1] + "/squad.json", "w"))
PY
for kind in hotpot squad; do
    python3 scripts/qa_records.py $kind "$work/$kind.json" >"$work/$kind.jsonl" || fail "no records of $kind"
done
python3 scripts/qa_records.py squad "$work/hotpot.json" >"$work/out" 2>"$work/err" && fail 'a file of another benchmark is taken'
[ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q "hotpot.json' is no file of squad" "$work/err" || fail "another benchmark: $(cat "$work/err")"
good 'qa_2 of the user' eval --dump-samples -m "$smollm2" --tasks qa_2 --lengths 2048 --samples 3 --hotpot "$work/hotpot.jsonl"
python3 - "$work/out" 2>"$work/err" <<'PY' || fail "qa_2: $(tail -n 1 "$work/err")"
import json, re, sys
lines = [json.loads(x) for x in open(sys.argv[1])]
assert len(lines) == 3
for q, o in enumerate(lines):
    titles = re.findall(r"^Document \d+:\nTitle (\d+)\n", o["context"], re.M)
    assert o["refs"] == [f"lake {q * 31}"] and f"town {q}?" in o["question"], o
    assert len(titles) > 10 and len(set(titles)) == len(titles) and {str(q + k) for k in range(10)} <= set(titles), titles
    assert f"River {q * 7919} ends in lake {q * 31}." in o["context"]
PY
good 'qa_1 of a made-up SQuAD' eval --dump-samples -m "$smollm2" --tasks qa_1 --lengths 1024 --samples 3 --squad "$work/squad.jsonl"
grep -c '"refs":\["Land 0"\]' "$work/out" | grep -qx 3 || fail 'qa_1 of a made-up SQuAD'
good 'both in the group' eval --dump-samples -m "$smollm2" --tasks ruler --lengths 2048 --samples 1 --squad "$work/squad.jsonl" --hotpot "$work/hotpot.jsonl"
for task in qa_1 qa_2; do grep -q "\"task\":\"$task\"" "$work/out" || fail "ruler lacks $task"; done
grep -q '"task":"qa_syn' "$work/out" && fail 'ruler has what stands in for qa_1 and qa_2'
bad 'qa_2 without its file' 'qa_2 needs documents and questions; name them with --hotpot' eval --dump-samples --tasks qa_2 --squad "$work/squad.jsonl"
bad 'too few questions of qa_2' 'qa_2 has 40 questions' eval --dump-samples -m "$smollm2" --tasks qa_2 --lengths 2048 --samples 41 --hotpot "$work/hotpot.jsonl"
bad 'the benchmark itself' 'line 1: not a JSON object in braces' eval --dump-samples -m "$smollm2" --tasks qa_2 --hotpot "$work/hotpot.json"

# refused NAME PATTERN CONTENT: of a file of documents.
refused() {
    printf '%b' "$3" >"$work/bad.jsonl"
    bad "$1" "$2" eval --dump-samples -m "$smollm2" --tasks qa_1 --squad "$work/bad.jsonl"
}
doc='{"type":"doc","id":1,"text":"x"}\n'
qa='{"type":"qa","question":"q","answers":["a"],"gold":[1]}\n'
refused 'not JSON' 'line 2: not JSON' "$doc{"
refused 'another type' 'line 1: "type" is neither' '{"type":"x"}\n'
refused 'a document without text' 'line 1: no text "text"' '{"type":"doc","id":1}\n'
refused 'an id that is no number' 'line 1: no whole number "id"' '{"type":"doc","id":"1","text":"x"}\n'
refused 'an id twice' 'two documents have the id 1' "$doc$doc$qa"
refused 'no answers' 'line 2: no list "answers"' "$doc"'{"type":"qa","question":"q","gold":[1]}\n'
refused 'no gold' 'has no "gold"' "$doc"'{"type":"qa","question":"q","answers":["a"]}\n'
refused 'gold that is not there' 'a document that is not there' "$doc"'{"type":"qa","question":"q","answers":["a"],"gold":[2]}\n'
refused 'no questions' 'has no questions' "$doc"

bad 'two things to do' 'exclude each other' eval --tasks vt --list --dump-samples
bad 'no tasks' '--tasks' eval --dump-samples
bad 'an unknown task' 'did you mean niah_single_1' eval --dump-samples --tasks niah_singel_1
bad 'an unknown task' 'eval --list' eval --dump-samples --tasks zzzzzzzz
bad 'a task without its file' 'qa_1 needs' eval --dump-samples --tasks qa_1
bad 'a study' 'did you mean kvcompose' eval --dump-samples --study kvcompos
bad 'an unknown study' 'eval --list' eval --out "$work/none" --study zzzzzzzz
bad 'a study and a suite' 'exclude each other' eval --dump-samples --study kvcompose --suite smoke
bad 'no tasks' '--tasks is empty' eval --dump-samples --tasks ,
bad 'a length that is too short' 'give it a length of' eval --dump-samples -m "$smollm2" --tasks vt --lengths 128
bad 'a length that is no number' "'x' is neither" eval --dump-samples --tasks vt --lengths x
bad 'a depth' "'101' is neither" eval --dump-samples --tasks niah_grid --depths 101
bad 'a needle' 'use rand, num, words or sf' eval --dump-samples --tasks niah_grid --needle x
good 'a needle of words' eval --dump-samples -m "$smollm2" --tasks niah_grid --needle words --lengths 512 --depths 50 --trials 2
py "$work/out" <<'PY' || fail 'a needle of words'
import json, re, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert len(rows) == 2
for o in rows:
    (ref,) = o["refs"]
    assert re.fullmatch("[a-z]+-[a-z]+", ref) and o["context"].count(ref) == 1, ref
    assert re.search(r"One of the special magic words for ([a-z-]+) is: " + ref, o["context"])[1] in o["question"], o["question"]
PY
good 'the list' eval --list
grep -q '^scb_kv_syn .* stand-in ' "$work/out" && grep -q '^ppl ' "$work/out" && grep -q '^lagkv  *[0-9]' "$work/out" ||
    fail "the list: $(cat "$work/out")"
bad 'a haystack' 'neither prose, noise nor a file' eval --dump-samples --tasks niah_grid --haystack "$work/none"
bad 'an empty folder' 'no \*.txt' eval --dump-samples --tasks niah_grid --haystack "$work/made"
bad 'a chat template' 'nochat' eval --dump-samples -m "$smollm2" --tasks vt --chat nochat
bad 'no model' 'no model of that name' eval --dump-samples -m nomodel --tasks vt

# LongBench and SCBench: the user's files.
mkdir "$work/lb" "$work/scb"
py "$work" <<'PY'
import json, sys
lb, scb = sys.argv[1] + "/lb/", sys.argv[1] + "/scb/"
def write(path, rows):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
long = " ".join(f"word{i}" for i in range(3000))
row = {"input": "Who?", "context": "Ärger {input} in Paris.", "answers": ["Ann", "Bob"], "length": 5, "dataset": "qasper", "language": "en", "all_classes": None, "_id": "1"}
write(lb + "qasper.jsonl", [row, dict(row, context=long, length=3000), dict(row, length=9000)])
write(lb + "trec.jsonl", [dict(row, input="What is it? Type:", all_classes=["Location", "Date"], answers=["Date"])])
write(lb + "samsum_e.jsonl", [dict(row, input="A: hi\nSummary:", length=4500)])
write(scb + "scbench_kv.jsonl", [{"id": 0, "context": "{\"a\": \"b\"}", "multi_turns": [{"input": "Key: a", "answer": "b"}, {"input": "Key: c", "answer": ["d", "e"]}]}])
write(scb + "scbench_mf.jsonl", [{"id": 0, "context": [3, 41, 5], "multi_turns": [{"input": "You should answer with only one number, no other words. The largest number of the list is: ", "answer": 41}]}])
PY
good 'LongBench' eval --dump-samples -m "$smollm2" --tasks longbench --longbench "$work/lb" --lb-max-prompt 1000
py "$work/out" <<'PY' || fail 'LongBench samples'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert [r["task"] for r in rows] == ["qasper", "qasper", "qasper", "trec", "samsum"], rows
a, b, c, trec, samsum = rows
assert a["context"].startswith("You are given a scientific article and a question. Answer the question as concisely")
assert "\n\nArticle: Ärger {input} in Paris.\n\n Answer the question based on the above article as concisely" in a["context"]
assert (a["question"], a["answer_prefix"], a["refs"], a["metric"], a["max_new"]) == ("Question: Who?\n\n", "Answer:", ["Ann", "Bob"], "qa_f1", 128)
assert (a["meta"]["bucket"], c["meta"]["bucket"], samsum["meta"]["bucket"]) == ("0-4k", "8k+", "4-8k")
assert not a["meta"]["truncated"] and b["meta"]["truncated"] and b["meta"]["context_tokens"] > 5000
assert b["context"].startswith("You are given") and b["context"].endswith("Do not provide any explanation.\n\n") and "word1500" not in b["context"]
assert trec["question"] == "What is it? " and trec["answer_prefix"] == "Type:" and trec["meta"]["classes"] == ["Location", "Date"]
assert not trec["meta"]["chat"] and trec["meta"]["first_line"] and samsum["meta"]["stop_at_line"] and a["meta"]["chat"]
PY
# Of a prompt that is too long the two ends stay, half of the tokens each; the question is part of the second.
mkdir "$work/cut"
py "$work/cut/qasper.jsonl" <<'PY'
import json, sys
json.dump({"input": "Who is it? " * 60, "context": " ".join(f"word{i}" for i in range(3000)), "answers": ["Ann"]}, open(sys.argv[1], "w"))
PY
good 'LongBench, cut' eval --dump-samples -m "$smollm2" --tasks qasper --longbench "$work/cut" --lb-max-prompt 1000
py "$work/out" "$work" <<'PY' || fail 'LongBench, cut: ends'
import json, re, sys
(row,) = (json.loads(line) for line in open(sys.argv[1], encoding="utf-8"))
numbers = list(re.finditer(r"word(\d+)", row["context"]))
at = next(b.start() for a, b in zip(numbers, numbers[1:]) if int(b[1]) > int(a[1]) + 1)
open(sys.argv[2] + "/head.txt", "w").write(row["context"][:at])
open(sys.argv[2] + "/tail.txt", "w").write(row["context"][at:] + row["question"] + row["answer_prefix"])
PY
for end in head tail; do
    good "tokens of the $end" tokens -m "$smollm2" --raw -f "$work/$end.txt"
    n=$(wc -w <"$work/out")
    [ "$n" -ge 490 ] && [ "$n" -le 510 ] || fail "LongBench, cut: the $end has $n tokens"
done
good 'LongBench as in kvpress' eval --dump-samples -m "$smollm2" --tasks longbench --longbench "$work/lb" --lb-max-prompt 1000 --lb-extra-tokens 20 --lb-chat all
py "$work/out" <<'PY' || fail 'LongBench as in kvpress'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert [r["max_new"] for r in rows] == [148, 148, 148, 84, 148] and all(r["meta"]["chat"] for r in rows), rows
PY
good 'LongBench, named twice' eval --dump-samples -m "$smollm2" --tasks longbench,longbench --longbench "$work/lb" --lb-max-prompt 1000
[ "$(wc -l <"$work/out")" -eq 5 ] || fail 'LongBench, named twice'
good 'SCBench' eval --dump-samples -m "$smollm2" --tasks scbench --scbench "$work/scb"
py "$work/out" <<'PY' || fail 'SCBench samples'
import json, sys
kv, mf = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
assert [t["refs"] for t in kv["turns"]] == [["b"], ["d", "e"]] and kv["turns"][1]["question"] == "Key: c"
assert kv["context"] == 'Extract the value corresponding to the specified key in the JSON object below.\n\n{"a": "b"}\n\n'
assert mf["context"] == "What is the largest number?\n\n[3, 41, 5]\n\n" and mf["refs"] == ["41"] and "turns" not in mf
PY
# set_refused NAME PATTERN CONTENT [FILE]: of a set.
set_refused() {
    local file=${4:-lb/qasper}
    printf '%b' "$3" >"$work/$file.jsonl"
    bad "$1" "$2" eval --dump-samples -m "$smollm2" --tasks "${5:-qasper}" --longbench "$work/lb" --scbench "$work/scb"
}
lb='{"input":"q","context":"c","answers":["a"]}\n'
set_refused 'a set: not JSON' 'line 2: not JSON' "$lb{"
set_refused 'a set: no context' 'line 2: no text "context"' "$lb"'{"input":"q","answers":["a"]}\n'
set_refused 'a set: no answers' 'line 1: no list "answers"' '{"input":"q","context":"c"}\n'
set_refused 'a set: no input' 'line 1: no text "input"' '{"context":"c","answers":["a"]}\n'
set_refused 'a set: a NUL' 'line 1: a text has a NUL' '{"input":"q","context":"c\\u0000d","answers":["a"]}\n'
set_refused 'a set: nothing' 'is empty' '\n'
set_refused 'trec without classes' 'line 1: no list "all_classes"' "$lb" lb/trec trec
set_refused 'no turns' 'no list "multi_turns"' '{"context":"c"}\n' scb/scbench_kv scb_kv
set_refused 'a turn without an answer' 'no list "answer"' '{"context":"c","multi_turns":[{"input":"q"}]}\n' scb/scbench_kv scb_kv
set_refused 'a context of strings' 'no whole number' '{"context":["c"],"multi_turns":[{"input":"q","answer":"a"}]}\n' scb/scbench_mf scb_mf
bad 'a set without a folder' 'lcc needs the files of --longbench' eval --dump-samples -m "$smollm2" --tasks lcc
bad 'a set that is not there' 'cannot open' eval --dump-samples -m "$smollm2" --tasks lcc --longbench "$work/lb"
bad 'a folder without sets' 'no file of these sets' eval --dump-samples -m "$smollm2" --tasks longbench --longbench "$work/texts"
printf '{"input":"%s","context":"c","answers":["a"]}\n' "$(seq -s ' ' 1 40)" >"$work/lb/musique.jsonl"
bad 'a prompt that is too short' 'does not fit a prompt' eval --dump-samples -m "$smollm2" --tasks musique --longbench "$work/lb" --lb-max-prompt 16

# The user's own questions: --jsonl alone is task user, with all lines of the file.
py "$work/own.jsonl" <<'PY'
import json, sys
with open(sys.argv[1], "w") as f:
    for i in range(25):
        print(json.dumps({"id": f"q{i}", "context": f"Ann has {i} goats.", "question": "How many goats?", "answers": [str(i), f"{i} goats"]}), file=f)
    print(json.dumps({"context": "Bob sings.", "question": "Who?", "answer": "Bob", "metric": "qa_f1", "max_new": 3}), file=f)
PY
good 'own questions' eval --dump-samples -m "$smollm2" --jsonl "$work/own.jsonl"
py "$work/out" <<'PY' || fail 'own questions: samples'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [r["index"] for r in rows] == list(range(26)) and {r["task"] for r in rows} == {"user"}
assert (rows[7]["context"], rows[7]["question"], rows[7]["answer_prefix"]) == ("Ann has 7 goats.\n\n", "How many goats?\n", "Answer:")
assert (rows[7]["refs"], rows[7]["metric"], rows[7]["max_new"], rows[7]["meta"]["id"]) == (["7", "7 goats"], "string_match_part", 64, "q7")
assert (rows[25]["refs"], rows[25]["metric"], rows[25]["max_new"]) == (["Bob"], "qa_f1", 3)
PY
good 'own questions beside a task' eval --dump-samples -m "$smollm2" --tasks user,vt --lengths 1000 --samples 2 --jsonl "$work/own.jsonl"
[ "$(grep -c '"task":"user"' "$work/out"):$(wc -l <"$work/out")" = 2:4 ] || fail "own questions beside a task: $(cut -c 1-60 "$work/out")"
good 'own questions beside a suite' eval --dump-samples -m "$smollm2" --suite tiny-ci --jsonl "$work/own.jsonl"
[ "$(grep -c '"task":"user"' "$work/out")" -eq 26 ] || fail 'own questions beside a suite'
grep -qv '"task":"user"' "$work/out" || fail 'own questions in place of a suite'
bad 'no file of questions' 'name it with --jsonl' eval --dump-samples -m "$smollm2" --tasks user
bad 'a file that is not there' 'cannot open' eval --dump-samples -m "$smollm2" --jsonl "$work/none.jsonl"
echo '{"context": "c", "question": "q"}' >>"$work/own.jsonl"
bad 'own questions: a bad line' "own.jsonl' line 27: no text \"answer\"" eval --dump-samples -m "$smollm2" --jsonl "$work/own.jsonl"
bad 'own questions: a bad line after the samples' 'line 27' eval -m "$smollm2" --jsonl "$work/own.jsonl" --samples 1 --out "$work/made/x"
finish
