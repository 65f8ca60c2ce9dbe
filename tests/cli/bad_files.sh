# SPDX-License-Identifier: MIT
# Files that are missing, damaged or of another kind.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$tiny/tiny-llama3.gguf"
need_file "$models/smollm2-135m.gguf"

printf 'A short text about nothing at all.' >"$work/doc.txt"
: >"$work/empty.txt"
printf 'half\0text' >"$work/nul.txt"
printf 'not a model at all, just some words' >"$work/words.gguf"
printf 'GGUF' >"$work/magic.gguf"
: >"$work/empty.gguf"

bad 'no such model file' 'No such file' run -m "$work/none.gguf" -p x
bad 'no such model name' 'did you mean smollm2-135m' run -m smollm2-135 -p x
bad 'model is a folder' 'directory' run -m "$work" -p x
bad 'not a GGUF' 'GGUF' run -m "$work/words.gguf" -p x
bad 'empty model' '.' run -m "$work/empty.gguf" -p x
bad 'magic only' '.' run -m "$work/magic.gguf" -p x
size=$(stat -c %s "$models/smollm2-135m.gguf")
for part in 100 5000 1000000 $((size / 2)) $((size - 1)); do
    head -c "$part" "$models/smollm2-135m.gguf" >"$work/cut.gguf"
    bad "model cut to $part bytes" '.' run -m "$work/cut.gguf" -p x
done
# "llama" is at its first place the value of general.architecture; a name of the same length keeps the file valid.
LC_ALL=C sed '0,/llama/s//lhama/' "$model" >"$work/arch.gguf"
bad 'unknown architecture' "architecture.*'lhama'" run -m "$work/arch.gguf" -p x

printf 'GGUF\0\0\0\003' | cat - /dev/zero | head -c 64 >"$work/big.gguf"
bad 'big-endian GGUF' 'big-endian.*gguf_convert_endian' run -m "$work/big.gguf" -p x
# A tensor that must be there, and one that may be there, by other names of the same length.
LC_ALL=C sed 's/blk\.3\.ffn_down\.weight/blk.3.ffn_fown.weight/' "$model" >"$work/lost.gguf"
bad 'a tensor that is lost' 'lacks tensor blk.3.ffn_down.weight' run -m "$work/lost.gguf" -p x
LC_ALL=C sed 's/rope_freqs\.weight/rope_turns.weight/' "$tiny/tiny-llama3.gguf" >"$work/more.gguf"
bad 'a tensor that nobody knows' 'holds tensor rope_turns.weight, which winnow does not compute with' run -m "$work/more.gguf" -p x

# begin_chat NAME: a conversation with a copy of the model has given one answer. The copy's time of change is in the past, because
# clocks of file systems go in steps.
begin_chat() {
    cp "$model" "$work/open.gguf"
    touch -d '2020-01-01' "$work/open.gguf"
    rm -f "$work/said" "$work/out" "$work/talk.wkv"
    mkfifo "$work/said"
    "$WINNOW" chat -m "$work/open.gguf" -n 4 <"$work/said" >"$work/out" 2>"$work/err" &
    chat=$!
    exec 5>"$work/said"
    echo 'Hello.' >&5
    for _ in $(seq 600); do
        [ -s "$work/out" ] && break
        sleep 0.1
    done
    [ -s "$work/out" ] || fail "$1: no answer: $(cat "$work/err")"
}
# end_chat LINE: says one more line; $code is how the conversation ends.
end_chat() {
    echo "$1" >&5
    exec 5>&-
    wait "$chat"
    code=$?
}

# A model that is cut off while a conversation goes on: one line more, and no signal.
begin_chat 'a model that is cut off'
sleep 0.2
truncate -s 4096 "$work/open.gguf"
end_chat 'Hello again.'
[ "$code" -eq 1 ] || fail "a model that is cut off: exit code $code"
tail -1 "$work/err" | grep -q 'cut off while it was in use' || fail "a model that is cut off: $(cat "$work/err")"

# A model that is overwritten in place while a conversation goes on: nothing is stored for it, and a file of that name stays as it was.
# overwritten CODE COMMAND: the command changes the file between an answer and /save; CODE is the exit code.
overwritten() {
    local want=$1 name=$2
    begin_chat "$name"
    $name
    end_chat "/save $work/talk.wkv"
    [ "$code" -eq "$want" ] || fail "$name: exit code $code: $(cat "$work/err")"
}
last_byte() { printf x | dd of="$work/open.gguf" bs=1 seek=$(($(stat -c %s "$model") - 1)) conv=notrunc status=none; }
longer() { printf x >>"$work/open.gguf"; }
replaced() { cp "$tiny/tiny-llama3.gguf" "$work/other.gguf" && mv "$work/other.gguf" "$work/open.gguf"; }
for act in last_byte longer; do
    overwritten 2 $act
    grep -q 'was overwritten while it was in use: nothing is stored' "$work/err" || fail "a model is overwritten, $act: $(cat "$work/err")"
    [ ! -e "$work/talk.wkv" ] || fail "a model is overwritten, $act: a file of it is there"
done
overwritten 0 replaced
[ -s "$work/talk.wkv" ] || fail "a model that is replaced by rename is not stored: $(cat "$work/err")"
# Between two commands it is another model, whose documents are not found.
for i in $(seq 1 8); do echo "The keeper of tower $i has $((i * 7)) lamps."; done >"$work/lamps.txt"
cp "$model" "$work/open.gguf"
for _ in 1 2; do
    good 'a document is stored' run -m "$work/open.gguf" -f "$work/lamps.txt" --context-only --store "$work/kept" --policy knorm --ratio 0.5 -p x -n 2
    last_byte
done
grep -q 'come from the store' "$work/err" && fail "the document of another model was taken: $(cat "$work/err")"
[ "$(ls "$work"/kept/*.wkv | wc -l)" -eq 2 ] || fail "the folder has: $(ls "$work/kept")"

# Weights whose bits are all ones are no numbers: here the last ones of the last tensor.
cp "$model" "$work/nan.gguf"
printf '\377%.0s' {1..64} |
    dd of="$work/nan.gguf" bs=1 seek=$(($(stat -c %s "$model") - 64)) conv=notrunc status=none
for command in run "plan -o $work/made/plan.json" ppl; do
    # shellcheck disable=SC2086
    bad "weights that are no numbers: $command" 'not numbers.*damaged' $command -m "$work/nan.gguf" \
        -f "$work/doc.txt" --policy lagkv
done

WINNOW_CACHE=$work/cache bad 'named model that was not fetched' 'scripts/fetch_models.sh smollm2-135m. of winnow.s sources, or name a GGUF file with -m' run -p x

bad 'no such document' "cannot open '$work/none.txt'" run -m "$model" -f "$work/none.txt"
bad 'document is a folder' 'directory' run -m "$model" -f "$work"
bad 'empty document' 'is empty' run -m "$model" -f "$work/empty.txt"
# Why ggml cannot read a header is said in its words.
python3 - "$model" "$work" <<'PY'
import sys
model, work = sys.argv[1:]
data = open(model, "rb").read()
at = data.find(b"general.architecture") + len(b"general.architecture")
for name, place, value in (("version", 4, b"\x63"), ("type", at, b"\x4d"), ("tensors", 8, b"\xff" * 8)):
    with open(f"{work}/{name}.gguf", "wb") as f:
        f.write(data[:place] + value + data[place + len(value):])
PY
bad 'a header of another version' 'cannot be read: .*version 99' run -m "$work/version.gguf" -p x
bad 'a header with an odd type' "cannot be read: .*'general.architecture' has invalid GGUF type 77" run -m "$work/type.gguf" -p x
bad 'a header with too many tensors' 'cannot be read: .*number of tensors' run -m "$work/tensors.gguf" -p x
bad 'NUL byte' 'NUL' run -m "$model" -f "$work/nul.txt"
bad 'unknown chat template' 'nochat' run -m "$model" -f "$work/doc.txt" --chat nochat

printf '1 2 x 4' >"$work/word.tokens"
printf '1 2 3.5' >"$work/real.tokens"
printf '1 -2 3' >"$work/minus.tokens"
printf '1 2 99999999' >"$work/range.tokens"
printf '1 2 99999999999999' >"$work/huge.tokens"
printf ' \n\t ' >"$work/blank.tokens"
bad 'token that is a word' "'x' .number 3" run -m "$model" --tokens "$work/word.tokens"
bad 'token that is no integer' "'3.5'" run -m "$model" --tokens "$work/real.tokens"
bad 'negative token' "'-2'" run -m "$model" --tokens "$work/minus.tokens"
bad 'token outside the vocabulary' 'vocabulary' run -m "$model" --tokens "$work/range.tokens"
bad 'token outside the integers' '99999999999999' run -m "$model" --tokens "$work/huge.tokens"
# Words that do not end are not read to their end.
bad 'tokens from a device' 'number 1. is not a token id' run -m "$model" --tokens /dev/zero
yes 0 | tr -d '\n' | timeout 20 "$WINNOW" run -m "$model" --tokens /dev/stdin 2>"$work/err"
[ "${PIPESTATUS[2]}" -eq 2 ] && grep -q 'number 1. is not a token id' "$work/err" || fail "zeros without an end: $(cat "$work/err")"
printf '\xef\xbb1 2' >"$work/part.tokens"
bad 'a part of a byte order mark' 'does not begin with a token id' run -m "$model" --tokens "$work/part.tokens"
printf '\xbf1 2' >"$work/other.tokens"
bad 'another byte' '.number 1. is not a token id' run -m "$model" --tokens "$work/other.tokens"
printf '\xef\xbb\xbf1 2 3' >"$work/marked.tokens"
"$WINNOW" ppl -m "$model" --tokens "$work/marked.tokens" --policy full >"$work/out" 2>"$work/err" || fail "a byte order mark before token ids: $(cat "$work/err")"
bad 'no tokens' 'is empty; it has no token ids' run -m "$model" --tokens "$work/blank.tokens"
bad 'empty token file' 'is empty' run -m "$model" --tokens "$work/empty.txt"
bad 'no token file' 'cannot open' run -m "$model" --tokens "$work/none.tokens"

# 9000 tokens for a context of 8192.
seq 9000 | awk '{ print 500 + $1 % 100 }' >"$work/long.tokens"
bad 'prompt longer than the context' '9000.*8192' run -m smollm2-135m --tokens "$work/long.tokens"
seq 9000 | awk '{ printf "word " }' >"$work/long.txt"
bad 'document longer than the context' '90[0-9][0-9].*8192' run -m smollm2-135m -f "$work/long.txt"

for args in '--policy snapkv --budget 1' '--policy snapkv --kv-bytes 1'; do
    seq 200 | awk '{ print 1 + $1 % 200 }' >"$work/some.tokens"
    # shellcheck disable=SC2086
    bad "too small for what is protected: $args" '.' run -m "$model" --tokens "$work/some.tokens" $args
    # shellcheck disable=SC2086
    bad "plan: $args" '.' plan -m "$model" --tokens "$work/some.tokens" $args -o "$work/made/plan.json"
done
bad 'plan of a missing document' 'cannot open' plan -m "$model" -f "$work/none.txt" -o "$work/made/plan.json"
bad 'plan with a broken model' '.' plan -m "$work/cut.gguf" -f "$work/doc.txt" -o "$work/made/plan.json"
bad 'ppl of a missing text' 'cannot open' ppl -m "$model" -f "$work/none.txt"
bad 'ppl prefix as long as the text' '--prefix 200' ppl -m "$model" --tokens "$work/some.tokens" --prefix 200
bad 'ppl of more than the context' '-n 9000.*8192' ppl -m smollm2-135m --tokens "$work/long.tokens" -n 9000
bad 'bench longer than the context' '9000.*8192' bench --lengths 9000

# Writes that get lost: exit code 1, said on stderr.
if [ -c /dev/full ]; then
    "$WINNOW" models >/dev/full 2>"$work/err"
    [ $? -eq 1 ] || fail 'a full device must give exit code 1'
    grep -q 'standard output' "$work/err" || fail 'a full device: nothing on stderr'
fi
finish
