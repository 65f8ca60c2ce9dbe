# SPDX-License-Identifier: MIT
# Output files: inputs and open files are never replaced, links are followed, and a write that fails leaves
# everything as it was.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
need_file "$tiny/tiny-qwen3.gguf"
cd "$work" || exit 1
ids 60 >ids
printf 'A short text about nothing at all, for a model that knows nothing.' >doc.txt
cp "$model" own.gguf
ln -s own.gguf link.gguf
ln ids hard.ids
mkdir folder
before=$(md5sum ids doc.txt own.gguf)

unchanged() {
    [ "$(md5sum ids doc.txt own.gguf)" = "$before" ] || fail "$1: an input was changed"
    [ -z "$(ls -A | grep tmp)" ] || fail "$1: left $(ls -A | grep tmp)"
}

# ---- Inputs ----
refused() {
    bad "$@"
    unchanged "$1"
}
plan="plan -m own.gguf"
refused 'plan over its document' 'doc.txt. is an input' $plan -f doc.txt -o doc.txt
refused 'plan over its tokens' 'is an input' $plan --tokens ids -o ids
refused 'plan over a hard link of them' 'hard.ids. is an input' $plan --tokens ids -o hard.ids
refused 'plan over its model' 'is an input' $plan --tokens ids -o own.gguf
refused 'plan over a link to its model' 'is an input' $plan --tokens ids -o link.gguf
refused 'plan over it by another name' 'is an input' $plan --tokens ids -o folder/../own.gguf
refused 'table over the model' 'is an input' bench -m own.gguf --lengths 16 --csv own.gguf
refused 'table of observations over the model' 'is an input' bench observe -m own.gguf --lengths 16 --csv link.gguf
refused 'table of methods over the model' 'is an input' bench methods -m own.gguf --lengths 16 --csv "$work/own.gguf"
printf '{"a": 1}' >profile.json
refused 'table over the profile' 'is an input' bench methods -m own.gguf --lengths 16 --profile profile.json --csv profile.json
refused 'plan over the profile' 'is an input' $plan --tokens ids --profile profile.json -o profile.json
[ "$(cat profile.json)" = '{"a": 1}' ] || fail 'the profile was changed'
"$WINNOW" $plan --tokens /dev/stdin -o ids <ids 2>err
[ $? -eq 2 ] && grep -q 'is an input' err || fail "tokens from standard input: $(cat err)"
unchanged 'tokens from standard input'

# ---- Open files ----
# `-o /dev/stdout >>log` would give the log's name to a new file.
for name in /dev/stdout /dev/fd/1 /proc/self/fd/1 log; do
    echo 'first line' >log
    "$WINNOW" $plan --tokens ids -o $name >>log 2>err
    [ $? -eq 2 ] && grep -q 'open as descriptor 1 .standard output' err || fail "$name >>log: $(cat err)"
    [ "$(cat log)" = 'first line' ] || fail "$name >>log: the log was replaced"
done
"$WINNOW" $plan --tokens ids -o log 7>>log 2>err
[ $? -eq 2 ] && grep -q 'open as descriptor 7' err || fail "descriptor 7: $(cat err)"
"$WINNOW" $plan --tokens ids -o log 2>>log
[ $? -eq 2 ] && grep -q 'first line' log || fail 'standard error'
bad 'the output of a table is where it goes' 'open as descriptor 1' bench -m own.gguf --lengths 16 --csv out
"$WINNOW" $plan --tokens ids -o /dev/stdout 2>err | cat >out
[ "${PIPESTATUS[0]}" -eq 2 ] && grep -q 'not a regular file' err || fail "a pipe: $(cat err)"
mkfifo fifo
bad 'a fifo' 'not a regular file' $plan --tokens ids -o fifo

# ---- Links ----
ln -s folder/target.json dangling
good 'a link to nothing' $plan --tokens ids -o dangling
[ -L dangling ] && [ -s folder/target.json ] || fail 'a link to nothing: the link was replaced'
cp folder/target.json first.json
ln -s ../dangling folder/chain
rm folder/target.json
good 'a chain of links' $plan --tokens ids -o folder/chain
same 'a chain of links' first.json folder/target.json
good 'a link to a file' $plan --tokens ids -o dangling
[ -L dangling ] && [ -L folder/chain ] || fail 'a link to a file: the link was replaced'
same 'a link to a file' first.json folder/target.json
ln -s loop loop
# What the library writes itself goes where links lead, too.
compress="compress -m own.gguf -f doc.txt --policy full"
ln -s folder/stored.wkv stored
good 'a stored document behind a link to nothing' $compress -o stored
[ -L stored ] && [ -s folder/stored.wkv ] || fail 'a stored document: the link was replaced'
good 'a stored document behind a link to a file' $compress -o stored
[ -L stored ] && [ -s folder/stored.wkv ] || fail 'a stored document again: the link was replaced'
good 'a slot behind a link to nothing' export folder/stored.wkv --slot dangling-slot -m own.gguf
ln -s folder/slot there
good 'a slot behind a link' export folder/stored.wkv --slot there -m own.gguf
[ -L there ] && [ -s folder/slot ] || fail 'a slot: the link was replaced'
for words in "$plan --tokens ids -o -" "$compress -o -" "export folder/stored.wkv -m own.gguf --slot -" "inspect folder/stored.wkv -m own.gguf -o -"; do
    bad "no file: $words" "'-' is no file" $words
done
[ ! -e - ] || fail "a file that is called '-'"
good 'a file that is called so' $plan --tokens ids -o ./-
[ -s ./- ] && rm ./- || fail "no file that is called '-'"
# Without /proc a file cannot be given its name at the end, and has one from the beginning.
if unshare -rm sh -c 'mount -t tmpfs none /proc' 2>/dev/null; then
    unshare -rm sh -c "mount -t tmpfs none /proc && exec '$WINNOW' $compress -o noproc.wkv" 2>err || fail "without /proc: $(cat err)"
    [ -s noproc.wkv ] && [ -z "$(ls -A | grep tmp)" ] || fail "without /proc: $(ls -A)"
    rm -f noproc.wkv
else
    echo 'skipped: without /proc (mounting is not allowed here)'
fi
bad 'a loop of links' 'cannot write .loop' $plan --tokens ids -o loop
ln -s nowhere/x.json astray
bad 'a link into no folder' "no folder 'nowhere'" $plan --tokens ids -o astray
bad 'a name with a slash' 'cannot write|names a folder' $plan --tokens ids -o new/
bad 'a name below a file' 'cannot write' $plan --tokens ids -o ids/x.json
bad 'a name too long' 'name too long' $plan --tokens ids -o "$(printf '%0300d' 1)"
long=$(printf '%0255d' 1)
good 'the longest name' $plan --tokens ids -o "$long"
same 'the longest name' first.json "$long"
good 'an odd name' $plan --tokens ids -o $'a\nb %s é'
[ -s $'a\nb %s é' ] || fail 'an odd name'

# ---- What was there ----
umask 022
good 'a new file' $plan --tokens ids -o new.json
[ "$(stat -c %a new.json)" = 644 ] || fail "permissions of a new file: $(stat -c %a new.json)"
chmod 600 new.json
good 'a private file' $plan --tokens ids -o new.json
[ "$(stat -c %a new.json)" = 600 ] || fail "permissions of a private file: $(stat -c %a new.json)"

# ---- Writes that fail: a file of at most 1024 bytes is too small for the plan ----
size=$(stat -c %s first.json)
[ "$size" -gt 1024 ] || fail "the plan has only $size bytes"
echo old >kept.json
(ulimit -f 1 && "$WINNOW" $plan --tokens ids -o kept.json 2>err)
code=$?
[ $code -eq 1 ] || fail "no room: exit code $code"
[ "$(wc -l <err)" -eq 1 ] && grep -q "writing '.*kept.json' failed: File too large" err || fail "no room: $(cat err)"
[ "$(cat kept.json)" = old ] || fail 'no room: the old file is gone'
(ulimit -f 1 && "$WINNOW" $plan --tokens ids -o fresh.json 2>err)
[ -e fresh.json ] && fail 'no room: a part of a new file'
if mkdir disk && mount -t tmpfs -o size=4k,mode=700 none disk 2>/dev/null; then
    echo old >disk/p.json
    "$WINNOW" $plan --tokens ids -o disk/p.json 2>err
    code=$?
    [ $code -eq 1 ] && grep -q 'No space left' err || fail "a full disk: exit code $code, $(cat err)"
    [ "$(cat disk/p.json)" = old ] && [ "$(ls -A disk)" = p.json ] || fail "a full disk: $(ls -A disk)"
    umount disk
else
    echo 'skipped: a full disk (mounting is not allowed here)'
fi
unchanged 'writes that fail'

# ---- Standard output ----
if [ -c /dev/full ]; then
    for args in "run -m own.gguf --tokens ids -n 4" "run -m own.gguf --tokens ids -n 4 --json" \
        "ppl -m own.gguf --tokens ids" "ppl -m own.gguf --tokens ids --json" methods 'methods snapkv' \
        'methods --markdown' models help 'help run' --version 'bench --help'; do
        "$WINNOW" $args >/dev/full 2>err
        code=$?
        [ $code -eq 1 ] || fail "$args >/dev/full: exit code $code"
        [ "$(grep -c 'standard output failed' err)" -eq 1 ] || fail "$args >/dev/full: $(cat err)"
    done
fi
for args in "run -m own.gguf --tokens ids -n 4" 'methods' '--version'; do
    "$WINNOW" $args >&- 2>err
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output failed' err || fail "$args >&-: exit code $code, $(cat err)"
done
# Closed descriptors are not handed to the files that are opened next.
"$WINNOW" $plan --tokens ids -o closed.json <&- >&- 2>&-
[ $? -eq 0 ] && cmp -s first.json closed.json || fail 'closed descriptors: another plan'
"$WINNOW" plan -m nowhere.gguf --tokens ids -o closed.json 2>&-
[ $? -eq 2 ] || fail 'closed standard error'
same 'closed standard error' first.json closed.json
unchanged 'closed descriptors'

# A reader that is gone ends the run at once, whether the signal ends it or the failed write does.
seq 20 >few
py "$WINNOW" "$tiny/tiny-qwen3.gguf" few <<'PY' || fail 'a reader that is gone'
import os, signal, subprocess, sys
winnow, model, ids = sys.argv[1:]
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
read, write = os.pipe()
os.close(read)
done = subprocess.run([winnow, "run", "-m", model, "--tokens", ids, "-n", "100000000", "--policy", "streaming_llm-rerotated",
                       "--evict", "chunk", "--evict-every", "64", "--budget", "64"],
                      stdout=write, stderr=subprocess.PIPE, restore_signals=False, text=True, timeout=20)
assert done.returncode == 1, done
assert done.stderr.count("standard output failed: Broken pipe") == 1, done.stderr
assert "decode" not in done.stderr, done.stderr
PY
finish
