# SPDX-License-Identifier: MIT
# Inputs that are far too large are refused for their size, before they take memory for more than themselves; what
# is legal is read. The peak is that of the process, in KiB.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$models/smollm2-135m.gguf"
cd "$work" || exit 1

# peak NAME LIMIT CODE PATTERN ARGS...: the run ends with CODE within LIMIT MiB, stderr matches the pattern.
peak() {
    local name=$1 limit=$2 code=$3 pattern=$4
    shift 4
    python3 - "$limit" "$code" "$WINNOW" "$@" >out 2>err <<'PY'
import os, resource, subprocess, sys
limit, code, *command = sys.argv[1:]
done = subprocess.run(command, stdin=open("/dev/null"), timeout=100)
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print("peak", round(mib), "MiB, exit code", done.returncode, file=sys.stderr)
sys.exit(0 if done.returncode == int(code) and mib < float(limit) else 1)
PY
    [ $? -eq 0 ] || fail "$name: not within $limit MiB, or not exit code $code: $(cat err)"
    grep -Eq -- "$pattern" err || fail "$name: no /$pattern/ in: $(cat err)"
}

# 48 MB of text. Turned into tokens they take more than a GiB.
seq 7000000 | head -c 48000000 >long.txt
peak 'a long document' 400 2 'document of 48000000 bytes has more than 8192 tokens and the model.s context is 8192' \
    run -f long.txt -p 'What is it?'
peak 'plan of it' 400 2 'has more than 8192 tokens' plan -f long.txt -o plan.json
mkfifo fifo
cat long.txt >fifo &
peak 'the same from a FIFO' 500 2 'has more than 8192 tokens' run -f fifo
wait
# Perplexity reads what fits of any text.
peak 'perplexity of its beginning' 500 0 'read 300 tokens of the text, which is much longer' ppl -f long.txt -n 300 --json
json 'tokens that nobody counted' out 'o["text_tokens"] is None and o["scored_tokens"] == 299'
head -c 4000 long.txt >short.txt
good 'perplexity of a short text' ppl -f short.txt -n 300 --json
cp "$work/out" short.json
peak 'the same of the long one' 500 0 . ppl -f long.txt -n 300 --json
json 'the same tokens' out "abs(o['ppl'] - $(python3 -c 'import json; print(json.load(open("short.json"))["ppl"])')) < 1e-9"

# Longer than a text may be at all; nothing of it is read.
truncate -s 2G sparse.txt
peak 'a document of 2 GiB' 100 2 'too long: a text has at most 1073741823 bytes' run -m "$model" -f sparse.txt
peak 'a text of 2 GiB' 100 2 'too long' ppl -m "$model" -f sparse.txt

# Bytes that the vocabulary has no token for vanish, so that they are no reason to refuse a text.
python3 -c 'open("dropped.txt", "w").write("x" + "\x04\x06" * 1500000 + "x")'
good 'a text that has no tokens' run -f dropped.txt -n 0 --json

# Token ids: as many as the file says, in any form, in the memory that the ids take.
py <<'PY'
import sys
open("many.ids", "w").write("1 " * 20000000)
open("padded.ids", "w").write(" \n\t".join("0" * 1000 + str(i % 200 + 1) for i in range(50)) + "\n")
PY
peak 'many ids' 300 2 'prompt has 20000000 tokens' run -m "$model" --tokens many.ids
good 'padded ids' run -m "$model" --tokens padded.ids -n 0 --json
json 'padded ids' "$work/out" 'o["prompt_tokens"] == 50'
printf '1 2 3' >ids
mkfifo ids.fifo
cat ids >ids.fifo &
good 'ids from a FIFO' run -m "$model" --tokens ids.fifo -n 0 --json
wait
json 'ids from a FIFO' "$work/out" 'o["prompt_tokens"] == 3'

# A profile of 30 MB takes 2.5 GB when it is parsed.
py <<'PY'
open("lists.json", "w").write('{"avg_score":[' + "[]," * 10000000 + "[]]}")
open("numbers.json", "w").write('{"avg_score":[' + "1," * 15000000 + "1]}")
PY
for kind in lists numbers; do
    peak "a profile of $kind" 150 2 'more values than a profile of this model can have|a profile of this model has at most' \
        plan -m "$model" --tokens ids -o plan.json --profile $kind.json
done

# With new positions a prompt may be longer than the context, so its size is no reason to refuse it.
shorter "$model" 512 short.gguf
seq 0 3999 | tr -d '\n' | head -c 8000 >digits.txt
peak 'longer than the context' 400 2 'has more than 512 tokens and the model.s context is 512' \
    run -m ./short.gguf --raw -f digits.txt -n 0
peak 'longer than the context, read by chunks' 400 0 . run -m ./short.gguf --raw -f digits.txt -n 0 \
    --policy streaming_llm-rerotated --budget 64 --evict chunk:128 --json
json 'longer than the context' out 'o["prompt_tokens"] >= 8000'

# ---- Models that are no files ----
mkfifo model.gguf
bad 'a FIFO for a model' 'model.gguf. is not a regular file' run -m "$PWD/model.gguf" -p x
bad 'a device for a model' 'not a regular file' run -m /dev/zero -p x
bad 'nothing for a model' 'not a regular file' run -m /dev/null -p x
bad 'a process for a model' 'not a regular file' run -m /dev/stdin -p x
bad 'a FIFO for a model of the benchmark' 'not a regular file' bench -m "$PWD/model.gguf" --lengths 16
finish
