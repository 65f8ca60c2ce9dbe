# SPDX-License-Identifier: MIT
# What is stored for one model is refused by another that differs from it in one thing, and taken by the same model under another name:
# stored documents, folders of them, slots, keep-plans, profiles and evaluations. What an older winnow stored is refused with what to do.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
export WINNOW_CACHE=$work/cache
for i in $(seq 1 12); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$work/doc.txt"

# Copies of the model, each in a folder of its own, because names of files say nothing.
py "$model" "$work" <<'PY' || fail 'no copies of the model'
import os, struct, sys
model, work = sys.argv[1:]
data = open(model, "rb").read()
at = 24
n_tensor, n_key = struct.unpack_from("<QQ", data, 8)
sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]
keys, tensors = {}, {}

def number(form):
    global at
    (x,) = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize(form)
    return x

def text():
    global at
    n = number("Q")
    at += n
    return data[at - n:at]

def value(kind):
    global at
    if kind == 8:
        text()
    elif kind == 9:
        of, n = number("I"), number("Q")
        for _ in range(n):
            value(of)
    else:
        at += sizes[kind]

for _ in range(n_key):
    name, kind = text(), number("I")
    keys[name] = at
    value(kind)
for _ in range(n_tensor):
    name = text()
    shape = [number("Q") for _ in range(number("I"))]
    tensors[name] = (shape, number("I"), number("Q"))
start = (at + 31) // 32 * 32

def copy(name, *edits):
    out = bytearray(data)
    for at, new in edits:
        out[at:at + len(new)] = new
    os.makedirs(f"{work}/{name}")
    with open(f"{work}/{name}/m.gguf", "wb") as f:
        f.write(out)

def place(name):
    shape, kind, at = tensors[name]
    assert kind == 0, (name, kind)
    return start + at, shape[0] * 4, shape[1] if len(shape) > 1 else 1

def mirrored(name):  # its rows in the other order
    at, row, n = place(name)
    return at, b"".join(data[at + i * row:at + (i + 1) * row] for i in reversed(range(n)))

def exchanged(name):  # its first two rows
    at, row, n = place(name)
    return at, data[at + row:at + 2 * row] + data[at:at + row]

def bit(name):
    at, row, n = place(name)
    return at + row // 2, bytes([data[at + row // 2] ^ 1])

copy("same")
n_layer, n_head, n_head_kv, n_embd = [struct.unpack_from("<I", data, keys[b"llama." + k])[0]
                                      for k in (b"block_count", b"attention.head_count", b"attention.head_count_kv", b"embedding_length")]
with open(f"{work}/numbers", "w") as f:
    print(n_layer, n_head, n_head_kv, n_embd // n_head, file=f)
at = keys[b"general.name"]
n = struct.unpack_from("<Q", data, at)[0]
copy("renamed", (at + 8, b"x" * n))
copy("rope", (keys[b"llama.rope.freq_base"], struct.pack("<f", 500000.0)))
copy("eps", (keys[b"llama.attention.layer_norm_rms_epsilon"], struct.pack("<f", 1e-2)))
copy("output", mirrored(b"blk.1.attn_output.weight"))
copy("ffn", mirrored(b"blk.0.ffn_down.weight"))
copy("norm", bit(b"output_norm.weight"))
copy("row", exchanged(b"blk.1.ffn_up.weight"))
copy("token", (data.index(b"tokenizer.ggml.tokens") + 21 + 4 + 4 + 8 + 8, b"~"))
PY
others='rope eps output ffn norm row token'
same=$work/same/m.gguf
first=$(fingerprint "$same")
[ "${#first}" -eq 32 ] || fail "no fingerprint: $first"
[ "$(fingerprint "$work/renamed/m.gguf")" = "$first" ] || fail 'the name counts'
for m in $others; do
    [ "$(fingerprint "$work/$m/m.gguf")" != "$first" ] || fail "$m: the same fingerprint"
done

# Stored documents and slots.
good 'stored' compress -m "$same" -t 1 --policy keydiff --ratio 0.5 -f "$work/doc.txt" -o "$work/doc.wkv"
good 'a plan' plan -m "$same" --tokens <(ids 60) --policy knorm --budget 30 -o "$work/plan.json"
ask() { printf '%s\n' ask -c "$work/doc.wkv" -t 1 -p Who -n 6 -m "$1"; }
mapfile -t args < <(ask "$same")
good 'asked' "${args[@]}" && cp "$work/out" "$work/answer"
mapfile -t args < <(ask "$work/renamed/m.gguf")
good 'asked of the model under another name' "${args[@]}" && same 'the same answer' "$work/answer" "$work/out"
for m in $others; do
    mapfile -t args < <(ask "$work/$m/m.gguf")
    bad "$m: ask" 'belongs to model' "${args[@]}"
    bad "$m: export" 'belongs to model' export "$work/doc.wkv" --slot "$work/made/slot" -m "$work/$m/m.gguf"
    bad "$m: a document is added" 'belongs to model' compress -c "$work/doc.wkv" -m "$work/$m/m.gguf" -f "$work/doc.txt" -o "$work/made/more.wkv"
    bad "$m: a page with its tokens" 'belongs to model' inspect "$work/plan.json" -m "$work/$m/m.gguf" -o "$work/made/page.html"
done
good 'a page with tokens' inspect "$work/plan.json" -m "$same" -o "$work/page.html"
py "$work/plan.json" <<'PY' || fail 'no old plan'
import re, sys
text = open(sys.argv[1]).read()
open(sys.argv[1], "w").write(re.sub(r'("fingerprint": *"[0-9a-f]{16})[0-9a-f]{16}"', r'\1"', text))
PY
bad 'a page of an old plan' 'older winnow.*make it again' inspect "$work/plan.json" -m "$same" -o "$work/made/page.html"

# A folder of documents: what is there for one model is not found for another.
stored() { good "$1" run -m "$work/$2/m.gguf" -t 1 -f "$work/doc.txt" --context-only --store "$work/store" --policy keydiff --ratio 0.5 -p Who -n 4; }
for m in same $others; do
    stored "$m: not found" "$m"
    grep -q 'come from the store' "$work/err" && fail "$m takes the cache of another model"
done
for m in same renamed $others; do
    stored "$m: found" "$m"
    grep -q 'come from the store' "$work/err" || fail "$m does not find its own cache: $(cat "$work/err")"
done

# Profiles: a named one is refused, one that is found is passed over.
make_profile() { # FINGERPRINT
    # shellcheck disable=SC2046
    python3 "$(dirname "$0")/../lib/make_profile.py" layers "$1" $(cat "$work/numbers") >"$work/layers.json"
}
with() { printf '%s\n' run -m "$work/$1/m.gguf" -t 1 -f "$work/doc.txt" -n 2 --policy 'compresskv:heads=all' --budget 40 --profile "$work/layers.json"; }
make_profile "$first"
for m in same renamed; do
    mapfile -t args < <(with $m)
    good "$m: a profile" "${args[@]}"
done
for m in $others; do
    mapfile -t args < <(with $m)
    bad "$m: a profile" 'made for another model' "${args[@]}"
done
make_profile "${first:0:16}"
mapfile -t args < <(with same)
bad 'an old profile' 'older winnow.*winnow calibrate layers' "${args[@]}"
mkdir -p "$WINNOW_CACHE/profiles/m"
cp "$work/layers.json" "$WINNOW_CACHE/profiles/m"
bad 'an old profile that is found' 'older winnow.*winnow calibrate layers' run -m "$same" -t 1 -f "$work/doc.txt" -n 2 --policy 'compresskv:heads=all' --budget 40

# Evaluations go on with the model that they began with.
evaluate() { printf '%s\n' eval -m "$work/$1/m.gguf" -t 1 --quiet --tasks niah_single_1 --lengths 600 --samples "$2" --policies keydiff --answer-tokens 4 --out "$work/run"; }
mapfile -t args < <(evaluate same 1)
good 'an evaluation' "${args[@]}"
cp "$work/run/results.jsonl" "$work/results.before"
for m in $others; do
    mapfile -t args < <(evaluate $m 1)
    bad "$m: an evaluation goes on" 'describes another run: "model" differs' "${args[@]}"
done
same 'nothing was added' "$work/results.before" "$work/run/results.jsonl"
mapfile -t args < <(evaluate same 1)
good 'the same model goes on' "${args[@]}"
sed -i "s/$first/${first:0:16}/" "$work/run/run.json"
bad 'an old evaluation' 'older winnow.*another --out' "${args[@]}"
finish
