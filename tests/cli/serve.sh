# SPDX-License-Identifier: MIT
# winnow serve: what it refuses, and what it starts. tests/server asks what it serves.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"

# The command in a folder of its own: without a server next to it, and with one that says what it was called with.
mkdir "$work/bin"
ln -s "$WINNOW" "$work/real"
cp "$WINNOW" "$work/bin/winnow"
WINNOW=$work/bin/winnow
failed() { # failed NAME PATTERN ARGS...: exit code 1, one line
    local name=$1 pattern=$2
    shift 2
    "$WINNOW" "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq 1 ] || fail "$name: exit code"
    grep -Eq -- "$pattern" "$work/err" || fail "$name: no /$pattern/ in $(cat "$work/err")"
}
failed 'no server' '`make server` builds it' serve -m "$model" --port 0
cat >"$work/bin/winnow-llama-server" <<SH
#!/bin/bash
printf '%s\n' "\$@"
printf '%s' "\$WINNOW_SERVE_DOCUMENTS" >"$work/documents"
env | grep -E '^(WINNOW|LLAMA)' | sort
SH
chmod +x "$work/bin/winnow-llama-server"
if "$WINNOW" backend --path 2>&1 | grep -q 'built without the backend'; then
    bad 'no backend' 'has no backend' serve -m "$model" --port 0
    finish
fi

good 'as it is' serve -m "$model" --port 0
grep -qx -e "$model" "$work/out" || fail 'another model'
for words in '-dev WINNOW' '-np 4' '-c 32768' '--host 127.0.0.1' '--cache-ram 0' '--cors-origins localhost' '--timeout 30' '-b 512' '--fit off' -kvu --metrics; do
    tr '\n' ' ' <"$work/out" | grep -qF -e " $words " || fail "without $words: $(cat "$work/out")"
done
grep -qx WINNOW_SERVE_POLICY=auto "$work/out" || fail 'without a policy'
grep -q 'policy auto, 0.5 of' "$work/err" || fail "the policy is not said: $(cat "$work/err")"
# The server has libllama open the model, which would end it: a key of the same length that nobody reads.
if [ -f "$tiny/foreign/olmo2.gguf" ]; then
    LC_ALL=C sed 's/olmo2\.attention\.head_count/olmo2.attention.head_kount/' "$tiny/foreign/olmo2.gguf" >"$work/heads.gguf"
    bad 'a model without heads' 'olmo2.attention.head_count = 0, or lacks it' serve -m "$work/heads.gguf" --port 0
    good 'another family' serve -m "$tiny/foreign/olmo2.gguf" --port 0
fi
good 'with options' serve -m "$model" --port 0 --policy snapkv --budget 300 --slots 2 --context 1000 --kv-bytes 3M --api-key K -- -t 3 --temp 0
for line in WINNOW_SERVE_POLICY=snapkv WINNOW_SERVE_BUDGET=300 WINNOW_SERVE_KV_BYTES=3145728 LLAMA_API_KEY=K 2000; do
    grep -qx -e "$line" "$work/out" || fail "without $line: $(cat "$work/out")"
done
tr '\n' ' ' <"$work/out" | grep -q -e '-t 3 --temp 0' || fail 'options of the server are lost'
grep -v '^[WL]' "$work/out" | grep -qx K && fail 'the key is seen by others, among the arguments'

# A size without a policy that removes anything is of other policies, and what is not parked loses nothing.
good 'all is kept' serve -m "$model" --port 0 --policy full
grep -q 'keeps its whole cache, unless it names another policy (docs' "$work/err" || fail "all is kept: $(cat "$work/err")"
good 'a size for other policies' serve -m "$model" --port 0 --policy full --ratio 0.25
grep -q 'unless it names another policy, which removes 0.25 of the prompt then' "$work/err" || fail "a size for other policies: $(cat "$work/err")"
good 'entries for other policies' serve -m "$model" --port 0 --policy full --budget 70
grep -q 'unless it names another policy, which keeps 70 entries a head then' "$work/err" || fail "entries for other policies: $(cat "$work/err")"
bad 'a share of nothing' 'with --park 0 none is' serve -m "$model" --port 0 --park 0 --park-ratio 0.5
bad 'a share of nothing on the disk' 'with --park 0 none is' serve -m "$model" --port 0 --park 0 --state "$work" --park-disk 0 --park-ratio 0.5
good 'no share' serve -m "$model" --port 0 --park 0 --park-ratio 0
good 'a share of what is on the disk' serve -m "$model" --port 0 --park 0 --state "$work" --park-ratio 0.5

good 'a quality' serve -m "$model" --port 0 --keep-quality 0.9
grep -qx WINNOW_SERVE_POLICY=auto+quality:q=0.9 "$work/out" || fail "another quality: $(cat "$work/out")"
grep -q 'policy auto+quality:q=0.9, as few entries as preserve that quality' "$work/err" || fail "the quality is not said: $(cat "$work/err")"
good 'a quality, a policy and a size' serve -m "$model" --port 0 --keep-quality 0.75 --policy replay --budget 300
grep -qx WINNOW_SERVE_POLICY=replay+quality:q=0.75 "$work/out" || fail "another policy: $(cat "$work/out")"
grep -q '300 entries a head' "$work/err" || fail "the size is not said: $(cat "$work/err")"
bad 'a quality as requests have it' 'the option for that is --keep-quality 0.9' serve -m "$model" --port 0 --policy auto+quality:q=0.9
bad 'a quality as requests have it, and one as an option' 'the option for that is --keep-quality 0.9' serve -m "$model" --port 0 --policy auto+quality:q=0.9 --keep-quality 0.8
bad 'a quality of nothing' 'above 0 and below 1' serve -m "$model" --port 0 --keep-quality 1
bad 'a quality that scores do not say' 'cannot be combined with quality' serve -m "$model" --port 0 --keep-quality 0.9 --policy keydiff
bad 'a quality of everything' 'full cannot be combined with quality' serve -m "$model" --port 0 --keep-quality 0.9 --policy full

# Documents, and profiles of the model.
echo text >"$work/a.txt"
good 'documents' serve -m "$model" --port 0 --document "a=$work/a.txt" --document "b=$work/a.txt"
printf 'a=%s\nb=%s\n' "$work/a.txt" "$work/a.txt" | cmp -s - "$work/documents" || fail "other documents: $(cat "$work/documents")"
bad 'a document without a name' 'NAME=FILE' serve -m "$model" --port 0 --document "$work/a.txt"
bad 'a document that is not there' 'none.txt: No such file' serve -m "$model" --port 0 --document "a=$work/none.txt"
for option in --context-shift --cache-reuse --sleep-idle-seconds --context_shift --cache_reuse --sleep_idle-seconds; do
    bad "$option with documents" 'does not go with --document' serve -m "$model" --port 0 --document "a=$work/a.txt" -- $option 1
done
LLAMA_ARG_CACHE_REUSE=1 bad 'reuse by the environment, with documents' 'LLAMA_ARG_CACHE_REUSE.* does not go with --document' \
    serve -m "$model" --port 0 --document "a=$work/a.txt"
# Another model is not taken from the environment; what winnow does not set is.
LLAMA_ARG_HF_REPO=some/model LLAMA_ARG_MODELS_DIR=/ LLAMA_ARG_KV_OFFLOAD=0 LLAMA_ARG_CACHE_REUSE=1 good 'variables of the server' serve -m "$model" --port 0
grep -E '^LLAMA_ARG_' "$work/out" | grep -qvx LLAMA_ARG_CACHE_REUSE=1 && fail "variables that are ours to set: $(grep '^LLAMA' "$work/out")"
grep -qx LLAMA_ARG_CACHE_REUSE=1 "$work/out" || fail 'a variable of the server is lost'
# A policy for programs of libllama is none of the server's, and that is said.
WINNOW_POLICY=keydiff WINNOW_BUDGET=100 WINNOW_RATIO=0.5 WINNOW_KV_BYTES=x WINNOW_EVICT=x good 'a policy in the environment' serve -m "$model" --port 0
grep -E '^WINNOW_(POLICY|BUDGET|RATIO|KV_BYTES|EVICT)=' "$work/out" && fail 'variables of other programs reach the server'
[ "$(grep -c 'in the environment is for other programs of libllama' "$work/err")" -eq 5 ] || fail "variables that do not count: $(cat "$work/err")"
profiles=$work/cache/profiles/tiny-llama
shipped=$(cd "$(dirname "$0")/../../share/profiles/smollm2-135m" && pwd)
mkdir -p "$profiles"
# has LIST: the server is given these profiles, files of the model's folder but where they have a path.
has() {
    local want
    want=$(sed "s,\(^\|:\)\([a-z]\),\1$profiles/\2,g" <<<"$1")
    WINNOW_CACHE=$work/cache good "profiles $1" serve -m "$model" --port 0
    [ "$(grep '^WINNOW_PROFILE=' "$work/out")" = "WINNOW_PROFILE=$want" ] || fail "not $want but $(grep PROFILE "$work/out")"
}
# The backend sees no model's file, so that the command compares: of_model FINGERPRINT KIND TO.
print=$(WINNOW_CACHE=$work/none fingerprint "$model")
of_model() { sed "s/\"fingerprint\": *\"[0-9a-f]*\"/\"fingerprint\":\"$1\"/" "$shipped/$2.json" >"$3/$2.json"; }
mkdir "$work/own"
of_model "$print" shares "$profiles"
has shares.json
of_model "$print" gate "$profiles"
of_model "$print" inputgate "$profiles"
of_model "$print" stats "$work/own"
has shares.json:gate.json:inputgate.json
WINNOW_PROFILE=$work/own/stats.json has "shares.json:gate.json:inputgate.json:$work/own/stats.json" # what the user names, too
WINNOW_PROFILE=$work/own/none.json has "shares.json:gate.json:inputgate.json:$work/own/none.json" # the server will say what is wrong with it
WINNOW_PROFILE=$work/own/stats.json:$shipped/heads.json WINNOW_CACHE=$work/cache bad 'a profile of another model' 'heads.json. was made for another model' serve -m "$model" --port 0
WINNOW_PROFILE=$shipped/compiler-b512.json has "shares.json:gate.json:inputgate.json:$shipped/compiler-b512.json" # tables may be of any model
cp "$shipped/gate.json" "$profiles"
has shares.json:inputgate.json
grep -q "gate.json. was made for another model: .*passed over" "$work/err" || fail "a profile of another model that was found: $(cat "$work/err")"
of_model 0123456789abcdef gate "$profiles"
has shares.json:inputgate.json
grep -q 'made by an older winnow.*calibrate gate.*passed over' "$work/err" || fail "an old profile that was found: $(cat "$work/err")"
echo '{}' >"$profiles/shares.json"
has inputgate.json
grep -q "it is not a profile.*passed over" "$work/err" || fail "no profile: $(cat "$work/err")"
# What changes the model does not go with what is stored for it.
good 'a document is stored' compress -m "$model" --policy keydiff --ratio 0.5 -f "$work/a.txt" -o "$work/a.wkv"
mkdir "$work/slots"
for option in --lora --lora-scaled --control-vector --override-kv --rope-scaling --rope_freq-base --yarn_orig_ctx; do
    bad "$option and a stored document" 'changes the model, but stored documents' serve -m "$model" --port 0 --document "a=$work/a.wkv" -- $option x
    bad "$option and --save" 'changes the model, but slots' serve -m "$model" --port 0 --save "$work/slots" -- $option x
    good "$option alone" serve -m "$model" --port 0 --document "a=$work/a.txt" -- $option x
done
LLAMA_ARG_ROPE_FREQ_BASE=5 bad 'RoPE by the environment' 'LLAMA_ARG_ROPE_FREQ_BASE changes the model' serve -m "$model" --port 0 --save "$work/slots"
good 'with slots in files' serve -m "$model" --port 0 --save "$work/slots"
grep -qx "WINNOW_SERVE_FINGERPRINT=$print" "$work/out" || fail "another fingerprint than $print: $(grep FINGERPRINT "$work/out")"
WINNOW_CACHE=$work/cache good 'with a profile and a policy' serve -m "$model" --port 0 --policy keydiff
grep -qx 'WINNOW_SERVE_POLICY=keydiff' "$work/out" || fail 'another policy than that which was asked for'

# Who may ask: names of this host, and the origins that the server's own option allows.
# has_set VARIABLE VALUE: what the server was given.
has_set() { grep -qxF "$1=$2" "$work/out" || fail "not $1=$2 but $(grep "^$1" "$work/out")"; }
good 'no names' serve -m "$model" --port 0
has_set WINNOW_SERVE_HOST_NAMES ''
has_set WINNOW_SERVE_ORIGINS ''
good 'names' serve -m "$model" --port 0 --host localhost --host-name box.lan --host-name chat -- --cors-origins https://a.example --cors_origins https://b.example
has_set WINNOW_SERVE_HOST_NAMES box.lan,chat,localhost
has_set WINNOW_SERVE_ORIGINS https://b.example
WINNOW_SERVE_HOST_NAMES=evil WINNOW_SERVE_ORIGINS=evil good 'variables of that name' serve -m "$model" --port 0 --host 127.0.0.2 --timeout 7
has_set WINNOW_SERVE_HOST_NAMES ''
has_set WINNOW_SERVE_ORIGINS ''
tr '\n' ' ' <"$work/out" | grep -qF -e ' --timeout 7 ' || fail 'another timeout'
bad 'two names in one' '--host-name' serve -m "$model" --port 0 --host-name a,b
bad 'no timeout' '1 to 86400' serve -m "$model" --port 0 --timeout 0

# Numbers that end llama.cpp's server by a signal, or have it wait for ever.
for wrong in '-b 0' '-b -1' '-b 1e9' '--batch_size 3' '-ub 0' '--ubatch-size x' '-t 0x' '-t 100000' '--threads-batch 513' '--threads-http 5000' '--mirostat 9'; do
    # shellcheck disable=SC2086
    bad "$wrong" "${wrong% *} '${wrong#* }': give a whole number from" serve -m "$model" --port 0 -- $wrong
done
bad 'an empty number' "-ub '': give a whole number from 1" serve -m "$model" --port 0 -- -ub ''
bad 'a batch below the slots' '-b .5.: give a whole number from 6, that of --slots' serve -m "$model" --port 0 --slots 6 -- -b 5
LLAMA_ARG_THREADS=100000 bad 'a number of the environment' "LLAMA_ARG_THREADS '100000': give a whole number" serve -m "$model" --port 0
LLAMA_ARG_UBATCH=0 bad 'another one' "LLAMA_ARG_UBATCH '0': give a whole number from 1" serve -m "$model" --port 0
LLAMA_ARG_THREADS_HTTP=3 LLAMA_ARG_BATCH=0 good 'what winnow sets itself is none of it' serve -m "$model" --port 0
good 'numbers that it takes' serve -m "$model" --port 0 --slots 3 -- -b 3 -ub 1 -t -1 -tb 512 --threads-http 2 --mirostat 2 --temp 0

bad 'unknown policy' 'snapkv' serve -m "$model" --port 0 --policy snapvk
bad 'a policy that cannot be had' 'second' serve -m "$model" --port 0 --policy kvzip
bad 'two sizes' 'exclude each other' serve -m "$model" --port 0 --budget 3 --ratio 0.5
bad 'too many slots' '64' serve -m "$model" --port 0 --slots 65
bad 'no model' 'none.gguf' serve -m "$work/none.gguf" --port 0
bad 'no folder' '--save' serve -m "$model" --port 0 --save "$work/none"
bad 'a public address' 'api-key' serve -m "$model" --port 0 --host 0.0.0.0
good 'a public address with a key' serve -m "$model" --port 0 --host 0.0.0.0 --api-key K
good 'a public address for all' serve -m "$model" --port 0 --host 0.0.0.0 --no-auth
bad 'no address' '--host' serve -m "$model" --port 0 --host no.such.host.invalid
for option in --host --parallel -no-kvu --cache-ram --slot-save-path -hf --model-url --fim-qwen-1.5b-default --slot_save_path --model_url --gpu_layers --kv_unified \
    --no_kv-offload --fim_qwen_1.5b-default --fim-qwen-7b-spec; do
    bad "an option that is ours: $option" 'is set by' serve -m "$model" --port 0 -- $option x
done

good 'a key in a file, written as llama.cpp takes it too' serve -m "$model" --port 0 --host 0.0.0.0 -- --api_key_file "$work/a.txt"
good 'options that are like ours and are not' serve -m "$model" --port 0 -- -t_x 1 --temp 0 --spec_default

# Files and folders that may not be read or written. Root may do all, unless it gives that up.
as_others() { "$@"; }
[ "$(id -u)" -ne 0 ] || as_others() { setpriv --bounding-set=-dac_override,-dac_read_search "$@"; }
if as_others true 2>/dev/null; then
    mkdir "$work/shut"
    cp "$work/a.txt" "$work/shut.txt"
    cp "$model" "$work/shut.gguf"
    chmod 500 "$work/shut"
    chmod 0 "$work/shut.txt" "$work/shut.gguf"
    # not_permitted NAME FILE ARGS...: exit code 2, one line with the file's name.
    not_permitted() {
        local name=$1 file=$2
        shift 2
        as_others "$WINNOW" serve --port 0 "$@" >"$work/out" 2>"$work/err" </dev/null
        [ $? -eq 2 ] || fail "$name: exit code"
        [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q "$file'\?: Permission denied" "$work/err" || fail "$name: $(cat "$work/err")"
        [ ! -s "$work/out" ] || fail "$name: the server was started"
    }
    not_permitted 'a document' "$work/shut.txt" -m "$model" --document "a=$work/shut.txt"
    not_permitted 'a folder for slots' "$work/shut" -m "$model" --save "$work/shut"
    not_permitted 'a model' "$work/shut.gguf" -m "$work/shut.gguf"
fi

# A port that somebody has.
python3 - "$work/port" <<'PY' &
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(s.getsockname()[1]))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
PY
holder=$!
for ((i = 0; i < 300; i++)); do
    [ ! -f "$work/port" ] || break
    sleep 0.1
done
bad 'a port in use' 'in use' serve -m "$model" --port "$(cat "$work/port")"
kill $holder
finish
