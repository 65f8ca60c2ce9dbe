#!/bin/bash
# SPDX-License-Identifier: MIT
# winnow eval --tasks doc_qa --documents DIR: questions about a folder of documents; scripts/real_documents.py, which makes one of packages.
. "$(dirname "$0")/lib.sh"
smollm2=$models/smollm2-135m.gguf
llama=$tiny/tiny-llama.gguf
need_file "$smollm2"
need_file "$llama"

# Six documents of some 90 tokens, and three questions.
folder=$work/folder
mkdir "$folder"
py "$folder" <<'PY' || fail 'no folder'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for i in range(6):
    lines = "\n".join(f"Room {i}.{k} of the house is painted in colour {i * 100 + k}." for k in range(4))
    (folder / f"house{i}.txt").write_text(f"House {i}\n\n{lines}\n\nThe gardener of house {i} is Mr. Number{i}.\n\nNobody lives next door.\n")
asked = [{"document": f"house{i}.txt", "question": f"Who looks after the garden of house {i}?", "answers": ["Nobody Else", f"number{i}"], "id": f"q{i}"} for i in (4, 1, 2)]
(folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in asked))
PY
dump() { eval_of=("$@"); good "${eval_of[0]}" eval --dump-samples -m "$smollm2" --tasks doc_qa --documents "$folder" "${@:2}"; }
dump 'all questions' --lengths 512
cp "$work/out" "$work/first"
dump 'again' --lengths 512
cmp -s "$work/first" "$work/out" || fail 'the same seed gives other samples'
py "$work/first" <<'PY' || fail 'samples of the folder'
import json, re, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [o["meta"]["id"] for o in rows] == ["q4", "q1", "q2"], rows
for o, house in zip(rows, (4, 1, 2), strict=True):
    assert o["refs"] == ["Nobody Else", f"number{house}"] and o["metric"] == "string_match_part"
    assert 400 < o["meta"]["tokens"] <= 512, o["meta"]
    houses = re.findall(r"^Document \d+:\nHouse (\d)$", o["context"], re.M)
    assert len(houses) > 2 and len(set(houses)) == len(houses) and str(house) in houses, houses
    spans = [o["context"].encode()[a:b].decode() for a, b in o["needle_spans"]]
    assert [s.strip() for s in spans] == [f"The gardener of house {house} is Mr. Number{house}."], spans
    assert o["question"].endswith(f"Who looks after the garden of house {house}?")
assert len({o["meta"]["depth"] for o in rows}) > 1
PY
dump 'the document alone' --lengths 260 --samples 1
py "$work/out" <<'PY' || fail 'a short length'
import json, sys
(o,) = map(json.loads, open(sys.argv[1]))
assert "House 4\n" in o["context"] and "Number4" in o["context"] and o["meta"]["tokens"] <= 260
PY
dump 'more samples than questions' --lengths 512 --samples 9
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "more samples than questions: $(wc -l <"$work/out")"
good 'the list' eval --list
grep -q '^doc_qa  *documents .* file ' "$work/out" || fail "the list: $(grep doc_qa "$work/out")"

# A document that is longer than the length leaves its sample out.
seq -f 'Line %g of the long one.' 400 >"$folder/long.txt"
cp "$folder/questions.jsonl" "$work/questions"
echo '{"document":"long.txt","question":"Which is the seventh line?","answers":["Line 7"]}' >>"$folder/questions.jsonl"
good 'a run' eval -m "$llama" -t 1 --no-gate --tasks doc_qa --documents "$folder" --lengths 800 --policies snapkv --out "$work/run"
json 'a run' "$work/run/run.json" 'len(o["documents"]) == 16 and "squad" not in o'
py "$work/run/results.jsonl" <<'PY' || fail "records: $(head -c 600 "$work/run/results.jsonl")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert {o["id"] for o in rows} == {"q4", "q1", "q2"} and len(rows) == 6 and len({o["text"] for o in rows}) == 3, rows
PY
grep -q 'left out' "$work/err" || fail "a document that is too long: $(cat "$work/err")"
sed -i 's/next door/nearby/' "$folder/house5.txt"
"$WINNOW" eval -m "$llama" -t 1 --no-gate --tasks doc_qa --documents "$folder" --lengths 800 --policies snapkv --out "$work/run" >"$work/out" 2>"$work/err" && fail 'a folder continues with other documents'
grep -q '"documents" differs' "$work/err" || fail "other documents: $(cat "$work/err")"
cp "$work/questions" "$folder/questions.jsonl"

# What is no such folder.
refused() { bad "$1" "$2" eval --dump-samples -m "$smollm2" --tasks doc_qa --documents "${3:-$folder}"; }
bad 'no folder named' 'doc_qa needs a folder of documents and questions; name it with --documents' eval --dump-samples --tasks doc_qa
bad 'the group without its folder' 'name it with --documents' eval --dump-samples --tasks documents
refused 'a missing folder' 'none' "$work/none"
mkdir "$work/empty"
refused 'an empty folder' 'no \*.txt' "$work/empty"
cp "$folder/house1.txt" "$work/empty"
refused 'no questions' 'questions.jsonl' "$work/empty"
line() { printf '%b' "$3" >"$folder/questions.jsonl" && refused "$1" "$2"; }
line 'no lines' 'has no questions' ''
line 'not JSON' 'line 1: not JSON' '{"document"\n'
line 'no document' 'line 1: no text "document"' '{"question":"q","answers":["a"]}\n'
line 'an unknown document' "line 1: there is no document 'house9.txt'" '{"document":"house9.txt","question":"q","answers":["a"]}\n'
line 'a document elsewhere' 'line 1: there is no document' '{"document":"../folder/house1.txt","question":"q","answers":["House"]}\n'
line 'no question' 'line 1: no text "question"' '{"document":"house1.txt","answers":["House"]}\n'
line 'no answers' 'line 1: no list "answers"' '{"document":"house1.txt","question":"q"}\n'
line 'an empty answer' 'line 1: "answers" has an empty text' '{"document":"house1.txt","question":"q","answers":[" "]}\n'
line 'an answer that is not there' "line 1: 'house1.txt' has none of the answers" '{"document":"house1.txt","question":"q","answers":["a red door"]}\n'
line 'an odd id' 'line 1: "id" is neither' '{"document":"house1.txt","question":"q","answers":["House"],"id":[]}\n'
cp "$work/questions" "$folder/questions.jsonl"
printf ' \n' >"$folder/blank.txt"
refused 'a document without words' "blank.txt' is empty"
: >"$folder/blank.txt"
refused 'an empty document' 'blank.txt'
rm "$folder/blank.txt"
bad 'too short a length' 'give it a length of' eval --dump-samples -m "$smollm2" --tasks doc_qa --documents "$folder" --lengths 100

# The script, with packages that are made here.
if command -v dpkg-deb >/dev/null; then
    export PYTHONDONTWRITEBYTECODE=1
    py "$work" <<'PY' || fail 'no packages'
import pathlib, subprocess, sys
sys.path.insert(0, "scripts")
import real_documents
work = pathlib.Path(sys.argv[1])
(work / "packages").mkdir()
body = "".join(f"<p>Filler {i} says <code>nothing</code> at all.</p>" for i in range(40))
page = f"""<html><head><title>x</title></head><body><nav>skipped</nav><h1>Doors<a class="headerlink">#</a></h1>{body}<h2>Locks</h2><div class="note"><h3>Tip</h3>
<p>Turn the <b>brass</b>
key.</p></div><ul><li><p>one</p></li></ul><pre>a  b
c</pre>{body}</body></html>"""
for name, folder in real_documents.PAGES.items():
    root = work / name
    (root / folder).mkdir(parents=True)
    (root / folder / "doors.html").write_text(page)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(f"Package: {name}\nVersion: 1.5-2\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n")
    subprocess.run(["dpkg-deb", "--build", root, work / "packages" / f"{name}_1.5-2_all.deb"], check=True, stdout=subprocess.DEVNULL)
PY
    asked='{"package":"debian-handbook","page":"doors.html","section":"Locks","question":"What is the key made of?","answers":["brass"]}'
    made() { python3 scripts/real_documents.py "$work/packages" "$@" >"$work/out" 2>"$work/err"; }
    echo "$asked" >"$work/asked"
    made "$work/documents" --questions "$work/asked" --tokens 200 --show --text "$work/pages.text" || fail "the script: $(cat "$work/err")"
    [ "$(grep -c '^Doors$' "$work/pages.text")" -eq 1 ] && [ "$(grep -c '^Filler 39 says' "$work/pages.text")" -eq 2 ] || fail "the text: $(cat "$work/pages.text")"
    py "$work/documents" <<'PY' || fail "documents: $(ls "$work/documents")"
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
(q,) = map(json.loads, open(folder / "questions.jsonl"))
assert q["id"] == "debian-handbook 1.5-2 doors.html: Locks" and q["answers"] == ["brass"]
texts = {p.name: p.read_text() for p in folder.glob("*.txt")}
assert "Locks\n\nTip\n\nTurn the brass key.\n\n- one\n\na  b\nc\n\nFiller 0 says nothing at all." in texts[q["document"]], texts
assert not any("skipped" in t or "#" in t for t in texts.values()) and all(len(t) <= 802 for t in texts.values()) and len(texts) > 2
PY
    good 'made documents' eval --dump-samples -m "$smollm2" --tasks doc_qa --documents "$work/documents" --lengths 512
    made "$work/documents" --questions "$work/asked" && fail 'a folder that is not empty was written to'
    { echo "${asked/brass/iron}"; echo "${asked/Locks/Bolts}"; echo "${asked/doors.html/roofs.html}"; } >"$work/asked"
    made "$work/other" --questions "$work/asked" && fail 'questions without answers were taken'
    [ "$(wc -l <"$work/err")" -eq 3 ] && grep -q 'none of the answers' "$work/err" && grep -q "no section 'Bolts'" "$work/err" && grep -q 'no such page' "$work/err" &&
        [ ! -e "$work/other" ] || fail "faults: $(cat "$work/err")"
    rm "$work"/packages/python*
    made "$work/other" && fail 'a package was not missed'
    grep -q 'has no package python3.11-doc' "$work/err" || fail "a missing package: $(cat "$work/err")"
fi
finish
