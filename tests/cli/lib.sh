# SPDX-License-Identifier: MIT
# Helpers of the command's tests. WINNOW is the command's path; models come from the cache folder.
set -u

: "${WINNOW:?set WINNOW to the path of the command}"
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
models=$cache/models
tiny=$models/tiny
work=$(mktemp -d)
failures=0
finished=false

# A test that forgets `finish` would always pass.
leave() {
    local code=$?
    rm -rf "$work"
    if [ "$code" -eq 0 ] && ! $finished; then
        printf 'the test does not end with `finish`\n' >&2
        exit 1
    fi
}
trap leave EXIT

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

# Ends a test: how many checks failed decides.
finish() {
    finished=true
    if [ "$failures" -gt 0 ]; then
        printf '%d checks failed\n' "$failures" >&2
        exit 1
    fi
    exit 0
}

need_file() {
    if [ ! -f "$1" ]; then
        printf 'missing: %s (scripts/fetch_models.sh and scripts/make_tiny_models.py make the models)\n' "$1" >&2
        exit 1
    fi
}

# skip WHY: ends a test for what is not here.
skip() {
    echo "skipped: $1"
    finished=true
    exit 77
}

# Ends a test of what only the backend can.
need_backend() {
    ! "$WINNOW" backend --path 2>&1 | grep -q 'built without the backend' || skip 'this build has no backend'
}

# free_port: makes $port one that nobody listens at.
free_port() { port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'); }

# start_worker OPTIONS...: `winnow worker` with one thread at $port, with the process $worker, once it listens. The caller ends it.
start_worker() {
    "$WINNOW" worker --listen "127.0.0.1:$port" -t 1 "$@" >"$work/worker" 2>&1 &
    worker=$!
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
        sleep 0.2
    done
}

# ids N [MORE]: N token ids that tiny models have, all above MORE.
ids() { seq "$1" | awk -v more="${2:-0}" '{ print 1 + more + ($1 * 37) % 200 }'; }

# calibrates [KIND]: a tiny model ($model) and the text that comes with the command ($text), separate from the user's own
# profiles. $made is where the kind's profile goes.
calibrates() {
    model=$tiny/tiny-llama.gguf
    text=$(dirname "$0")/../../share/text/calibration.txt
    need_file "$model"
    need_file "$text"
    export WINNOW_CACHE=$work/cache
    made=$work/cache/profiles/tiny-llama/${1-}.json
}

# two_texts: makes the folder $work/texts, of words and of numbers.
two_texts() {
    mkdir "$work/texts"
    cp "$text" "$work/texts/words.txt"
    seq -s ', ' 3000 >"$work/texts/numbers.txt"
}

# numbered: a text of sentences that differ, for probes to hide theirs in.
numbered() {
    python3 - <<'PY'
print(" ".join(f"Number {i * 7919 % 1000} is {'odd' if i % 3 else 'old'}." for i in range(80)))
PY
}

# plan NAME ARGS...: plans for the tokens of $work/ids, into $work/plan.json; $counts is what each head keeps, for `json`.
plan() { good "$1" plan -m "$model" --tokens "$work/ids" -o "$work/plan.json" "${@:2}"; }
counts='[len(h) for l in o["layers"] for h in l["heads"]]'

# Whether llama-cpp-python is in the cache folder. Where it is, a test that uses it fails if it cannot be imported.
has_llama_cpp() { compgen -G "$cache/python/lib/python3*/site-packages/llama_cpp/__init__.py" >/dev/null; }

# shorter MODEL N TO: a copy of a tiny model of the family llama whose context has N tokens.
shorter() {
    py "$@" <<'PY' || fail "no copy of $1 with a context of $2 tokens"
import struct, sys
model, n, to = sys.argv[1:]
data = open(model, "rb").read()
key = b"llama.context_length" + struct.pack("<I", 4)  # a number of 32 bits
assert data.count(key + struct.pack("<I", 8192)) == 1
open(to, "wb").write(data.replace(key + struct.pack("<I", 8192), key + struct.pack("<I", int(n))))
PY
}

# fingerprint MODEL: what stored files call it.
fingerprint() {
    "$WINNOW" plan -m "$1" --tokens <(ids 40) --policy knorm --budget 20 -o "$work/fingerprint.json" >/dev/null 2>&1
    sed -n 's/.*"fingerprint": *"\([0-9a-f]*\)".*/\1/p' "$work/fingerprint.json"
}

# good NAME ARGS...: runs the command, which must succeed; its output is in $work/out and $work/err.
good() {
    local name=$1 code
    shift
    "$WINNOW" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ "$code" -eq 0 ] || fail "$name: exit code $code: $(cat "$work/err")"
    [ "$code" -eq 0 ]
}

# bad NAME PATTERN ARGS...: must be refused with exit code 2, one line on stderr that matches the pattern, nothing
# on stdout and no file left in $work/made.
bad() {
    local name=$1 pattern=$2 code
    shift 2
    rm -rf "$work/made"
    mkdir "$work/made"
    "$WINNOW" "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ "$code" -eq 2 ] || fail "$name: exit code $code, expected 2"
    [ -s "$work/out" ] && fail "$name: stdout is not empty"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$name: not one line on stderr: $(cat "$work/err")"
    grep -Eq -- "$pattern" "$work/err" || fail "$name: no /$pattern/ in: $(cat "$work/err")"
    [ -z "$(ls -A "$work/made")" ] || fail "$name: left a file: $(ls -A "$work/made")"
}

# ended_by SIGNAL FILE LINES ARGS...: runs the command, sends it the signal as soon as the file has that many lines, and waits
# for its end; its exit code is in $code, its output in $work/out and $work/err.
ended_by() {
    local signal=$1 file=$2 lines=$3 pid
    shift 3
    env --default-signal=INT "$WINNOW" "$@" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    head -n "$lines" < <(exec tail -n +1 -s 0.05 --pid=$pid -F "$file" 2>/dev/null) >/dev/null
    kill "-$signal" $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
}

# killed FILE 'LINES...' ARGS...: runs the command once for each number of lines, and kills it when the file has that many.
killed() {
    local file=$1 lines
    for lines in $2; do
        ended_by KILL "$file" "$lines" "${@:3}"
        [ "$code" -eq 137 ] || printf 'too fast to be killed\n' >&2
    done
}

# same NAME FILE FILE
same() {
    cmp -s "$2" "$3" || fail "$1: the outputs differ"
}

# py ARGS... <<PROGRAM: what `python3 - ARGS...` does. All programs of a test run in one process, because to start Python takes
# longer than most of them, and most runs of the command. What they print goes to standard error.
py() {
    local program answer=no
    IFS= read -r -d '' program
    if [ "$BASH_SUBSHELL" -gt 0 ]; then # it has no way to the process
        python3 - "$@" <<<"$program" >&2
        return
    fi
    if [ -z "${python_PID-}" ]; then
        coproc python { exec python3 -c "$run_programs"; }
        disown "$python_PID" # `wait` is for what a test starts
    fi
    printf '%s\0' $# "$PWD" "$program" "$@" >&"${python[1]}" && IFS= read -r answer <&"${python[0]}"
    [ "$answer" = yes ]
}
run_programs='
import os, sys, traceback
asked, answers = os.dup(0), os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what programs start gets neither
os.dup2(2, 1)
def fields():
    rest = b""
    while piece := os.read(asked, 1 << 16):
        *done, rest = (rest + piece).split(b"\0")
        yield from map(os.fsdecode, done)
said = fields()
for n in said:
    folder, program, scope, good = next(said), next(said), {"__name__": "__main__"}, False
    sys.argv = ["-"] + [next(said) for _ in range(int(n))]
    try:
        os.chdir(folder)
        exec(compile(program, "-", "exec"), scope)
        good = True
    except SystemExit as end:
        good = not end.code
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    scope.clear()  # closes its files
    sys.stdout.flush()
    print("yes" if good else "no", file=answers, flush=True)
'

# json NAME FILE CONDITION: a Python expression over o, the object in the file.
json() {
    py "$2" "$3" <<'PY' || fail "$1: $3"
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    o = json.load(f)
sys.exit(not eval("(" + sys.argv[2] + ")"))
PY
}

# page_data PAGE FILE: the JSON that a page of `winnow report` draws, as the page contains it.
page_data() {
    py "$1" "$2" <<'PY' || fail "no data in $1"
import json, re, sys
with open(sys.argv[1], encoding="utf-8", newline="") as f:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', f.read(), re.S)
with open(sys.argv[2], "w", encoding="utf-8") as f:
    json.dump(json.loads(text), f)
PY
}

# sample_ids MODEL OPTIONS...: the tokens of the one sample that `winnow eval` makes with these options, in $work/prompt.ids.
sample_ids() {
    local model=$1 part
    shift
    good 'sample' eval --dump-samples -m "$model" "$@"
    python3 -c '
import json, sys
o = json.loads(open(sys.argv[1]).read())
open(sys.argv[2] + "/context.txt", "w").write(o["context"])
open(sys.argv[2] + "/rest.txt", "w").write(o["question"] + o["answer_prefix"])' "$work/out" "$work"
    for part in context rest; do
        good "tokens of $part" tokens -m "$model" --raw -f "$work/$part.txt"
        cp "$work/out" "$work/$part.ids"
    done
    cat "$work/context.ids" "$work/rest.ids" >"$work/prompt.ids"
}
