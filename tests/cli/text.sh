# SPDX-License-Identifier: MIT
# The texts that come with the command: long enough, without repetition, and what calibrates is not in what evaluates.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
py share/text/calibration.txt share/text/held-out.txt <<'PY' || fail 'texts'
import re, sys
N = 12
faults, before = [], set()
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as f:
        text = f.read()
    runs = []
    for paragraph in text.split("\n\n"):
        words = re.findall(r"[a-z']+", paragraph.lower())
        runs += [" ".join(words[i:i + N]) for i in range(len(words) - N + 1)]
    # Within a paragraph a phrase may come twice (counting, naming); it must stay rare.
    if len(runs) - len(set(runs)) > 5:
        faults.append(f"{path}: {len(runs) - len(set(runs))} runs of {N} words come twice")
    if before & set(runs):
        faults.append(f"{path}: shares {len(before & set(runs))} runs of {N} words with the file before")
    if len(runs) < 20000:
        faults.append(f"{path}: only {len(runs)} runs of {N} words: the check is worn out")
    if "\r" in text or re.search(r"  |\t|^\s+$", text, flags=re.M):
        faults.append(f"{path}: blanks that tokenizers see")
    before |= set(runs)
print("\n".join(faults), file=sys.stderr)
sys.exit(bool(faults))
PY
tokens() { good "tokens of $1" tokens -f "share/text/$1" --raw && wc -w <"$work/out"; }
[ "$(tokens calibration.txt)" -ge 60000 ] || fail "calibration.txt has only $(tokens calibration.txt) tokens"
[ "$(tokens held-out.txt)" -ge 32768 ] || fail "held-out.txt has only $(tokens held-out.txt) tokens"
grep -q "$(wc -c <share/text/calibration.txt | sed 's/\(...\)$/,\1/')" share/text/README.md || fail 'share/text/README.md has another length of calibration.txt'
grep -q "$(wc -c <share/text/held-out.txt | sed 's/\(...\)$/,\1/')" share/text/README.md || fail 'share/text/README.md has another length of held-out.txt'
finish
