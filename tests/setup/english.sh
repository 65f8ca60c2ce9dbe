# SPDX-License-Identifier: MIT
# scripts/check_english.py: the tree has no more of the words and sentences that readers stumble over than its list allows, and the
# check finds what is added.
. "$(dirname "$0")/../cli/lib.sh"
cd "$(dirname "$0")/../.." || exit 1
command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1 || { echo 'no git history here'; exit 77; }
scripts/check_english.py || fail 'words or sentences that readers stumble over'

# In a copy: what is added is found, what is mended is to be written down, and a long subject is named.
git clone -q . "$work/tree" 2>/dev/null || { echo 'the history cannot be cloned'; exit 77; }
cp scripts/check_english.py "$work/tree/scripts/"
cp tests/setup/english.txt "$work/tree/tests/setup/"
cd "$work/tree" || exit 1
git config user.email test@example.invalid
git config user.name test
git add -A
git commit -qm 'tests: the check as it is' 2>/dev/null
check() { python3 scripts/check_english.py >"$work/out" 2>&1; }
check || fail "the copy differs: $(head -n 5 "$work/out")"
# adds FILE TEXT PATTERN: this text is refused in the file, with a line that has the pattern. All are said in one run.
files=() patterns=()
adds() {
    mkdir -p "$(dirname "$1")"
    printf '%b' "$2" >"$1"
    git add "$1"
    files+=("$1")
    patterns+=("$3")
}
adds src/base/made.c '/* The rows of which one stands apart. */\n' "^  line 1: '(of which|stands|apart)'"
adds src/base/made_here.c 'int f(void)\n{\n    return wnw__fail(WNW_E_ARG, "what there is at hand");\n}\n' "line 3: '(what there is|at hand)'"
adds docs/use/made.md 'Text.\n\nIt is told whatever it wants.\n' "line 3: '(is told|whatever)'"
adds scripts/made.py "# word $(printf 'and %.0s' $(seq 32))end\n" 'line 1: a sentence of 3[0-9] words'
check && fail 'words and sentences that readers stumble over were taken'
for i in "${!files[@]}"; do
    awk -v file="${files[i]}" 'index($0, file) { on = 1; print; next } on && /^ / { print; next } { on = 0 }' "$work/out" >"$work/of_file"
    grep -Eq "${patterns[i]}" "$work/of_file" || fail "${files[i]}: $(cat "$work/out")"
done
git rm -qf "${files[@]}"
printf '/* Plain. */\n' >src/base/made.c
git add src/base/made.c
check || fail "a plain file was refused: $(cat "$work/out")"
git commit -qm "tests: a subject of a commit that goes on and on until nobody reads its end in a list"
check && fail 'a long subject was taken'
grep -q 'a commit subject of more than 72 characters: .* tests: a subject of a commit' "$work/out" || fail "a long subject: $(cat "$work/out")"
finish
