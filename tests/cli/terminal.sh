# SPDX-License-Identifier: MIT
# Text from models and files on a terminal: control characters are written as text there, and go as they are into a pipe.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"

# on_terminal OUT COMMAND...: what a terminal gets of standard output. Its own line ends, CR LF, are taken back.
on_terminal() {
    python3 - "$@" <<'PY'
import os, pty, sys
out, command = sys.argv[1], sys.argv[2:]
leader, follower = pty.openpty()
child = os.fork()
if child == 0:
    os.close(leader)
    os.dup2(follower, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(out + ".err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.execv(command[0], command)
os.close(follower)
came = b""
while True:
    try:
        part = os.read(leader, 65536)
    except OSError:
        break
    if not part:
        break
    came += part
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with open(out, "wb") as f:
    f.write(came.replace(b"\r\n", b"\n"))
sys.exit(code)
PY
}

# What of a file must be seen on a terminal, from what a pipe gets.
as_shown() {
    python3 - "$1" <<'PY'
import re, sys
text = open(sys.argv[1], "rb").read().decode("utf-8", "surrogateescape").replace("\r\n", "\n")
turning = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
out = ""
for c in text:
    n = ord(c)
    if 0xdc80 <= n <= 0xdcff:
        out += "\\x%02x" % (n - 0xdc00)
    elif c in "\n\t":
        out += c
    elif n < 0x20 or n == 0x7f:
        out += "\\x%02x" % n
    elif 0x80 <= n <= 0x9f or c in turning:
        out += "\\u%04x" % n
    else:
        out += c
sys.stdout.buffer.write(out.encode())
PY
}

controls() { # controls FILE: whether a control character is in it
    python3 - "$1" <<'PY'
import sys
text = open(sys.argv[1], "rb").read().decode("utf-8", "replace")
sys.exit(not any((ord(c) < 32 and c not in "\n\t") or 0x7f <= ord(c) <= 0x9f or c in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069" for c in text))
PY
}

# Random answers of a model whose vocabulary has every byte.
found=0
echo 'a text' >"$work/doc"
for seed in 1 2 3 4 5 6; do
    words=(run -m "$model" -f "$work/doc" -p x --temp 3 --top-k 0 --top-p 1 -n 400 --seed $seed -t 1)
    "$WINNOW" "${words[@]}" >"$work/pipe" 2>/dev/null || fail "an answer with seed $seed"
    on_terminal "$work/tty" "$WINNOW" "${words[@]}" || fail "an answer with seed $seed on a terminal"
    ! controls "$work/pipe" || found=$((found + 1))
    ! controls "$work/tty" || fail "control characters reach the terminal with seed $seed"
    as_shown "$work/pipe" | cmp -s - "$work/tty" || fail "another text on a terminal with seed $seed"
done
[ $found -gt 0 ] || fail 'no answer had control characters: this test shows nothing'

# Pieces of tokens, on a terminal or not.
printf 'a\x1b[31m b\xc2\x9b31m\x7f \xe2\x80\xaeevil\xe2\x80\xac caf\xc3\xa9\n' >"$work/odd"
"$WINNOW" tokens -m "$model" --raw -f "$work/odd" --pieces >"$work/pieces" || fail 'pieces'
! controls "$work/pieces" || fail "control characters in pieces: $(od -c "$work/pieces" | head -20)"
grep -q '\\x1b' "$work/pieces" || fail "ESC is not seen: $(cat "$work/pieces")"

# JSON says the same, and a terminal sees it.
"$WINNOW" compress -m "$model" --raw -f "$work/odd" -o "$work/odd.wkv" -t 1 2>/dev/null || fail 'compress'
printf 'What \xc2\x9b31m\x7f\xe2\x80\xae?\n' >"$work/questions"
words=(ask -m "$model" -c "$work/odd.wkv" --questions "$work/questions" --json -n 4 -t 1)
"$WINNOW" "${words[@]}" >"$work/pipe" 2>"$work/err" || fail "ask: $(cat "$work/err")"
on_terminal "$work/tty" "$WINNOW" "${words[@]}" || fail 'ask on a terminal'
! controls "$work/tty" || fail 'control characters in JSON reach the terminal'
python3 - "$work/pipe" "$work/tty" <<'PY' || fail 'another JSON on a terminal'
import json, sys
a, b = (json.loads(open(p, encoding="utf-8").read()) for p in sys.argv[1:])
sys.exit(not (a["text"] == b["text"] and a["question"] == b["question"] and "\u202e" in a["question"]))
PY

# Names in messages and lists.
odd=$work/$'n\x1b]0;x\a\xc2\x9b\xe2\x80\xaen'
"$WINNOW" run -m "$odd.gguf" -p x 2>"$work/err" >&2
! controls "$work/err" || fail "a message: $(od -c "$work/err")"
mkdir -p "$odd/models"
WINNOW_CACHE=$odd on_terminal "$work/tty" "$WINNOW" models || fail models
! controls "$work/tty" || fail "a list of models: $(od -c "$work/tty" | head)"
finish
