# SPDX-License-Identifier: MIT
# scripts/check_choices.py: sources have no conditional operator within another one, and the check finds one that is added.
. "$(dirname "$0")/../cli/lib.sh"
cd "$(dirname "$0")/../.." || exit 1
command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1 || { echo 'no git history here'; exit 77; }
scripts/check_choices.py >"$work/out" || fail "this tree: $(cat "$work/out")"

# finds LINES C: the check names these lines of the text.
finds() {
    printf '%b' "$2" >"$work/made.c"
    scripts/check_choices.py "$work/made.c" >"$work/out"
    local lines
    lines=$(sed 's/^[^:]*:\([0-9]*\):.*/\1/' "$work/out" | paste -sd' ')
    [ "$lines" = "$1" ] || fail "lines '$lines' in place of '$1' of: $2"
}
finds '1' 'int f(int a) { return a ? 1 : a > 2 ? 3 : 4; }\n'
finds '2' 'int f(int a)\n{ return a ? g(a > 1 ? 1 : 2) : 3; }\n'
finds '1' 'int f(int a) { return g(a ? 1 : 2) ? 1 : 2; }\n'
finds '1' 'struct s f(int a) { return a ? (struct s){a > 1 ? 1 : 2, 0} : (struct s){0}; }\n'
finds '1' '#define M(a, b) ((a) ? (b) : (b) > 1 ? 1 \\\n    : 2)\n'
finds '3' 'int f(int a) { return a ? 1 : 2; }\nint g(int a) {\n    return (a ? 1 : 2) ? 3\n        : 4; }\n'
# In two arguments, in statements of their own, and where a question mark is no operator.
finds '' 'int f(int a) { return g(a ? 1 : 2, a ? 3 : 4) + (a ? 5 : 6); }\n'
finds '' 'int f(int a) { if (a ? 1 : 2) return a ? 3 : 4; return a ? 5 : 6; }\n'
finds '' 'int f(int a) { while (a ? 1 : 0) { a = a ? 1 : 2; } return a ? 5 : 6; }\n'
finds '' 'void f(int *x, int a) { x[a ? 1 : 0] = a ? 1 : 2; int b = a ? 1 : 2, c = a ? 3 : 4; }\n'
finds '' 'int f(int a) { return a ? "b ? c" [0] : (int)0; /* ? : ? */ }\n'
finds '' "int f(int a) { return a == '?' ? '?' : ':'; } // a ? b ? c\n"
finish
