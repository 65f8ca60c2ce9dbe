# SPDX-License-Identifier: MIT
# The example program of the three calls: a document is read, stored, and asked again from its file.
. "$(dirname "$0")/lib.sh"
model=$tiny/chat/smollm2.gguf
need_file "$model"
program=$(dirname "$WINNOW")/examples/ask
need_file "$program"
for i in $(seq 1 12); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$work/doc.txt"
first='Who keeps tower 3?' second='How many lamps?'
"$program" "$model" "$work/doc.txt" "$work/doc.wkv" "$first" "$second" >"$work/out" 2>"$work/err" || fail "ask: $(cat "$work/err")"
grep -qE '^\[[0-9.]+ of [0-9.]+ MiB kept of the document\]$' "$work/err" || fail "ask does not say what it keeps: $(cat "$work/err")"
# Three answers: the first question before and after storing, then the second one; what `winnow ask` says of the file.
csplit -s -z -f "$work/part" "$work/out" '/^--$/' '{*}'
sed -i '/^--$/d' "$work"/part*
same 'the stored document answers as the one that was read' "$work/part00" "$work/part01"
for i in 1 2; do
    question=$first
    [ $i -eq 1 ] || question=$second
    good "ask $i" ask -m "$model" -c "$work/doc.wkv" -p "$question" -n 40
    cmp -s <(tr -d '\n' <"$work/out") <(tr -d '\n' <"$work/part0$i") || fail "question $i: winnow ask says $(cat "$work/out"), the program $(cat "$work/part0$i")"
done
good 'what was stored' inspect "$work/doc.wkv" --json
json 'three quarters of the entries went' "$work/out" '0.2 < o["kept_tokens_mean"] / o["n_tokens"] < 0.3'
"$program" >"$work/out" 2>"$work/err" && fail 'no arguments are taken'
grep -q '^usage: ' "$work/err" || fail "no usage: $(cat "$work/err")"
"$program" /no/such/model "$work/doc.txt" "$work/x.wkv" a b >"$work/out" 2>"$work/err" && fail 'a missing model is taken'
grep -q '/no/such/model' "$work/err" || fail "the missing model is not named: $(cat "$work/err")"
finish
