# SPDX-License-Identifier: MIT
# winnow run --store and winnow store: documents that a folder keeps, found by model, recipe, size, cache and tokens.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
limit=()
store=$work/store doc=$work/doc.txt longer=$work/longer.txt other=$work/other.txt
for i in $(seq 1 8); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$doc"
{ cat "$doc"; for i in $(seq 9 12); do echo "The keeper of tower $i is called Name$i."; done; } >"$longer"
sed 's/keeper/owner/' "$doc" >"$other"

# asked NAME ARGS...: a run with the store, whose tokens are those without it; what it says of the store is in $said.
asked() {
    local name=$1
    shift
    good "$name, plain" run -m "$model" --context-only -p 'Who keeps tower 3?' -n 12 --json "$@" && cp "$work/out" "$work/plain"
    good "$name" run -m "$model" --context-only -p 'Who keeps tower 3?' -n 12 --json --store "$store" "${limit[@]}" "$@" || return
    said=$(grep -o '[0-9]* of [0-9]* tokens of the document come from the store' "$work/err")
    json "$name: the answer" "$work/out" "o['tokens'] == json.load(open('$work/plain'))['tokens']"
}
asked 'the first time' -f "$doc" --policy knorm --ratio 0.5
[ -z "$said" ] || fail "found in an empty store: $said"
[ "$(ls "$store"/*.wkv | wc -l)" -eq 1 ] || fail "the store has: $(ls "$store")"
asked 'the second time' -f "$doc" --policy knorm --ratio 0.5
[ "${said%% *}" = "$(echo "$said" | cut -d' ' -f3)" ] && [ -n "$said" ] || fail "not all of it was found: $said"
for args in '--policy knorm --ratio 0.4' '--policy keydiff --ratio 0.5' '--policy knorm --budget 100' '--policy knorm --ratio 0.5 --kv-type q8_0' \
    '--policy knorm --ratio 0.5 --system Hello' '--policy knorm --ratio 0.5 --attn f32' '--policy knorm --ratio 0.5 --evict chunk:64'; do
    asked "with $args" -f "$doc" $args
    [ -z "$said" ] || fail "with $args another's document was found: $said"
done
asked 'another document' -f "$other" --policy knorm --ratio 0.5
[ -z "$said" ] || fail "another document was found: $said"
[ "$(ls "$store"/*.wkv | wc -l)" -eq 9 ] || fail "the store has: $(ls "$store")"
asked 'the whole cache' -f "$doc" --policy full
asked 'a longer document' -f "$longer" --policy full
[ -n "$said" ] && [ "${said%% *}" -lt "$(echo "$said" | cut -d' ' -f3)" ] || fail "the beginning was not found: $said"
asked 'a longer document again' -f "$longer" --policy full
[ "${said%% *}" = "$(echo "$said" | cut -d' ' -f3)" ] || fail "the longer document was not added: $said"

# Where a policy drops entries, a beginning is not read on from unless that is asked for.
beginnings() { # NAME WANTED ARGS...: how many documents begin the longer text that is answered about
    local name=$1 wanted=$2
    shift 2
    rm -rf "$work/begun"
    good "$name: the beginning" run -m "$model" --context-only -f "$doc" -p 'Who?' -n 2 --store "$work/begun" "$@"
    good "$name" run -m "$model" --context-only -f "$longer" -p 'Who?' -n 2 --json --store "$work/begun" "$@" || return
    json "$name: what came from the folder" "$work/out" "(o['store']['tokens'] > 0) == $wanted and o['store']['tokens'] < o['prompt_tokens']"
}
beginnings 'full' True --policy full
json 'full, exact' "$work/out" "o['store']['exact'] is False"
beginnings 'full, exact' False --policy full --store-exact
beginnings 'knorm' False --policy knorm --ratio 0.5
json 'knorm, exact' "$work/out" "o['store']['exact'] is True"
beginnings 'knorm, any' True --policy knorm --ratio 0.5 --store-any
grep -q 'chosen without the others' "$work/err" || fail "knorm, any: $(cat "$work/err")"
bad 'exact and any' 'exclude each other' run -m "$model" --context-only -f "$doc" -p 'Who?' --store "$store" --store-any --store-exact
bad 'exact without a folder' 'name it with --store' run -m "$model" --context-only -f "$doc" -p 'Who?' --store-exact
bad 'ask: any without a folder' 'name it with --store' ask -m "$model" -c "$work/none.wkv" -p 'Who?' --store-any

good 'list' store list "$store" && [ "$(wc -l <"$work/out")" -eq 11 ] || fail "list: $(cat "$work/out")"
good 'list as JSON' store list "$store" --json && head -1 "$work/out" >"$work/first" &&
    json 'a document' "$work/first" "o['policy'].startswith('full') and o['n_tokens'] > 100 and o['bytes'] > 4096 and o['used'] >= o['made'] and len(o['fingerprint']) == 32"
name=$(python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())["name"])' "$work/first")
good 'du' store du "$store" && grep -q '^11 documents' "$work/out" || fail "du: $(cat "$work/out")"
good 'asked from its file' ask -m "$model" -c "$store/$name" -p 'Who keeps tower 3?' -n 12 --json &&
    json 'asked from its file' "$work/out" "o['tokens'] == json.load(open('$work/plain'))['tokens']"
good 'check' store check "$store" && grep -q '^11 documents are whole, 0' "$work/out" || fail "check: $(cat "$work/out")"
good 'rm' store rm "$store" "$name" && [ ! -e "$store/$name" ] || fail 'rm left the file'
bad 'rm of what is not there' 'has no' store rm "$store" "$name"

# ask: questions about a document that the folder keeps, which is read where it does not.
printf 'Who keeps tower 3?\nWho?\n' >"$work/questions"
kept=$work/asked
answers() { python3 -c 'import json, sys
for line in open(sys.argv[1]): print(json.loads(line)["tokens"])' "$work/out"; }
for args in '--policy knorm --ratio 0.5' '--policy full' '--policy knorm --ratio 0.5 --kv-type q8_0 --system Hello'; do
    good "compress $args" compress -m "$model" -f "$doc" $args -o "$work/one.wkv"
    good "ask -c $args" ask -m "$model" -c "$work/one.wkv" --questions "$work/questions" -n 9 && answers >"$work/a"
    for time in first second; do
        good "ask --store $args" ask -m "$model" --store "$kept" -f "$doc" $args --questions "$work/questions" -n 9 && answers >"$work/b"
        same "ask --store $args, the $time time" "$work/a" "$work/b"
        found=$(grep -o '[0-9]* of [0-9]* tokens of the document come from the store' "$work/err")
        [ -n "$found" ] && set -- $found || set -- 0 0 0
        case $time$1 in first0) ;; second$3) ;; *) fail "ask --store $args, the $time time: '$found'" ;; esac
    done
done
good 'one question' ask -m "$model" --store "$kept" -f "$longer" --policy full -p 'Who?' -n 5 && grep -q 'come from the store' "$work/err" || fail 'the beginning was not found'
good 'what run keeps' run -m "$model" --context-only -p 'Who?' -n 5 --store "$kept" -f "$doc" --policy full && grep -q 'come from the store' "$work/err" || fail 'run does not find what ask has kept'
bad 'ask: a file and a folder' 'one of the two' ask -m "$model" -c "$work/one.wkv" --store "$kept" -f "$doc" -p 'Who?'
bad 'ask: no document' 'with -f' ask -m "$model" --store "$kept" -p 'Who?'
bad 'ask: a recipe for a file' 'leave out --policy' ask -m "$model" -c "$work/one.wkv" --policy knorm -p 'Who?'
bad 'ask: a type for a file' 'leave out --kv-tail' ask -m "$model" -c "$work/one.wkv" --kv-tail 32 -p 'Who?'
bad 'ask: a document for a file' 'leave out -f' ask -m "$model" -c "$work/one.wkv" -f "$doc" -p 'Who?'
bad 'ask: a limit of nothing' 'name it with --store' ask -m "$model" -c "$work/one.wkv" --store-limit 1M -p 'Who?'
bad 'ask: rules while answering' 'does not go with' ask -m "$model" --store "$kept" -f "$doc" --policy knorm --evict-every 8 -p 'Who?'
for i in 1 2 3; do "$WINNOW" ask -m "$model" --store "$kept" -f "$other" --policy knorm -p 'Who?' -n 5 >"$work/answer$i" 2>/dev/null </dev/null & done
wait
for i in 2 3; do same 'asked at once' "$work/answer1" "$work/answer$i"; done

# A damaged document is read again; check moves it aside, and removes what was never whole.
damaged=$(ls "$store"/*.wkv | head -1)
printf '\377\377' | dd of="$damaged" bs=1 seek=9000 conv=notrunc 2>/dev/null
echo stray >"$store/00000000000000000000000000000000.wkv"
echo stray >"$store/00000000000000000000000000000000.wkv.1-0.tmp"
# What somebody has put there is left alone.
for own in mine.wkv notes.wkv.old.tmp 00000000000000000000000000000000.wkv.bak; do echo mine >"$store/$own"; done
"$WINNOW" store check "$store" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && grep -q checksum "$work/err" && grep -q "^9 documents are whole, 2 were moved to 'unreadable', 0 were added" "$work/out" || fail "check: $(cat "$work/out" "$work/err")"
[ -e "$store/unreadable/$(basename "$damaged")" ] && grep -q stray "$store/unreadable/00000000000000000000000000000000.wkv" || fail 'check lost what is damaged'
[ ! -e "$damaged" ] && [ ! -e "$store/00000000000000000000000000000000.wkv" ] && [ ! -e "$store/00000000000000000000000000000000.wkv.1-0.tmp" ] ||
    fail 'check left what is damaged'
for own in mine.wkv notes.wkv.old.tmp 00000000000000000000000000000000.wkv.bak; do
    [ -e "$store/$own" ] || fail "check removed $own, which it has not made"
    rm -f "$store/$own"
done
# A document of a newer program may be whole there.
newer=$(ls "$store"/*.wkv | head -1)
cp "$newer" "$work/older"
printf '\011' | dd of="$newer" bs=1 seek=12 conv=notrunc 2>/dev/null
good 'a newer document' store check "$store" && grep -q '^8 documents are whole, 0' "$work/out" || fail "a newer document: $(cat "$work/out")"
[ -e "$newer" ] || fail 'check removed a document of a newer program'
cp "$work/older" "$newer"
victim=$(ls "$store"/*.wkv | head -1)
cp "$victim" "$work/whole"
for f in "$store"/*.wkv; do printf '\377\377' | dd of="$f" bs=1 seek=9000 conv=notrunc 2>/dev/null; done
asked 'all of them are damaged' -f "$doc" --policy knorm --ratio 0.5
[ -z "$said" ] || fail "a damaged document was used: $said"
asked 'stored again' -f "$doc" --policy knorm --ratio 0.5
[ -n "$said" ] || fail 'a damaged document was not replaced'

# The least recently used go where there is a limit.
rm -rf "$store"
asked 'one' -f "$doc" --policy full
limit=(--store-limit $(($(stat -c %s "$store"/*.wkv) * 5 / 2)))
asked 'two' -f "$other" --policy full
asked 'one is used' -f "$doc" --policy full
[ -n "$said" ] || fail 'one is gone'
asked 'three' -f "$doc" --policy full --system Hello
[ "$(ls "$store"/*.wkv | wc -l)" -eq 2 ] || fail "the limit was not kept: $(ls -l "$store")"
limit=()
asked 'one is still there' -f "$doc" --policy full
[ -n "$said" ] || fail 'the document that was used last was removed'
good 'a limit that nothing fits' run -m "$model" --context-only -f "$other" -p 'Who?' -n 2 --policy full --store "$store" --store-limit 4096
grep -q 'was not stored' "$work/err" || fail "a limit that nothing fits: $(cat "$work/err")"

# Several processes at once, and some are killed: every document is whole, and one that was acknowledged is there.
rm -rf "$store"
for i in 1 2 3 4; do
    sed "s/keeper/keeper$((i % 2))/" "$doc" >"$work/doc$i"
    "$WINNOW" run -m "$model" --context-only -f "$work/doc$i" -p 'Who?' -n 2 --policy full --store "$store" >"$work/answer$i" 2>"$work/err$i" </dev/null &
done
wait
for i in 1 2 3 4; do [ -s "$work/answer$i" ] || fail "at once: $(cat "$work/err$i")"; done
good 'at once' store check "$store" && grep -q '^2 documents are whole, 0' "$work/out" || fail "at once: $(cat "$work/out")"
for i in $(seq 1 "${WNW_KILLS:-10}"); do
    sed "s/keeper/keeper$i/" "$doc" >"$work/killed"
    "$WINNOW" run -m "$model" --context-only -f "$work/killed" -p 'Who?' -n 2 --policy full --store "$store" >"$work/answer" 2>/dev/null </dev/null &
    pid=$!
    sleep "0.$(printf '%03d' $((60 + i * 37 % 120)))"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    code=$?
    "$WINNOW" store check "$store" >"$work/out" 2>"$work/err" || fail "killed: $(cat "$work/out" "$work/err")"
    [ "$code" -ne 0 ] || { asked "acknowledged $i" -f "$work/killed" --policy full; [ -n "$said" ] || fail "an acknowledged document is gone ($i)"; }
done

# An index that is lost, empty, damaged or another program's. The documents are what counts.
rm -rf "$store"
for i in 1 2 3; do
    sed "s/keeper/keeper$i/" "$doc" >"$work/kept$i"
    good "document $i" run -m "$model" --context-only -f "$work/kept$i" -p 'Who?' -n 2 --policy knorm --ratio 0.5 --store "$store"
done
whole() { # NAME CODE PATTERN: what `store check` says, with all three documents there
    "$WINNOW" store check "$store" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq "$2" ] && grep -qE "$3" "$work/out" || fail "$1: $(cat "$work/out" "$work/err")"
    [ "$(ls "$store"/*.wkv | wc -l)" -eq 3 ] || fail "$1: the folder has $(ls "$store")"
    [ "$("$WINNOW" store list "$store" | wc -l)" -eq 3 ] || fail "$1: the list has $("$WINNOW" store list "$store")"
}
found() {
    asked "$1" -f "$work/kept$2" --policy knorm --ratio 0.5
    [ -n "$said" ] || fail "$1: it was read again"
}
rm "$store/index.sqlite"
found 'a lost index' 1
whole 'a lost index' 0 '^3 documents are whole, 0'
rm "$store/index.sqlite"
good 'a lost index is made by list' store list "$store" && [ "$(wc -l <"$work/out")" -eq 3 ] || fail "list of a lost index: $(cat "$work/out")"
: >"$store/index.sqlite"
found 'an empty index' 2
whole 'an empty index' 0 '^3 documents are whole, 0'
sql() { python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1]); db.executescript(sys.argv[2]); db.commit(); db.close()' "$@"; }
sql "$store/index.sqlite" "DELETE FROM document WHERE rowid = (SELECT MAX(rowid) FROM document)"
whole 'a row is missing' 0 '^3 documents are whole, 0 .*, 1 were added'
sql "$store/index.sqlite" "DELETE FROM document"
found 'no rows' 3
whole 'no rows' 0 '^3 documents are whole, 0 .*, 2 were added'
sql "$store/index.sqlite" "INSERT INTO document SELECT '0123456789abcdef0123456789abcdef.wkv', form, n_tokens, hash, fingerprint, policy, bytes, made, used FROM document LIMIT 1;
    INSERT INTO document SELECT '../../etc/passwd', form, n_tokens, hash, fingerprint, policy, bytes, made, used FROM document LIMIT 1"
whole 'rows without a file' 1 '^3 documents are whole, 0 .* 2 are gone'
for damage in 'printf xxxxxxxxxxxxxxxxxxxxxxxx | dd of="$store/index.sqlite" conv=notrunc bs=1' 'printf "%4000s" x | dd of="$store/index.sqlite" conv=notrunc bs=1 seek=4200' 'truncate -s 5000 "$store/index.sqlite"' 'echo text >"$store/index.sqlite"; cp "$store/index.sqlite" "$store/index.sqlite-journal"'; do
    rm -rf "$store/unreadable"
    eval "$damage" 2>/dev/null
    cp "$store/index.sqlite" "$work/damaged"
    whole "damaged: $damage" 0 '^3 documents are whole, 0'
    cmp -s "$work/damaged" "$store/unreadable/index.sqlite" || fail "the damaged index is lost: $damage"
    found "after it: $damage" 1
done
# What is no file in the place of the index, and of its journal.
for odd in 'mkdir' 'mkfifo' 'ln -s /nonexistent/index' 'ln -s .' 'ln -s /dev/zero'; do
    for name in index.sqlite index.sqlite-journal; do
        rm -rf "$store/unreadable" "${store:?}/$name"
        $odd "$store/$name"
        bad "$name by $odd" "'$name' is no regular file; .winnow store check. sets it aside" store list "$store"
        whole "$name by $odd" 0 '^3 documents are whole, 0'
        [ -e "$store/unreadable/$name" ] || [ -L "$store/unreadable/$name" ] || fail "$name by $odd is lost"
        found "after $name by $odd" 1
    done
done
mkdir "$work/foreign" && sql "$work/foreign/index.sqlite" 'CREATE TABLE bookmarks (x)' && cp "$work/foreign/index.sqlite" "$work/bookmarks"
bad 'the database of another program' 'another program' run -m "$model" --context-only -f "$doc" -p 'Who?' --store "$work/foreign"
bad 'checking it' 'another program' store check "$work/foreign"
same 'the database of another program stays' "$work/bookmarks" "$work/foreign/index.sqlite"
sql "$work/foreign/index.sqlite" 'PRAGMA user_version = 1'
bad 'another program with our version' 'another program' store check "$work/foreign"

# A document under the name of another, and one that nothing was found by, are no documents of the folder. Nothing is lost.
good 'of no folder' compress -m "$model" -f "$doc" --policy knorm --ratio 0.5 -o "$store/fedcba9876543210fedcba9876543210.wkv"
name=$(ls "$store" | grep -v fedcba | grep 'wkv$' | head -1)
cp "$store/$name" "$store/11111111111111111111111111111111.wkv"
whole_files=$(cat "$store"/*.wkv | sha256sum)
"$WINNOW" store check "$store" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && grep -q "^3 documents are whole, 2 were moved" "$work/out" || fail "foreign files: $(cat "$work/out" "$work/err")"
good 'what was moved can be asked' ask -m "$model" -c "$store/unreadable/fedcba9876543210fedcba9876543210.wkv" -p 'Who?' -n 2
# The same name again: what was moved before stays.
cp "$store/$name" "$store/11111111111111111111111111111111.wkv"
"$WINNOW" store check "$store" >/dev/null 2>&1
[ -e "$store/unreadable/11111111111111111111111111111111.wkv.1" ] || fail "it was replaced: $(ls "$store/unreadable")"

# Another process holds the index's write lock: who looks does not wait, and who adds says so in the end.
lock() { # SECONDS
    rm -f "$work/locked"
    python3 -c 'import os, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute("BEGIN IMMEDIATE"); open(sys.argv[2], "w").close()
deadline = time.time() + 120
while not os.path.exists(sys.argv[3]) and time.time() < deadline: time.sleep(0.05)' "$store/index.sqlite" "$work/locked" "$work/unlock" &
    while [ ! -e "$work/locked" ]; do sleep 0.05; done
}
rm -f "$work/unlock"
lock
good 'list while another writes' store list "$store" && [ "$(wc -l <"$work/out")" -eq 3 ] || fail 'list while another writes'
found 'found while another writes' 1
good 'whole while another writes' store check "$store" && grep -q '^3 documents are whole, 0' "$work/out" || fail "check while another writes: $(cat "$work/out" "$work/err")"
good 'not stored while another writes' run -m "$model" --context-only -f "$other" -p 'Who?' -n 2 --policy knorm --ratio 0.5 --store "$store"
grep -q 'not stored.*locked' "$work/err" || fail "added while another writes: $(cat "$work/err")"
[ "$(ls "$store" | grep -c 'tmp$')" -eq 0 ] || fail "left behind: $(ls "$store")"
: >"$work/unlock"
wait
good 'stored after it' run -m "$model" --context-only -f "$other" -p 'Who?' -n 2 --policy knorm --ratio 0.5 --store "$store"
[ "$(ls "$store"/*.wkv | wc -l)" -eq 4 ] || fail "after the lock the folder has $(ls "$store")"

# A file that is being written is not taken away from its process.
echo x >"$store/22222222222222222222222222222222.wkv.1-0.tmp"
python3 -c 'import fcntl, os, sys, time
f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); open(sys.argv[2], "w").close()
deadline = time.time() + 120
while not os.path.exists(sys.argv[3]) and time.time() < deadline: time.sleep(0.05)' "$store/22222222222222222222222222222222.wkv.1-0.tmp" "$work/held" "$work/release" &
while [ ! -e "$work/held" ]; do sleep 0.05; done
good 'a file that is written' store check "$store" && [ -e "$store/22222222222222222222222222222222.wkv.1-0.tmp" ] || fail 'check removed a file that is being written'
: >"$work/release"
wait
good 'a file that was left' store check "$store" && [ ! -e "$store/22222222222222222222222222222222.wkv.1-0.tmp" ] || fail 'check left an unfinished file'

# What an index says that somebody has edited is no command to the terminal, and bytes that are no text are replaced.
py "$store/index.sqlite" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("UPDATE document SET policy = CAST(x'1b5b33316d72ff6564' AS TEXT)")
db.commit()
db.close()
PY
good 'an edited index' store list "$store" && grep -aq '?\[31mr' "$work/out" || fail "an edited index: $(cat -v "$work/out")"
good 'an edited index as JSON' store list "$store" --json && grep -q '"policy"' "$work/out" || fail "an edited index as JSON: $(cat -v "$work/out")"

# A folder on a disk that is full: at once, and when the document is to be put there.
failed() { # NAME PATTERN ARGS...: exit code 1 and one line
    local name=$1 pattern=$2
    shift 2
    "$WINNOW" "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq 1 ] || fail "$name: exit code, $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$name: not one line: $(cat "$work/err")"
    grep -q "$pattern" "$work/err" || fail "$name: $(cat "$work/err")"
}
mkdir "$work/disk"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=4k none "$work/disk" 2>/dev/null; then
    failed 'no room for an index' 'disk is full' ask -m "$model" --store "$work/disk/s" -f "$doc" --policy full -p 'Who?'
    mount -o remount,size=64k "$work/disk"
    failed 'no room for a document' 'No space left' ask -m "$model" --store "$work/disk/s" -f "$doc" --policy full -p 'Who?'
    good 'the folder is still one' store check "$work/disk/s" && grep -q '^0 documents are whole, 0' "$work/out" || fail "check: $(cat "$work/out")"
    mount -o remount,size=4m "$work/disk"
    good 'once there is room' ask -m "$model" --store "$work/disk/s" -f "$doc" --policy full -p 'Who?' -n 2
    mount -o remount,ro "$work/disk"
    good 'a document of a folder that cannot be written to' ask -m "$model" --store "$work/disk/s" -f "$doc" --policy full -p 'Who?' -n 2
    good 'its list' store list "$work/disk/s" && [ "$(wc -l <"$work/out")" -eq 1 ] || fail "a folder that cannot be written to: $(cat "$work/out")"
    bad 'checking it' 'cannot be written to' store check "$work/disk/s"
    bad 'a folder that cannot be made' 'cannot make the folder' ask -m "$model" --store "$work/disk/t" -f "$doc" --policy full -p 'Who?'
    umount "$work/disk"
fi

bad 'without --context-only' 'context-only' run -m "$model" -f "$doc" -p 'Who?' --store "$work/made/s"
bad 'a limit without a store' '--store-limit bounds' run -m "$model" -f "$doc" -p 'Who?' --store-limit 1M
bad 'while generating' 'evict-every' run -m "$model" -f "$doc" --context-only -p 'Who?' --policy knorm --ratio 0.5 --evict-every 8 --store "$work/made/s"
bad 'a file as a store' 'not a folder' run -m "$model" -f "$doc" --context-only -p 'Who?' --store "$doc"
bad 'no store' 'no folder that documents are kept in' store list "$work"
bad 'no folder' 'which folder' store list
bad 'nothing to remove' 'which document' store rm "$store"
mkdir "$work/odd" && echo 'not an index' >"$work/odd/index.sqlite"
bad 'an index that is none' 'not a database' store list "$work/odd"
good 'it is set aside' store check "$work/odd" && grep -q 'not an index' "$work/odd/unreadable/index.sqlite" || fail 'an index that is none was lost'
finish
