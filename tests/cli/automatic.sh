# SPDX-License-Identifier: MIT
# The policy that is chosen where none is named, and what is said of it.
. "$(dirname "$0")/lib.sh"
model=$models/smollm2-135m.gguf
small=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$small"
export WINNOW_CACHE=$work/cache # no profiles but the shipped ones
for i in $(seq 12); do
    echo "Note $i: the harbour of town number $i opens at $((i % 12 + 1)) o'clock and closes late."
done >"$work/doc.txt"
question='When does the harbour of town number 3 open?'

# chooses NAME POLICY ARGS...: winnow run with these arguments chooses the policy, and says so on one line.
chooses() {
    local name=$1 policy=$2
    shift 2
    good "$name" run -f "$work/doc.txt" -p "$question" -n 1 -t 1 --json "$@" && {
        json "$name: the choice" "$work/out" "o['choice']['policy'] == '$policy' and set(o['choice']) == {'policy', 'when', 'why', 'evidence'}"
        [ "$(grep -c "policy: ${policy%%[:+]*} (.*; --policy overrides)$" "$work/err")" -eq 1 ] || fail "$name: not said once: $(cat "$work/err")"
        [ "$(grep "policy: ${policy%%[:+]*} (" "$work/err" | wc -c)" -le 150 ] || fail "$name: not said in one short line: $(cat "$work/err")"
        # Without the profile that helps most it is said how to make it.
        [[ "$*" == *"$small"* ]]
        [ "$(grep -c 'no profile of shares.*winnow calibrate shares -m' "$work/err")" -eq $((1 - $?)) ] || fail "$name: what is missing: $(cat "$work/err")"
    }
}

# With shipped profiles of shares, both kinds of gates and stats.
chooses 'question known' 'kvzap:recent=32,room=0.3+shares' -m "$model" --ratio 0.2
chooses 'question known, few entries stay' 'kvzap:recent=32,room=0.3+shares' -m "$model" --ratio 0.5
chooses 'question later' 'kvzap:recent=32,room=0.3+shares' -m "$model" --ratio 0.2 --context-only --policy auto
chooses 'question later, little stays' 'kvzap:recent=0+shares' -m "$model" --ratio 0.9 --context-only
chooses 'layer by layer' 'kvzap:recent=0+shares' -m "$model" --ratio 0.9 --context-only --evict layer
chooses 'by chunk' 'kvzap:recent=32,room=0.3+shares' -m "$model" --ratio 0.2 --context-only --evict chunk:64
chooses 'while decoding' 'kvzap:recent=32,room=0.3+shares' -m "$model" --ratio 0.5 --evict-every 8
chooses 'less than shares were measured at' 'keydiff-values-sampled' -m "$model" --raw --budget 8 --context-only
# A folder of readings finds them by recipe, and profiles are no part of it.
chooses 'a folder of readings' 'keydiff-sampled' -m "$model" --ratio 0.5 --context-only --store "$work/readings"
grep -q "auto chooses without this model's calibration results here" "$work/err" || fail "a folder of readings: why is not said: $(cat "$work/err")"
good 'a folder of readings, no profile' run -f "$work/doc.txt" -p "$question" -n 1 -t 1 -m "$small" --ratio 0.5 --context-only --store "$work/readings" &&
    grep -q 'calibration results' "$work/err" && fail "a folder of readings, no profile: $(cat "$work/err")"
# What gates said is stored with a document, and more can be added to it. A conversation about it has read no gates of its own.
good 'stored' compress -m "$model" -f "$work/doc.txt" --budget 60 -t 1 -o "$work/doc.wkv" && grep -q 'policy: kvzap (' "$work/err" || fail "another choice: $(cat "$work/err")"
good 'added' compress -c "$work/doc.wkv" -m "$model" -f "$work/doc.txt" -t 1 -o "$work/both.wkv"
printf '%s\n' "$question" '/size 40' "$question" >"$work/turns"
"$WINNOW" chat -m "$model" -c "$work/both.wkv" -t 1 -n 2 --ratio 0.2 --policy auto <"$work/turns" >"$work/out" 2>"$work/err" || fail "a conversation: $(cat "$work/err")"
grep -q 'policy: kvgate (' "$work/err" || fail "a conversation about a stored document asks for gates that it has not: $(cat "$work/err")"
# Without.
chooses 'no profile' 'keydiff-sampled' -m "$small" --ratio 0.6 --context-only
chooses 'no profile, question known' 'keydiff-sampled:last=32,room=0.3' -m "$small" --ratio 0.6
chooses 'no profile, little stays' 'keydiff-values-sampled' -m "$small" --ratio 0.8 --context-only
chooses 'no profile, half stays' 'keydiff-sampled' -m "$small" --ratio 0.5 --context-only
chooses 'no profile, half stays, question known' 'keydiff-sampled:last=32,room=0.3' -m "$small" --ratio 0.5
chooses 'no profile, three quarters stay' 'replay' -m "$small" --ratio 0.25 --context-only
chooses 'no profile, question known, by layer' 'snapkv:kernel=31' -m "$small" --budget 64 --evict layer
chooses 'no profile, by layer' 'keydiff' -m "$small" --kv-bytes 64K --context-only --evict layer
chooses 'no profile, by chunk' 'keydiff' -m "$small" --ratio 0.5 --context-only --evict chunk:64
chooses 'no profile, while decoding' 'keydiff' -m "$small" --ratio 0.5 --context-only --evict-every 8
chooses 'no size' 'keydiff-sampled:last=32,room=0.3' -m "$small" --policy auto
grep -q 'ratio 0.5' "$work/err" || fail 'the assumed ratio is not said'

# With a named policy, or with neither policy nor size, nothing is printed.
good 'a named policy' run -m "$small" -p "$question" -n 1 -t 1 --json --policy snapkv --ratio 0.5 &&
    json 'no choice' "$work/out" '"choice" not in o'
good 'no policy and no size' run -m "$small" -p "$question" -n 1 -t 1 --json && json 'the full cache' "$work/out" '"choice" not in o'

# A prompt beyond the trained context is read by chunks with positions of its own.
for i in $(seq 400); do echo "Note $i: nothing happened in town number $i."; done >"$work/long.txt"
good 'beyond the context' run -m "$small" -f "$work/long.txt" -p "$question" -n 1 -t 1 --json --budget 32 --evict chunk:64 &&
    json 'beyond the context: the choice' "$work/out" 'o["choice"]["policy"] == "streaming_llm-rerotated"'
bad 'beyond the context at the end' 'context is' run -m "$small" -f "$work/long.txt" -p "$question" -n 1 --budget 32

# Other commands.
good 'plan' plan -m "$small" -f "$work/doc.txt" --ratio 0.5 --context-only -t 1 -o "$work/plan.json" && {
    json 'plan: the choice' "$work/plan.json" 'o["choice"]["policy"] == "keydiff-sampled" and o["policy"].startswith("keydiff:")'
    grep -q 'policy: keydiff-sampled (' "$work/err" || fail "plan does not say it: $(cat "$work/err")"
}
good 'ppl' ppl -m "$small" -f "$work/doc.txt" --ratio 0.5 -t 1 --json &&
    json 'ppl: the choice' "$work/out" 'o["choice"]["policy"] == "keydiff-sampled" and o["policy"].startswith("keydiff:")'
good 'eval' eval -m "$small" --tasks niah_single_2 --lengths 512 --samples 1 --no-gate --quiet -t 1 --policies auto,snapkv --ratios 0.5 \
    --modes agnostic,aware --out "$work/run" && {
    grep -q 'auto is keydiff-sampled in mode agnostic with ratio=0.5, because' "$work/err" || fail "eval does not say it: $(cat "$work/err")"
    py "$work/run" <<'PY' || fail 'eval: other policies than those that auto stands for'
import json, pathlib, sys
run = json.loads((pathlib.Path(sys.argv[1]) / "run.json").read_text())
got = {(c["mode"], c["recipe"]) for c in run["configs"] if c["size"] != "full"}
want = {("agnostic", "keydiff-sampled"), ("aware", "keydiff-sampled:last=32,room=0.3"), ("agnostic", "snapkv"), ("aware", "snapkv")}
sys.exit(0 if got == want else f"{got} {want}")
PY
}
bad 'lengths of two choices' 'auto is kvzap.* for 512 tokens and kvgate.shares for 6001: give one' eval -m "$model" --tasks niah_single_2 --lengths 512,6001 --samples 1 \
    --no-gate --quiet -t 1 --policies auto --ratios 0.5 --out "$work/two"
good 'bench' bench -m "$small" --lengths 64 --reps 1 --decode-tokens 4 --policy auto --budget 40 -t 1 --json &&
    grep -q 'policy: replay (' "$work/err" || fail "bench does not say it: $(cat "$work/err")"
good 'bench methods' bench methods -m "$small" --lengths 64 --reps 1 --policies auto,snapkv -t 1 --json &&
    grep -q 'policy: keydiff-sampled (' "$work/err" || fail "bench methods does not say it: $(cat "$work/err")"
bad 'auto among parts' "auto" run -m "$small" -p x --policy auto+adakv

# The type that is chosen for a size in bytes. An entry in all 90 KV heads takes 23040 bytes in f16, 12240 in q8_0.
python3 -c 'print(*(500 + (i * 37) % 900 for i in range(100)))' >"$work/ids"
# stored_as NAME BYTES MEAN ROTATED SAYS COMMAND..: with BYTES bytes MEAN of 100 entries stay, and SAYS is printed.
stored_as() {
    local name=$1 bytes=$2 mean=$3 rotated=$4 says=$5
    shift 5
    good "$name" "$@" -m "$model" --policy knorm --kv-type auto --kv-bytes "$bytes" -t 1 --json && {
        json "$name: entries" "$work/out" "o['kept_tokens_mean'] == $mean and o.get('kv_rotated', $rotated) == $rotated"
        [ "$(grep -c "cache $says" "$work/err")" -eq 1 ] || fail "$name: not said once: $(cat "$work/err")"
    }
}
ids=(--tokens "$work/ids")
# 90 heads; 100 entries have room for 128. In f16 the keys of a layer take 12 pages, in q8_0 6.4, hence 7; 64 entries in q8_0 3.2, hence 4.
stored_as 'everything fits' $((60 * 12 * 4096)) 100 False 'f16, because all 100 tokens fit' run "${ids[@]}" -n 1
stored_as 'a byte less' $((60 * 12 * 4096 - 1)) 100 True 'q8_0, because .* in q8_0 all of them fit' run "${ids[@]}" -n 1
stored_as 'everything fits in q8_0' $((60 * 7 * 4096)) 100 True 'q8_0, because .* in q8_0 all of them fit' run "${ids[@]}" -n 1
stored_as 'two thirds of the entries' $((60 * 4 * 4096)) 64 True 'q8_0, because .* in q8_0 more of them stay' run "${ids[@]}" -n 1
stored_as 'a byte less than that' $((60 * 4 * 4096 - 1)) 32 True 'q8_0, because .* in q8_0 more of them stay' run "${ids[@]}" -n 1
stored_as 'perplexity' $((60 * 4 * 4096)) 64 True 'q8_0, because' ppl "${ids[@]}" --prefix 80
good 'not rotated' run -m "$model" "${ids[@]}" --policy knorm --kv-type auto --kv-rotate off --kv-bytes $((60 * 4 * 4096)) -n 1 -t 1 --json &&
    json 'not rotated' "$work/out" 'o["kept_tokens_mean"] == 64 and o["kv_rotated"] is False'
good 'plan by bytes' plan -m "$model" "${ids[@]}" --policy knorm --kv-type auto --kv-bytes $((60 * 4 * 4096)) -t 1 -o "$work/plan.json" &&
    json 'plan by bytes' "$work/plan.json" 'all(len(h) == 64 for l in o["layers"] for h in l["heads"])'
good 'a stored document' compress -m "$small" -f "$work/doc.txt" --kv-type auto --kv-bytes 36K --policy knorm -t 1 -o "$work/doc.wkv" &&
    grep -q 'cache q8_0, because' "$work/err" || fail "compress does not say it: $(cat "$work/err")"
good 'its type' inspect "$work/doc.wkv" --json && json 'its type' "$work/out" 'o["kv_type"] == "q8_0"'
good 'asked' ask -m "$small" -c "$work/doc.wkv" -p "$question" -n 1 -t 1 --json && json 'asked' "$work/out" 'o["kv_rotated"] is True'
good 'a store' run -m "$small" -f "$work/doc.txt" -p "$question" --context-only --policy knorm --kv-type auto --kv-bytes 36K --store "$work/store" -n 1 -t 1 --json &&
    json 'a store' "$work/out" 'o["kv_rotated"] is True'
good 'the policy too' run -m "$small" -f "$work/doc.txt" -p "$question" --kv-type auto --kv-bytes 36K -n 1 -t 1 --json &&
    [ "$(grep -Ec ', because |policy: ' "$work/err")" -eq 2 ] || fail "not both are said: $(cat "$work/err")"
# What does not fit is refused: before anything is read, or where the policy leaves more.
bad 'less than a block' 'a block of entries in each of 4 layers takes 32768 bytes' run -m "$small" -f "$work/doc.txt" -p "$question" --kv-bytes 20K --policy knorm -n 1
bad 'less than a block, stored' 'is too small' compress -m "$small" -f "$work/doc.txt" --kv-bytes 32767 --policy keydiff -o "$work/made/x.wkv"
for bytes in 32768 40K 50001 64K; do
    for policy in knorm keydiff snapkv:window=8 h2o pyramidkv:window=8 snapkv:window=8+adakv laq streaming_llm; do
        "$WINNOW" run -m "$small" -f "$work/doc.txt" -p "$question" --kv-bytes $bytes --policy $policy -n 1 -t 1 --json >"$work/out" 2>"$work/err" </dev/null
        case $? in
        0) json "$policy in $bytes" "$work/out" "o['kv_bytes'] <= $(numfmt --from=iec $bytes)" ;;
        2) grep -qE 'too small|too few|always keeps' "$work/err" || fail "$policy in $bytes: $(cat "$work/err")" ;;
        *) fail "$policy in $bytes: $(cat "$work/err")" ;;
        esac
    done
done
good 'sliding windows do not count' run -m "$tiny/tiny-gemma3.gguf" -f "$work/doc.txt" -p "$question" --kv-bytes 16K --policy knorm -n 1 -t 1 --json
bad 'no bytes' 'give a size with --kv-bytes' run -m "$small" -p x --kv-type auto --ratio 0.5
bad 'a tail' 'leave it out' run -m "$small" -p x --kv-type auto --kv-bytes 20K --kv-tail 64
bad 'in a bench' 'or a type' bench -m "$small" --kv-type auto
finish
