# SPDX-License-Identifier: MIT
# winnow inspect -o: the page has what the files have, texts where the model is named, nothing that a text can become; what cannot be
# shown is refused. With Chromium the pages are clicked through.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-qwen2.gguf # six heads: shares of them fall between the steps of the shade
need_file "$model"
need_file "$tiny/tiny-llama.gguf"
doc=$work/doc.txt made=$work/made
for i in 1 2 3; do echo "The keeper of tower $i has $((i * 7)) lamps — 漢字 🙂 </script><img src=x onerror=alert(1)> <!-- & ü."; done >"$doc"
in=(-m "$model" -f "$doc" --context-only)
good 'a plan' plan "${in[@]}" --policy snapkv:window=8+adakv --ratio 0.4 -o "$work/a.json"
good 'another' plan "${in[@]}" --policy knorm --ratio 0.6 -o "$work/b.json"
good 'a stored document' compress -m "$model" -f "$doc" --policy knorm --ratio 0.6 -o "$work/b.wkv"
good 'another text' plan -m "$model" -f "$doc" -f "$doc" --context-only --policy knorm --ratio 0.6 -o "$work/long.json"
sed 's/lamps/limps/' "$doc" >"$work/other.txt"
good 'a text of this length' plan -m "$model" -f "$work/other.txt" --context-only --policy knorm --ratio 0.6 -o "$work/other.json"
good 'new positions' compress -m "$model" -f "$doc" --policy streaming_llm-rerotated --budget 60 --evict chunk:100 -o "$work/moved.wkv"
for f in a.json b.wkv moved.wkv; do
    good "$f as JSON" inspect "$work/$f" --json && cp "$work/out" "$work/$f.said"
done

# page NAME ARGS...: a page and its data; one browser opens all pages, with the files in $of.
pages=()
page() {
    local name=$1 file="$work/$1.html"
    shift
    good "$name" inspect "$@" -o "$file" || return
    [ ! -s "$work/out" ] || fail "$name: stdout is not empty"
    [ "$(grep -c '</script>' "$file")" -eq 2 ] || fail "$name: a text ends an element"
    page_data "$file" "$work/page"
    pages+=(-- "$file" "${of[@]}")
}
of=("$work/a.json.said")
page 'by position' "$work/a.json" && json 'no texts' "$work/page" "o['texts'] is None and o['document'] is None and o['n'] == len(o['ids'])"
grep -q 'name the model with -m' "$work/err" || fail 'where texts come from is not said'
page 'with texts' "$work/a.json" -m "$model"
json 'the text' "$work/page" "open('$doc', encoding='utf-8').read().strip() in ''.join(o['texts']) and len(o['texts']) == o['n']"
# The chat template's tokens before and after the text are marked; without the model or the template no tokens are.
json 'the document alone' "$work/page" "''.join(o['texts'][o['document'][0]:o['document'][1]]).strip() == open('$doc', encoding='utf-8').read().strip()"
json 'the bits' "$work/page" "[[[p for p in range(o['n']) if int(h[p // 4], 16) >> p % 4 & 1] for h in l] for l in o['plans'][0]['layers']] == [l['heads'] for l in json.load(open('$work/a.json'))['layers']]"
good 'a plan with a question' plan -m "$model" -f "$doc" -p 'Who keeps it?' --policy knorm --ratio 0.4 -o "$work/asked.plan"
good 'a plan without a template' plan -m "$model" --raw -f "$doc" --policy knorm --ratio 0.4 -o "$work/raw.plan"
good 'a system message' compress -m "$model" --system 'Say it in one word.' -f "$doc" --policy knorm --ratio 0.4 -o "$work/system.wkv"
for f in asked.plan raw.plan system.wkv; do
    good "the page of $f" inspect "$work/$f" -m "$model" -o "$work/page.html" && page_data "$work/page.html" "$work/page"
    json "the document of $f" "$work/page" "(lambda t, d: ''.join(o['texts'][t[0]:t[1]]).split() == (d + ('\nWho keeps it?' if '$f' == 'asked.plan' else '')).split() and (t[0] > 0) == ('$f' != 'raw.plan') and (t[1] < o['n']) == ('$f' == 'asked.plan'))(o['document'], open('$doc', encoding='utf-8').read().strip())"
done
of=("$work/a.json.said" "$work/b.wkv.said")
page 'a plan and a document' "$work/a.json" --compare "$work/b.wkv" -m "$model"
json 'the recipes' "$work/page" "[p['policy'] for p in o['plans']] == ['adakv:window=8', 'knorm']"
of=("$work/b.wkv.said")
page 'a document' "$work/b.wkv" -m "$model"
json 'the model' "$work/page" "o['plans'][0]['model'] == json.load(open('$work/b.wkv.said'))['model']['name']"
# What an answer attended to: its tokens are those of `ask`, and all shares of one come to a whole.
good 'asked' ask -m "$model" -c "$work/b.wkv" -p 'Who keeps tower 3?' -n 7 --json && cp "$work/out" "$work/asked.json"
page 'an answer' "$work/b.wkv" -m "$model" --answer 'Who keeps tower 3?' -n 7
json 'its tokens' "$work/page" "o['answer']['ids'] == json.load(open('$work/asked.json'))['tokens'][:len(o['answer']['ids'])] and 0 < len(o['answer']['ids']) <= 7 and o['answer']['question'] == 'Who keeps tower 3?'"
json 'its shares' "$work/page" "(lambda a: all(abs(d + b - 100000) <= 2 for d, b in zip(a['document'], a['behind'])) and all(abs(sum(r[1::2]) - d) <= len(r) + o['n'] / 2 for r, d in zip(a['mass'], a['document'])) and all(r[1::2] == sorted(r[1::2], reverse=True) for r in a['mass']))(o['answer'])"
json 'of entries that are there' "$work/page" "set(p for r in o['answer']['mass'] for p in r[::2]) <= set(p for l in json.load(open('$work/b.wkv.said'))['layers'] for h in l['heads'] for p in h)"
if command -v chromedriver >/dev/null && command -v chromium >/dev/null; then
    python3 tests/lib/check_inspect.py "${pages[@]:1}" >"$work/said" 2>&1 || fail "pages: $(tail -n 5 "$work/said")"
fi
bad 'an answer of a plan' 'no stored document' inspect "$work/a.json" -m "$model" --answer 'Who?' -o "$made/page.html"
bad 'without a model' 'name it with -m' inspect "$work/b.wkv" --answer 'Who?' -o "$made/page.html"
bad 'beside another' 'leave out --compare' inspect "$work/b.wkv" -m "$model" --answer 'Who?' --compare "$work/a.json" -o "$made/page.html"
bad 'no question' 'has no question' inspect "$work/b.wkv" -m "$model" --answer '' -o "$made/page.html"
bad 'no page for it' 'for a page' inspect "$work/b.wkv" -m "$model" --answer 'Who?'
good 'moved entries' inspect "$work/moved.wkv" -o "$work/page.html" && page_data "$work/page.html" "$work/page" &&
    json 'their positions' "$work/page" "o['ids'] is None and o['plans'][0]['moved'] and o['n'] == json.load(open('$work/moved.wkv.said'))['n_past']"
python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
del o["tokens"], o["fingerprint"]
json.dump(o, open(sys.argv[2], "w"))' "$work/a.json" "$work/old.json"
good 'a plan without tokens' inspect "$work/old.json" -o "$work/page.html"
good 'beside a document' inspect "$work/old.json" --compare "$work/b.wkv" -m "$model" -o "$work/page.html" && page_data "$work/page.html" "$work/page" &&
    json 'its texts' "$work/page" "len(o['texts']) == o['n']"

# What is refused.
bad 'of another length' 'are of different texts' inspect "$work/a.json" --compare "$work/long.json" -o "$made/page.html"
bad 'of another text' 'are of different texts' inspect "$work/a.json" --compare "$work/other.json" -o "$made/page.html"
bad 'moved ones compared' 'cannot be compared' inspect "$work/a.json" --compare "$work/moved.wkv" -o "$made/page.html"
bad 'texts of moved ones' 'new positions; leave out -m' inspect "$work/moved.wkv" -m "$model" -o "$made/page.html"
bad 'texts of no tokens' 'which tokens were read; leave out -m' inspect "$work/old.json" -m "$model" -o "$made/page.html"
bad 'another model' 'belongs to model' inspect "$work/a.json" -m "$tiny/tiny-llama.gguf" -o "$made/page.html"
bad 'no model' 'cannot open|no such|unknown|neither' inspect "$work/a.json" -m "$work/none.gguf" -o "$made/page.html"
bad 'no page' 'for a page' inspect "$work/a.json" -m "$model"
bad 'nothing to compare' 'for a page' inspect "$work/a.json" --compare "$work/b.json"
# A plan that comes through a pipe is read once.
mkfifo "$work/fifo"
good 'a plan as JSON' inspect "$work/a.json" --json && cp "$work/out" "$work/whole"
cat "$work/a.json" >"$work/fifo" &
good 'a plan from a pipe' inspect "$work/fifo" --json && same 'a plan from a pipe' "$work/whole" "$work/out"
wait $!
cat "$work/a.json" >"$work/fifo" &
good 'a page from a pipe' inspect "$work/fifo" -o "$work/page.html"
wait $!
bad 'a document that nobody writes' 'not a regular file' ask -m "$model" -c "$work/fifo" -p 'Who?'
bad 'two forms' 'one of them' inspect "$work/a.json" --json -o "$made/page.html"
bad 'over the plan' 'is an input' inspect "$work/a.json" -o "$work/a.json"
bad 'over the other' 'is an input' inspect "$work/a.json" --compare "$work/b.json" -o "$work/b.json"
bad 'no such folder' 'there is no folder' inspect "$work/a.json" -o "$made/none/page.html"
bad 'a text' 'neither a stored document nor a keep-plan' inspect "$doc" -o "$made/page.html"
bad 'compared with a text' 'neither a stored document nor a keep-plan' inspect "$work/a.json" --compare "$doc" -o "$made/page.html"

# damaged NAME PATTERN STATEMENT: a plan after a Python statement over o.
damaged() {
    python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
exec(sys.argv[3])
json.dump(o, open(sys.argv[2], "w"))' "$work/a.json" "$work/bad.json" "$3"
    bad "$1" "$2" inspect "$work/bad.json" -m "$model" -o "$made/page.html"
}
# nonsense NAME PATTERN STATEMENT: the same, which nothing shows.
nonsense() {
    damaged "$@"
    bad "$1" "$2" inspect "$work/bad.json"
    bad "$1 as JSON" "$2" inspect "$work/bad.json" --json
}
nonsense 'a position too far' 'positions of its text' 'o["layers"][0]["heads"][0].append(o["n_tokens"])'
nonsense 'no position' 'positions of its text' 'o["layers"][0]["heads"][0][0] = "x"'
nonsense 'heads that differ' 'differ in heads' 'o["layers"][0]["heads"].pop()'
nonsense 'no layers' 'differ in heads' 'o["layers"] = []'
nonsense 'a position twice' 'positions of its text' 'o["layers"][0]["heads"][0].insert(0, o["layers"][0]["heads"][0][0])'
nonsense 'a negative position' 'positions of its text' 'o["layers"][0]["heads"][0].insert(0, -1)'
nonsense 'heads that are none' 'positions of its text' 'o["layers"][0]["heads"] = 7'
nonsense 'layers that are none' 'positions of its text' 'o["layers"] = {"heads": []}'
nonsense 'no tokens' '1 to 2147483647' 'o["n_tokens"] = 0'
nonsense 'more tokens than there are' '1 to 2147483647' 'o["n_tokens"] = (1 << 32) + 1'
damaged 'very many tokens' '1 to 1048576' 'o["n_tokens"] = 1 << 30; del o["tokens"]'
damaged 'new positions by its own word' 'have new positions' 'o["n_past"] = 1; o["layers"][0]["heads"][0] = [5]'
bad 'a position after the next one' 'not one of its text' inspect "$work/bad.json" -o "$made/page.html"
damaged 'no next position' 'is damaged' 'o["n_past"] = -7'
nonsense 'other tokens' 'its tokens are not' 'o["tokens"].pop()'
nonsense 'tokens that are none' 'its tokens are not' 'o["tokens"][0] = -1'
nonsense 'no list of tokens' 'its tokens are not' 'o["tokens"] = "abc"'
nonsense 'no heads' 'differ in heads' 'for l in o["layers"]: l["heads"] = []'

# What a file says is no command to the terminal.
python3 -c '
import json, sys
o = json.load(open(sys.argv[1]))
o["policy"] = "\x1b[31mred"
json.dump(o, open(sys.argv[2], "w"))' "$work/a.json" "$work/red.json"
good 'a recipe of control characters' inspect "$work/red.json"
grep -q '^recipe    ?\[31mred$' "$work/out" || fail "control characters are printed: $(cat -v "$work/out")"
finish
