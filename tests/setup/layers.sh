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

"$top/scripts/check_layers.sh" --table >"$work/out" 2>&1 || fail "this tree: $(cat "$work/out")"

grep -A9 '^a prompt is read' "$work/out" | grep -q 'src/session/run/read.c .*wnw_session_read' || fail "--table shows no walk: $(cat "$work/out")"
grep -c ' calls: .*, 0 up$' "$work/out" | grep -qx 9 || fail "a walk of --table goes up, or is missing"

# Each breakage is one line that the script says, and all breakages of a tree are said in one run.
# breaks NAME PATTERN: what was done to the tree last, and its line.
names=() patterns=()
breaks() {
    names+=("$1")
    patterns+=("$2")
}
tree() {
    rm -rf "$work/tree"
    mkdir "$work/tree"
    cp -R "$top/src" "$top/include" "$top/app" "$top/cli" "$top/bench" "$top/calibration" "$top/eval" "$top/examples" "$top/perturb" "$top/serve" "$top/scripts" "$top/tests" "$work/tree/"
    cd "$work/tree" || exit 1
    names=() patterns=()
}
refused() {
    local i
    ./scripts/check_layers.sh >"$work/out" 2>&1 && fail 'a broken tree: not noticed'
    for i in "${!names[@]}"; do
        [ "$(grep -c -- "${patterns[i]}" "$work/out")" -eq 1 ] || fail "${names[i]}: not one line with /${patterns[i]}/ in: $(cat "$work/out")"
    done
    [ "$(wc -l <"$work/out")" -eq "${#names[@]}" ] || fail "${#names[@]} breakages: $(cat "$work/out")"
}

tree
sed -i '1i #include "session/session.h"' src/score/knorm.c
breaks 'a scorer that knows the session' 'score/ may not know session/'
sed -i '1i #include "winnow_bridge.h"' src/plan/turns.c
breaks 'a planner that knows the backend' 'plan/turns.c includes winnow_bridge.h: plan/ may not know it'
sed -i '1i #include "model/nothing.h"' src/session/timeline/copy.c
breaks 'an include of nothing' 'no file model/nothing.h'
printf '/* nothing */\n' >src/stray.c
breaks 'a file without a folder' 'lives in a folder'
mkdir src/other && printf '/* nothing */\n' >src/other/x.c
breaks 'a folder without a row' 'src/other/: the table in scripts/check_layers.sh does not know this folder'
sed -i '$ a int wnw__stray(int x);' src/cache/cache.h
breaks 'declared and not defined beside it' 'cache.h declares wnw__stray'
sed -i '$ a static int f(int a, int b, int c, int d, int (*e)(int, int), int g, int h, int i)\n{\n    return a;\n}' src/plan/plan.c
breaks 'a function with many parameters' 'plan.c: f has 8 parameters'
sed -i '1i #include "session/session.h"' cli/run.c
breaks 'a program that looks inside' 'cli/ may know the public headers, base/, app/, bench/, calibration/, eval/ alone'
sed -i '1i #include "base/nothing.h"' cli/run.c
breaks 'a program that includes nothing' 'cli/run.c: no file base/nothing.h'
sed -i '1i #include "base/random.h"' examples/own_method.c
breaks 'an example that looks inside' 'examples/ may know the public headers alone'
sed -i '1i #include "cli/args.h"' app/job.c
breaks 'what programs share knows one of them' 'app/ may know the public headers, base/ alone'
sed -i '1i #include "bench/llama.h"' cli/run.c
breaks 'a family of sub-commands behind its door' 'of bench/ it may know bench/commands.h alone'
sed -i '1i #include "bridge/sequence/sequence.h"' src/bridge/graph/layer_info.c
breaks 'a header of a room above' 'src/bridge/graph/layer_info.c includes bridge/sequence/sequence.h: graph/ may not know sequence/'
sed -i '/bridge\/cells\/cells.h/i #include "bridge/graph/graph.h"' src/bridge/bridge.h
breaks 'shared state that knows a room above' 'headers beside the rooms may know the lowest room alone'
sed -i '$ a int wnw__bridge_apply(int x);' src/bridge/bridge.h
breaks 'shared state with a function' 'bridge.h declares wnw__bridge_apply'
sed -i '1i #include "score/more/noncausal.h"' src/score/lagkv.c
breaks 'a core that needs what can be left out' 'src/score/lagkv.c includes score/more/noncausal.h: a build without WNW_MORE_METHODS'
mkdir other && printf '/* nothing */\n' >other/x.c
breaks 'a program without a row' 'table of programs'
sed -i '$ a int app_stray(int x);' app/files.h
breaks 'a program declares and does not define' 'files.h declares app_stray'
sed -i '1i #include "eval/tasks/task.h"' eval/metrics/words.c
breaks 'a room of the evaluation that looks ahead' 'eval/metrics/ may not know eval/tasks'
sed -i '1i #include "eval/run/config.h"' eval/results/curve.c
breaks 'results that know how they were made' 'eval/results/ may not know eval/run'
sed -i '1i #include "eval/tasks/task.h"' eval/results/map.c
breaks 'results that know how samples are made' 'eval/results/ may not know eval/tasks'
sed -i '1i #include "study/perturb.h"' eval/run/suite.c
breaks 'a room that looks inside' 'eval/run/suite.c includes study/perturb.h'
sed -i '1i #include "eval/metrics/metric.h"' perturb/texts.c
breaks 'a room beside the program that looks into another' 'perturb/ may not know eval/metrics/'
sed -i '1i #include "perturb/perturb.h"' eval/tasks/task.c
breaks 'a room that looks beside the program' 'eval/tasks/ may not know perturb/'
sed -i '1i #include "perturb/numbers.h"' eval/score.c
breaks 'a sub-command behind the door of a room beside it' 'of perturb/ it may know perturb/perturb.h alone'
mkdir eval/other && printf '/* nothing */\n' >eval/other/x.c
breaks 'a room without a row' 'does not know eval/other/'
sed -i '1i #include <cmocka.h>' tests/unit/rope.c
breaks 'asserts that show no values' 'unit/rope.c includes cmocka.h'
sed -i '1i #include "cache/cache.h"' tests/unit/rope.c
breaks 'a test that looks inside by itself' 'unit/rope.c includes cache/cache.h: tests see src/ through'
refused

# Circles of calls: within a folder, in C++, through a table and an inline function, and between rooms.
tree
printf 'int wnw__there(void)\n{\n    return wnw__back();\n}\n' >>src/select/topk.c
printf 'int wnw__back(void)\n{\n    return wnw__there();\n}\n' >>src/select/chunk.c
breaks 'files that call each other' 'calls: src/select/chunk.c -> src/select/topk.c (wnw__there), src/select/topk.c -> src/select/chunk.c (wnw__back)'
sed -i 's/^void drop_body(const server_http_req &req)$/int there_again() { return generate(0); }\n&/' serve/call.cpp
breaks 'files of C++ that call each other' 'serve/call.cpp -> serve/generate.cpp (generate)'
printf 'static int (*const wnw__steps[])(void) = {wnw__plan_far};\nint wnw__plan_near(void)\n{\n    return wnw__steps[0]();\n}\n' >>src/plan/plan.c
printf 'static inline int wnw__plan_inline(void)\n{\n    return wnw__plan_near();\n}\n' >>src/plan/plan.h
printf 'int wnw__plan_far(void)\n{\n    return wnw__plan_inline();\n}\n' >>src/plan/compress_size.c
breaks 'a circle that a table and a header hide' 'calls: src/plan/compress_size.c -> src/plan/plan.c (wnw__plan_near), src/plan/plan.c -> src/plan/compress_size.c (wnw__plan_far)'
printf 'int wnw__up(void)\n{\n    return wnw_session_read(0, 0, 0, 0);\n}\n' >>src/session/timeline/feed.c
breaks 'a call to a room above' 'src/session/timeline/feed.c calls a function of src/session/run/read.c: src/session/timeline/ may not know run/'
breaks 'files of rooms in a circle' 'src/session/timeline/feed.c -> src/session/run/read.c (wnw_session_read)'
breaks 'rooms in a circle' 'src/session/timeline -> src/session/run (feed.c calls read.c)'
refused

# The tables themselves.
tree
sed -i 's/"metrics": "base",/"metrics": "base tasks",/' scripts/check_layers.sh
breaks 'a circle of rooms' 'circle of folders: metrics -> tasks -> metrics'
sed -i 's/"base": "",/"base": "policy",/' scripts/check_layers.sh
breaks 'a circle' 'circle of folders: base -> policy -> base'
sed -i 's/"text": "base model",/"text": "base model -plan",/' scripts/check_layers.sh
breaks 'a mark that is not needed' 'no longer includes plan'
sed -i 's/"cli_commands":/"cli_nothing":/' scripts/check_layers.sh
breaks 'a register that is none' 'REGISTERS in scripts/check_layers.sh: cli_nothing is no table'
breaks 'a table that leads back to who names it' 'circle of calls: cli/commands.c -> cli/completion.c (cli_completion)'
refused
exit $((failures > 0))
