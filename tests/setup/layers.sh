# SPDX-License-Identifier: MIT
# The folders of src/ and of programs know what scripts/check_layers.sh allows, and it notices when they do not.
top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

"$top/scripts/check_layers.sh" >"$work/out" 2>&1 || fail "this tree: $(cat "$work/out")"

# A tree of links to one copy: files in it are replaced (sed -i) and never written into.
mkdir "$work/copy"
cp -R "$top/src" "$top/include" "$top/app" "$top/cli" "$top/bench" "$top/calibration" "$top/eval" "$top/examples" "$top/scripts" "$top/tests" "$work/copy/"
fresh() {
    rm -rf "$work/tree"
    cp -Rl "$work/copy" "$work/tree"
    cd "$work/tree" || exit 1
}
# refused NAME PATTERN: the tree as it was changed.
refused() {
    ./scripts/check_layers.sh >"$work/out" 2>&1 && fail "$1: not noticed"
    grep -q -- "$2" "$work/out" || fail "$1: no /$2/ in: $(cat "$work/out")"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "$1: more than one line: $(cat "$work/out")"
    fresh
}

fresh
sed -i '1i #include "session/session.h"' src/score/knorm.c
refused 'a scorer that knows the session' 'score/ may not know session/'
sed -i '1i #include "model/nothing.h"' src/session/copy.c
refused 'an include of nothing' 'no file model/nothing.h'
printf '/* nothing */\n' >src/stray.c
refused 'a file without a folder' 'lives in a folder'
mkdir src/other && printf '/* nothing */\n' >src/other/x.c
refused 'a folder without a row' 'does not know this folder'
sed -i '$ a int wnw__stray(int x);' src/cache/cache.h
refused 'declared and not defined beside it' 'cache.h declares wnw__stray'
sed -i '$ a static int f(int a, int b, int c, int d, int (*e)(int, int), int g, int h, int i)\n{\n    return a;\n}' src/plan/plan.c
refused 'a function with many parameters' 'plan.c: f has 8 parameters'
sed -i '1i #include "session/session.h"' cli/run.c
refused 'a program that looks inside' 'cli/ may know the public headers, base/, app/, bench/, calibration/, eval/ alone'
sed -i '1i #include "base/nothing.h"' cli/run.c
refused 'a program that includes nothing' 'cli/run.c: no file base/nothing.h'
sed -i '1i #include "base/random.h"' examples/own_method.c
refused 'an example that looks inside' 'examples/ may know the public headers alone'
sed -i '1i #include "cli/args.h"' app/job.c
refused 'what programs share knows one of them' 'app/ may know the public headers, base/ alone'
sed -i '1i #include "bench/llama.h"' cli/run.c
refused 'a family of sub-commands behind its door' 'of bench/ it may know bench/commands.h alone'
mkdir other && printf '/* nothing */\n' >other/x.c
refused 'a program without a row' 'table of programs'
sed -i '$ a int app_stray(int x);' app/files.h
refused 'a program declares and does not define' 'files.h declares app_stray'
sed -i '1i #include "eval/tasks/task.h"' eval/metrics/words.c
refused 'a room of the evaluation that looks ahead' 'eval/metrics/ may not know eval/tasks'
sed -i '1i #include "eval/run/config.h"' eval/results/curve.c
refused 'results that know how they were made' 'eval/results/ may not know eval/run'
sed -i '1i #include "eval/tasks/task.h"' eval/results/map.c
refused 'results that know how samples are made' 'eval/results/ may not know eval/tasks'
sed -i '1i #include "session/perturb.h"' eval/run/suite.c
refused 'a room that looks inside' 'eval/run/suite.c includes session/perturb.h'
mkdir eval/other && printf '/* nothing */\n' >eval/other/x.c
refused 'a room without a row' 'does not know eval/other/'
sed -i 's/"metrics": "base",/"metrics": "base tasks",/' scripts/check_layers.sh
refused 'a circle of rooms' 'circle of folders: metrics -> tasks -> metrics'
sed -i '1i #include <cmocka.h>' tests/unit_rope.c
refused 'asserts that show no values' 'unit_rope.c includes cmocka.h'
sed -i '1i #include "cache/cache.h"' tests/unit_rope.c
refused 'a test that looks inside by itself' 'unit_rope.c includes cache/cache.h: tests see src/ through'
sed -i 's/"base": "",/"base": "policy",/' scripts/check_layers.sh
refused 'a circle' 'circle of folders'
sed -i 's/"text": "base model",/"text": "base model -plan",/' scripts/check_layers.sh
refused 'a mark that is not needed' 'no longer includes plan'
exit $((failures > 0))
