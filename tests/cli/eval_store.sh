# SPDX-License-Identifier: MIT
# winnow eval --store: the same records with and without a folder of readings, fewer tokens read the second time, and what cannot be kept is
# refused.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
for i in 1 2; do
    python3 - "$i" <<'P'
import json, sys
i = int(sys.argv[1])
text = " ".join(f"The keeper of tower {k} is called Name{k * i} and has {k * 7} lamps." for k in range(9))
print(json.dumps({"context": text, "question": "Who keeps tower 3?", "answers": [f"Name{3 * i}"]}))
P
done >"$work/user.jsonl"
of=(-m "$model" --jsonl "$work/user.jsonl" --policies full,knorm,lagkv:sink=4,lag=16 --ratios 0.5 --modes agnostic,aware --kv-types f16,q8_0:32 -t 1 --quiet)

# records DIR: all of them but their times, sorted.
records() {
    python3 - "$work/$1/results.jsonl" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for row in rows:
    del row["ms"]
print("\n".join(sorted(json.dumps(row, sort_keys=True) for row in rows)))
P
}
read_tokens() { grep -o '[0-9]* tokens of contexts were read, [0-9]*' "$work/err" | tr -dc '0-9 ' | tr -s ' '; }
good 'without a store' eval "${of[@]}" --out "$work/without" && records without >"$work/a"
[ "$(wc -l <"$work/a")" -gt 20 ] || fail "too few records: $(wc -l <"$work/a")"
good 'the first time' eval "${of[@]}" --out "$work/first" --store "$work/store" && records first >"$work/b"
same 'the first time' "$work/a" "$work/b"
set -- $(read_tokens) 0 0
first=$1
[ "$1" -gt 1000 ] && [ "$2" -eq 0 ] || fail "the first time: $(cat "$work/err")"
good 'the second time' eval "${of[@]}" --out "$work/second" --store "$work/store" && records second >"$work/b"
same 'the second time' "$work/a" "$work/b"
set -- $(read_tokens) 0 0
[ "$1" -lt $((first / 4)) ] && [ $(($1 + $2)) -eq "$first" ] || fail "the second time: $(cat "$work/err")"
good 'what is kept is whole' store check "$work/store" && grep -q '^4 documents are whole, 0' "$work/out" || fail "check: $(cat "$work/out")"
# Two processes at once, with other policies, which go on from the same readings.
for i in 1 2; do "$WINNOW" eval "${of[@]}" --out "$work/at$i" --store "$work/both" >/dev/null 2>&1 </dev/null & done
wait
for i in 1 2; do records at$i >"$work/b" && same "at once, $i" "$work/a" "$work/b"; done
# A damaged file is read again.
for f in "$work"/store/*.wkv; do printf '\377\377' | dd of="$f" bs=1 seek=9000 conv=notrunc 2>/dev/null; done
good 'damaged' eval "${of[@]}" --out "$work/damaged" --store "$work/store" && records damaged >"$work/b"
same 'damaged' "$work/a" "$work/b"

bad 'a policy that observes' 'window attention' eval -m "$model" --jsonl "$work/user.jsonl" --policies snapkv --out "$work/no" --store "$work/store"
bad 'layer by layer' 'reads for itself' eval -m "$model" --jsonl "$work/user.jsonl" --policies knorm --evict layer --out "$work/no" --store "$work/store"
bad 'masked heads' 'mask-heads' eval -m "$model" --jsonl "$work/user.jsonl" --policies knorm --mask-heads 0-0 --out "$work/no" --store "$work/store"
bad 'a limit of nothing' 'name it with --store' eval -m "$model" --jsonl "$work/user.jsonl" --policies knorm --out "$work/no" --store-limit 1M
bad 'a file in place of a folder' 'not a folder' eval -m "$model" --jsonl "$work/user.jsonl" --policies knorm --out "$work/no" --store "$work/user.jsonl"
finish
