# SPDX-License-Identifier: MIT
# The llama.cpp that winnow bench compares itself with: its name, that it computes, and that a benchmark ends with
# a clear message when it dies, hangs or talks nonsense.
. "$(dirname "$0")/lib.sh"
need_file "$tiny/tiny-llama.gguf"
small=(-m "$tiny/tiny-llama.gguf" --lengths 96 --budget 48 --reps 2 --decode-tokens 9 -t 1)

good 'the libllama of this build' bench "${small[@]}" --peer own --json && {
    json 'named' "$work/out" 'o["peer"]["program"] == "own" and not o["peer"]["native"] and o["peer"]["ggml"][:2] == "0."'
    json 'its flags' "$work/out" '"LLAMAFILE" in o["peer"]["flags"].split() or "OPENMP" in o["peer"]["flags"].split()'
    json 'its memory' "$work/out" 'o["peer"]["peak_rss_bytes"] > 1000000'
    json 'all speeds' "$work/out" 'all(f["median"] > 0 for l in o["lengths"] for f in l["figures"])'
}
good 'as a table' bench "${small[@]}" --peer own && {
    sed -n 2p "$work/out" | grep -Eq '^llama.cpp: ggml [0-9.]+, the build that winnow uses \(.+\); `make peers`' ||
        fail "header: $(sed -n 2p "$work/out")"
}

# libllama of this build over our backend, with both caches.
if "$WINNOW" backend --path >/dev/null 2>&1; then
    good 'over our backend' bench "${small[@]}" --peer own --bridge --json && {
        json 'its speeds and ratios' "$work/out" 'sorted({f["engine"] for f in o["lengths"][0]["figures"]}) == sorted(["llama.cpp", "winnow full", "winnow compressed", "bridge full", "bridge compressed"])'
        json 'beside our own' "$work/out" '{(f["engine"], f.get("against")) for f in o["lengths"][0]["figures"]} >= {("bridge full", "llama.cpp"), ("bridge full", "winnow full"), ("bridge compressed", "winnow compressed")}'
        json 'all of them' "$work/out" 'all(f["median"] > 0 for f in o["lengths"][0]["figures"]) and len(o["lengths"][0]["figures"]) == 24'
    }
    good 'over our backend, as tables' bench "${small[@]}" --peer own --bridge --csv "$work/b.csv" && {
        grep -q '^  bridge ' "$work/out" || fail "no rows of the backend: $(cat "$work/out")"
        grep -q ',decode,bridge compressed,winnow compressed,ratio,' "$work/b.csv" || fail 'no backend in the CSV'
    }
    "$WINNOW" bench "${small[@]}" --peer own --bridge --policy kvzip >"$work/out" 2>"$work/err" </dev/null && fail "a policy that the backend refuses"
    grep -q "over our backend): .policy.: kvzip needs second pass" "$work/err" || fail "a policy that the backend refuses: $(cat "$work/err")"
fi

good 'CPU time' bench "${small[@]}" --peer own --cpu-time --json &&
    json 'its name' "$work/out" 'o["clock"] == "cpu" and all(f["median"] > 0 for l in o["lengths"] for f in l["figures"])'
good 'CPU time of a batch' bench batch -m "$tiny/tiny-llama.gguf" --lengths 96 --sequences 2 --decode-tokens 3 -t 1 --peer own \
    --cpu-time --json && json 'its name' "$work/out" 'o["clock"] == "cpu"'
bad 'CPU time of two threads' 'give -t 1' bench "${small[@]}" -t 2 --peer own --cpu-time

# A program made for this test in the place of llama.cpp: peer NAME BODY
peer() {
    printf '#!/bin/sh\nread request\necho "ok 1.2.3 FLAG"\n%s\n' "$2" >"$work/$1"
    chmod +x "$work/$1"
}
# breaks NAME PATTERN BODY: both benchmarks must end with exit code 1 and one line. A peer that says nothing is given $patience
# seconds: few where that is what must happen, and enough for a busy machine elsewhere.
breaks() {
    local command pids=()
    peer fake "$3"
    for command in bench 'bench batch'; do
        # shellcheck disable=SC2086 # two words
        timeout 100 "$WINNOW" $command -m "$tiny/tiny-llama.gguf" --lengths 96 -t 1 --peer "$work/fake" --peer-timeout $patience \
            >"$work/$command.out" 2>"$work/$command.err" </dev/null &
        pids+=($!)
    done
    for command in bench 'bench batch'; do
        wait "${pids[0]}"
        [ $? -eq 1 ] || fail "$1: $command: not exit code 1: $(cat "$work/$command.err")"
        pids=("${pids[@]:1}")
        [ -s "$work/$command.out" ] && fail "$1: $command: something on stdout"
        [ "$(wc -l <"$work/$command.err")" -eq 1 ] || fail "$1: $command: not one line: $(cat "$work/$command.err")"
        grep -Eq -- "$2" "$work/$command.err" || fail "$1: $command: no /$2/ in: $(cat "$work/$command.err")"
    done
}
patience=60
breaks 'it dies' "fake\) was ended by signal 4 \(.+\) at 'open'" 'read request; kill -ILL $$'
breaks 'it ends' "fake\) ended with exit code 3 at 'open'" 'read request; exit 3'
breaks 'it is gone before it is asked' "ended with exit code 0 at 'open'" 'exit 0'
breaks 'it fails' "'open': there is no room" 'read request; echo failed there is no room; sleep 5'
breaks 'it talks nonsense' "no llama.cpp that winnow can talk to: it answers 'hello'" 'read request; echo hello; sleep 5'
breaks 'it has no end of a line' 'its lines are too long' 'head -c 100000 /dev/zero; sleep 5'
breaks 'it knows no time' 'it answers no time' 'while read request; do echo ok; done'
patience=3
breaks 'it hangs' "no sign of work for 3 s at 'open'; --peer-timeout" 'exec sleep 60'
breaks 'it hangs later' "no sign of work for 3 s at 'reset'" 'read request; echo ok; exec sleep 60'
peer fake 'read request; echo failed there is no such request; sleep 5'
"$WINNOW" bench "${small[@]}" --cpu-time --peer "$work/fake" >"$work/out" 2>"$work/err" </dev/null && fail 'a peer without clocks'
grep -q "'clock': there is no such request" "$work/err" || fail "a peer without clocks: $(cat "$work/err")"
bad 'no such program' 'cannot run' bench "${small[@]}" --peer "$work/nowhere"
bad 'a folder' "cannot run '$work': Permission denied" bench "${small[@]}" --peer "$work"
echo 'no program' >"$work/words"
chmod +x "$work/words"
bad 'a file that is no program' "cannot run '$work/words': Exec format error" bench "${small[@]}" --peer "$work/words"
bad 'no time at all' '1 to 86400' bench "${small[@]}" --peer-timeout 0

# What make peers built is used on the CPU that it was built for, and nowhere else.
mkdir -p "$work/cache/peers/llama"
peer ours 'read request; echo failed this one was asked; sleep 5'
mv "$work/ours" "$work/cache/peers/llama/winnow-peer"
asked() { WINNOW_CACHE=$work/cache "$WINNOW" bench "${small[@]}" >"$work/out" 2>"$work/err" </dev/null; }
key() { grep -m 1 -E "^$1[[:space:]]*:" /proc/cpuinfo | sed 's/^[^:]*: *//'; }
{ key 'model name'; key '(flags|Features)'; } >"$work/cache/peers/llama/cpu"
asked && fail 'the program of make peers was not used'
grep -q 'this one was asked' "$work/err" || fail "the program of make peers: $(cat "$work/err")"
cp "$work/words" "$work/cache/peers/llama/winnow-peer"
asked && fail 'a damaged program of make peers is run'
grep -q 'Exec format error; remove that file and run `make peers` again' "$work/err" || fail "a damaged program of make peers: $(cat "$work/err")"
{ echo 'Another CPU'; key '(flags|Features)'; } >"$work/cache/peers/llama/cpu"
asked || fail "a program for another CPU: $(cat "$work/err")"
grep -q 'built for another CPU and is not used' "$work/err" || fail "a program for another CPU: $(cat "$work/err")"
grep -q 'the build that winnow uses' "$work/out" || fail "a program for another CPU: $(cat "$work/out")"
finish
