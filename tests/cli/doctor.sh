# SPDX-License-Identifier: MIT
# winnow doctor: what it says of this machine, and that it finds what was broken for it.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
# A cache folder of its own, whose default model is the tiny one.
export WINNOW_CACHE=$work/cache
mkdir -p "$WINNOW_CACHE/models"
cp "$model" "$WINNOW_CACHE/models/smollm2-135m.gguf"

# doctor CODE NAME ARGS...: prints JSON to $work/out and ends with this code; nothing on stderr.
doctor() {
    local want=$1 name=$2 code
    shift 2
    "$WINNOW" doctor --json "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ "$code" -eq "$want" ] || fail "$name: exit code $code, expected $want: $(cat "$work/err")"
    [ -s "$work/err" ] && fail "$name: said: $(cat "$work/err")"
    json "$name" "$work/out" 'o["ok"] == ('"$want"' == 0) and all(f["what"] and f["todo"] for f in o["findings"])
        and any(f["wrong"] for f in o["findings"]) != o["ok"]'
}

doctor 0 'a machine with a model'
json 'what it says' "$work/out" 'o["versions"]["winnow"] and o["versions"]["ggml"] and o["versions"]["libllama"]
    and 1 <= o["cpu"]["threads"] <= o["cpu"]["cores"] and 0 < o["memory"]["left"] <= o["memory"]["available"] <= o["memory"]["total"]'
json 'kernels' "$work/out" '{k["work"] for k in o["kernels"] if k["used"]} >= {"attention", "weights"}'
json 'models' "$work/out" '[m["opens"] for m in o["models"]] == [True] + [False] * (len(o["models"]) - 1)
    and [m["bytes"] is None for m in o["models"]] == [not m["present"] for m in o["models"]]'
json 'profiles' "$work/out" '{p["model"] for p in o["profiles"]} >= {"smollm2-135m"} and all(p["files"] > 0 for p in o["profiles"])'
path=$("$WINNOW" backend --path 2>/dev/null)
json 'the backend' "$work/out" 'o["backend"]["path"] == ('"'$path'"' or None)'
json 'chat' "$work/out" 'o["chat"]["edited_with"] is None or o["chat"]["edited_with"].startswith("libedit ")'
json 'chat without libedit' "$work/out" 'any("libedit" in f["what"] for f in o["findings"]) == (o["chat"]["edited_with"] is None)'
good 'text' doctor
for line in '^winnow +0\.' '^CPU ' '^cores ' '^kernels +attention: .* in use' '^memory .* GiB' '^models +smollm2-135m +opens' '^chat +lines are ' '^nothing is wrong$'; do
    grep -Eq "$line" "$work/out" || fail "the text has no line /$line/"
done
good 'a model besides' doctor -m "$model" --json
json 'it is looked at' "$work/out" 'o["models"][-1]["path"].endswith("tiny-llama.gguf") and o["models"][-1]["opens"]'

# A kernel that is better than the one in use says why it is not.
json 'reasons' "$work/out" 'all(k["lacks"] or not k["built"] for i, k in enumerate(o["kernels"]) if not k["used"]
    and not any(b["used"] for b in o["kernels"][:i] if b["work"] == k["work"]))'

head -c 5000 "$model" >"$work/cut.gguf"
doctor 1 'a damaged model' -m "$work/cut.gguf"
json 'it is named' "$work/out" 'any(f["wrong"] and "cut.gguf does not open" in f["what"] for f in o["findings"])'
cp "$work/cut.gguf" "$WINNOW_CACHE/models/gemma-3-270m.gguf"
doctor 1 'a damaged model that has a name'
rm "$WINNOW_CACHE/models/gemma-3-270m.gguf"
truncate -s 64T "$work/huge.gguf" 2>/dev/null && doctor 1 'a file that is no model' -m "$work/huge.gguf"
rm -f "$work/huge.gguf"

mkdir -p "$WINNOW_CACHE/profiles/mine"
echo '{}' >"$WINNOW_CACHE/profiles/mine/heads.json"
doctor 0 'profiles of the user'
json 'they are counted' "$work/out" '[p["files"] for p in o["profiles"] if p["model"] == "mine"] == [1]'

(ulimit -v 8000000 && doctor 0 'few addresses' && json 'a remark' "$work/out" \
    'o["memory"]["address_limit"] == 8000000 * 1024 and any("ulimit -v" in f["todo"] for f in o["findings"])' && exit "$failures") ||
    failures=$((failures + 1))

rm "$WINNOW_CACHE/models/smollm2-135m.gguf"
doctor 1 'no model'
json 'how to get one' "$work/out" 'any("fetch_models.sh" in f["todo"] for f in o["findings"])'
doctor 0 'no model but the one that is given' -m "$model"
"$WINNOW" doctor >"$work/out" 2>"$work/err" && fail 'the text of what is wrong has exit code 0'
grep -q '^wrong: no model can be used; ' "$work/out" || fail "no line of what is wrong: $(cat "$work/out")"
(unset WINNOW_CACHE HOME && "$WINNOW" doctor >"$work/out" 2>"$work/err"
    [ $? -eq 1 ] && grep -q '^wrong: neither WINNOW_CACHE nor HOME' "$work/out" && [ ! -s "$work/err" ]) ||
    fail "without a folder: $(cat "$work/out" "$work/err")"

# Names with control characters are shown without them, as everywhere.
for escape in $'\033[31m' $'\033]0;title\a' $'\r' $'\b\b' $'\177'; do
    cp "$model" "$work/x${escape}y.gguf"
    good 'a name with control characters' doctor -m "$work/x${escape}y.gguf"
    LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" "$work/out" && fail "a name with control characters: $(cat -v "$work/out")"
done
bad 'a model that is not there' 'no file .nowhere' doctor -m nowhere
bad 'a name that is nearly one' 'did you mean smollm2-135m' doctor -m smollm2-135
bad 'an argument' "unexpected argument 'x'" doctor x
bad 'an option' 'did you mean --json' doctor --jsn
finish
