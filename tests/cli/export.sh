# SPDX-License-Identifier: MIT
# winnow export: a slot appears whole or not at all, and what no server can hold is refused. That servers restore it:
# tests/server/stored.py.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
for i in $(seq 1 12); do echo "The keeper of tower $i is called Name$i and has $((i * 7)) lamps."; done >"$work/doc.txt"
made=$work/made
mkdir "$made"
good 'stored' compress -m "$model" --policy keydiff --ratio 0.6 -f "$work/doc.txt" -o "$work/doc.wkv"
good 'exported' export "$work/doc.wkv" --slot "$work/slot" -m "$model" && head -c 13 "$work/slot" | grep -q 'winnow slot 5' || fail 'no slot'
cp "$work/slot" "$work/first"
chmod 640 "$work/slot"
good 'again' export "$work/doc.wkv" --slot "$work/slot" -m "$model"
same 'the same bytes' "$work/first" "$work/slot"
[ "$(stat -c %a "$work/slot")" = 640 ] || fail 'a file that is replaced lost its permissions'
good 'everything' compress -m "$model" --policy full -f "$work/doc.txt" -o "$work/full.wkv"
good 'exported whole' export "$work/full.wkv" --slot "$work/whole" -m "$model"
[ "$(stat -c %s "$work/slot")" -lt $(($(stat -c %s "$work/whole") * 6 / 10)) ] || fail 'what was dropped takes room in the slot'

bad 'no document' 'Name a stored one' export --slot "$made/x" -m "$model"
bad 'no slot' 'Name a file with --slot' export "$work/doc.wkv" -m "$model"
bad 'another model' 'belongs to model' export "$work/doc.wkv" --slot "$made/x" -m "$tiny/tiny-qwen2.gguf"
bad 'no stored document' 'no stored cache' export "$work/doc.txt" --slot "$made/x" -m "$model"
bad 'no such file' 'cannot open' export "$work/none.wkv" --slot "$made/x" -m "$model"
bad 'over the document' 'is an input' export "$work/doc.wkv" --slot "$work/doc.wkv" -m "$model"
bad 'no name of a folder' 'the folder cannot be made' export "$work/doc.wkv" --state '' -m "$model"
bad 'a file in place of a folder' 'Not a directory' export "$work/doc.wkv" --state "$work/doc.txt" -m "$model"
bad 'no such folder' 'there is no folder' export "$work/doc.wkv" --slot "$made/none/x" -m "$model"
good 'a tail' compress -m "$model" --policy full --kv-type q8_0 --kv-tail 32 -f "$work/doc.txt" -o "$work/tail.wkv"
bad 'a tail' '--kv-tail' export "$work/tail.wkv" --slot "$made/x" -m "$model"

# A disk that is full, or read-only.
mkdir "$work/disk"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k none "$work/disk" 2>/dev/null; then
    "$WINNOW" export "$work/doc.wkv" --slot "$work/disk/x" -m "$model" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq 1 ] || fail "a full disk: exit code, $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "a full disk: not one line: $(cat "$work/err")"
    [ -z "$(ls -A "$work/disk")" ] || fail "a full disk: left $(ls -A "$work/disk")"
    mount -o remount,ro "$work/disk"
    bad 'a read-only disk' 'cannot write' export "$work/doc.wkv" --slot "$work/disk/x" -m "$model"
    umount "$work/disk"
fi
finish
