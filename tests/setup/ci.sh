# SPDX-License-Identifier: MIT
# Continuous integration starts from an empty cache folder, names the user's for the compiled ggml alone, runs every stage and shows what
# each printed in one piece, also those that ran at the same time; it fails if one fails, and leaves no files, interrupted or not.
. "$(dirname "$0")/lib.sh"
mkdir -p "$work/project/.ci" "$work/bin" "$work/tmp"
cp "$top/.ci/run" "$work/project/.ci/"
cp -R "$top/scripts" "$work/project/"
export TMPDIR=$work/tmp WINNOW_CACHE=$work/cache
PATH=$work/bin:$PATH

# fake NAME FILE [COMMANDS]: a program that prints its name and arguments at its beginning and its end, notes them in $work/called, and in
# between does what $work/does says for the first pattern that matches them: fail, or hang and leave its process id in $work/pids, or
# fail as soon as another one hangs.
fake() {
    cat >"$2" <<SH
#!/bin/bash
said="$1 \${*//"$work/tmp"\/winnow-ci-????????/SCRATCH}"
echo "begin \$said"
echo "\$said" >>"$work/called"
while read -r what pattern; do
    [[ \$said == \$pattern ]] || continue
    case \$what in
    late) until [ -s "$work/pids" ]; do sleep 0.05; done ;;&
    fail | late) echo "error of \$said" >&2; exit 3 ;;
    hang) echo \$\$ >>"$work/pids"; exec sleep 300 ;;
    esac
done <"$work/does"
${3-}
echo "end \$said"
SH
    chmod +x "$2"
}
fake make "$work/bin/make" 'printf "%s\n" "$WINNOW_CACHE" "$WINNOW_LLAMA_FROM" >"'"$work"'/folders"
[ ! -d "$WINNOW_CACHE" ] || ls -A --ignore=setup.lock "$WINNOW_CACHE" >"'"$work"'/listing"
for word; do [[ $word != BUILD=* ]] || { mkdir -p "${word#*=}" && touch "${word#*=}/CMakeCache.txt"; }; done'
fake cmake "$work/bin/cmake" '[ ! -e "'"$work"'/slow" ] || sleep 0.2
echo "${CC:-cc} $(readlink "$(command -v "${CC:-cc}")") $CCACHE_BASEDIR" >>"'"$work"'/compilers"
echo "${CMAKE_GENERATOR-}" >>"'"$work"'/generators"'
fake ctest "$work/bin/ctest"
fake aarch64 "$work/project/scripts/compile_aarch64.sh"
fake check_clang "$work/project/scripts/check_clang.py"
# All tools are there, so that none is installed.
for tool in chromium chromedriver clang aarch64-linux-gnu-gcc ninja; do
    printf '#!/bin/sh\n' >"$work/bin/$tool"
    chmod +x "$work/bin/$tool"
done
# As ccache does, which is called by a compiler's name: the next one of that name in PATH compiles.
printf '#!/bin/sh\nPATH=${PATH#"${0%%/*}:"} exec "${0##*/}" "$@"\n' >"$work/bin/ccache"
chmod +x "$work/bin/ccache"

# ci NAME STATUS "DOES"... [-- PART]: a run that ends with this status and leaves nothing.
ci() {
    local name=$1 want=$2 status=0 does=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        does+=("$1")
        shift
    done
    rm -f "$work/called" "$work/pids"
    printf '%s\n' "${does[@]}" >"$work/does"
    "$work/project/.ci/run" "${@:2}" >"$work/out" 2>&1 || status=$?
    [ "$status" -eq "$want" ] || fail "$name: exit code $status, expected $want: $(cat "$work/out")"
    [ -z "$(ls -A "$work/tmp")" ] || fail "$name: left behind: $(ls -A "$work/tmp")"
}
called() { grep -Eq -- "$2" "$work/called" || fail "$1: no /$2/ in: $(cat "$work/called")"; }
not_called() { ! grep -Eq -- "$2" "$work/called" || fail "$1: /$2/ in: $(cat "$work/called")"; }
gone() { [ ! -e "/proc/$1" ]; }
all_gone() {
    local pid
    for pid in $(cat "$work/pids"); do gone "$pid" || return 1; done
}

# ---- A whole run; compilers print while other programs do ----
touch "$work/slow"
ci 'all pass' 0
rm "$work/slow"
mapfile -t folders <"$work/folders"
[[ ${folders[0]} == "$work"/tmp/*/cache ]] || fail "the cache folder is ${folders[0]}"
[ ! -s "$work/listing" ] || fail "the cache folder is not empty: $(cat "$work/listing")"
# Compilers are called through ccache, which knows where folders have other names in every run.
for compiler in cc clang; do
    grep -qx "$compiler $work/bin/ccache $work/tmp" "$work/compilers" || fail "not through ccache: $compiler: $(cat "$work/compilers")"
done
[ "$(sort -u "$work/generators")" = Ninja ] || fail "build folders are not Ninja's: $(sort -u "$work/generators")"
[ "${folders[1]}" = "$cache" ] || fail "the compiled ggml comes from ${folders[1]}"
[ "$(head -n 1 "$work/called" | cut -d' ' -f1-2)" = 'make test-ready' ] || fail "first is $(head -n 1 "$work/called")"
for stage in 'make test-ready SERVER=1 BUILD=SCRATCH/build .*-DWNW_WERROR=ON -DWNW_TEST_KERNELS=ON' 'make test-run SERVER=1 BUILD=SCRATCH/build' \
    'cmake -S . -B SCRATCH/address -DWNW_WERROR=ON .*-DWNW_SANITIZE=ON' 'cmake --build SCRATCH/address --target unit_tests model_matrix .*winnow ' \
    'ctest --test-dir SCRATCH/address .*\^\(unit_\.\*\|model_matrix\|.*\|cli_calibrate_all\|cli_store\|cli_stored\)\$' \
    'cmake -S . -B SCRATCH/thread -DWNW_WERROR=ON .*-DWNW_SANITIZE=thread' 'cmake --build SCRATCH/thread --target model_threads ' 'ctest --test-dir SCRATCH/thread .*model_threads' \
    'cmake -S . -B SCRATCH/core -DWNW_WERROR=ON -DWNW_MORE_METHODS=OFF' \
    'aarch64 ' 'cmake -S . -B SCRATCH/clang -DWNW_WERROR=ON' 'cmake --build SCRATCH/clang --target written_sources' 'check_clang SCRATCH/clang SCRATCH/fuzz' \
    'cmake -S . -B SCRATCH/fuzz -DWNW_WERROR=ON .*-DWNW_FUZZ=ON' 'cmake --build SCRATCH/fuzz --target fuzz_targets' 'ctest --test-dir SCRATCH/fuzz .*\^fuzz\$'; do
    called 'all pass' "^$stage"
done
for tool in browser clang cross; do
    grep -q "^setup: $tool: " "$work/out" || fail "$tool was not looked for: $(cat "$work/out")"
done
grep -q '^== all passed in [0-9]* min' "$work/out" || fail "it does not say that all passed: $(cat "$work/out")"
cp "$work/called" "$work/called-all"
# The output of one program is in one piece.
awk '/^begin / { if (open) bad = bad "\n" open " and " $0; open = $0 } /^end / { open = "" } END { print bad; exit bad != "" }' "$work/out" >"$work/mixed" ||
    fail "mixed output:$(cat "$work/mixed")"

# Halves for two machines: each has its own tools, and both together all stages.
for part in tests checks; do
    ci "$part" 0 -- "$part"
    cp "$work/called" "$work/called-$part"
done
not_called checks 'make test-(ready|run)'
called checks '^make test-libraries SERVER=1 '
called checks '^make test-files'
cp "$work/called-tests" "$work/called"
not_called tests '^c?(make|test) .*SCRATCH/(address|thread|fuzz|clang|core)'
missing=$(grep -vxFf <(cat "$work"/called-tests "$work"/called-checks) "$work/called-all") && fail "no half does $missing"
if "$work/project/.ci/run" other >"$work/out" 2>&1; then fail 'another word: no error'; fi
grep -q 'usage: .ci/run' "$work/out" || fail "another word: $(cat "$work/out")"

# Without a tool its stages are left out, and that is said.
mv "$work/bin/clang" "$work/aside"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/clang"
chmod +x "$work/bin/clang"
ci 'no clang' 0
not_called 'no clang' 'SCRATCH/(clang|fuzz)'
grep -q 'LEFT OUT.*what clang says and the fuzzers' "$work/out" || fail "no clang: it does not say so: $(tail -n 3 "$work/out")"
mv "$work/aside" "$work/bin/clang"

# The user's module of Vulkan and its driver are taken over, and their test runs. Without them that is left out.
grep -q 'LEFT OUT.*devices around Vulkan (make vulkan)' "$work/out" || fail "no Vulkan: it does not say so: $(tail -n 3 "$work/out")"
with_vulkan() {
    mkdir -p "$work/project/cmake" "$cache/vulkan" "$cache/lavapipe"
    cp -R "$top/cmake/vulkan" "$work/project/cmake/"
    printf '#!/bin/sh\necho installed\n' >"$work/bin/dpkg-query"
    chmod +x "$work/bin/dpkg-query"
    echo module >"$cache/vulkan/libggml-vulkan.so"
    cp "$(type -P cat)" "$cache/lavapipe/libvulkan_lvp.so" # what it needs is looked at
    (
        here=$work/project/scripts llama_version=$(version_of llama_version)
        . "$here/made.sh"
        . "$here/vulkan.sh"
        record "$cache/vulkan/made" "$(vulkan_from)" "$cache/vulkan/libggml-vulkan.so"
        record "$cache/lavapipe/made" mesa "$cache/lavapipe/libvulkan_lvp.so"
    )
    ci 'with Vulkan' 0 -- tests
    called 'with Vulkan' '^ctest --test-dir SCRATCH/build -R \^cli_vulkan\$ '
    for part in vulkan vulkan-driver; do
        grep -q "^setup: $part: taking over the" "$work/out" || fail "$part was not taken over: $(cat "$work/out")"
    done
    ci 'a test on Vulkan fails' 3 'fail ctest --test-dir SCRATCH/build *' -- tests
    rm -r "$cache/vulkan" "$cache/lavapipe" "$work/bin/dpkg-query"
}
# The module goes with a private copy of ggml alone.
ls -d /usr{,/local}/lib*{,/*}/cmake/ggml >/dev/null 2>&1 || with_vulkan

# ---- Failures ----
ci 'a failing build' 3 'fail make test-ready*'
not_called 'a failing build' 'test-run|cmake'
ci 'a failing test' 3 'fail make test-run*'
not_called 'a failing test' '^ctest'
for name in address thread fuzz; do
    ci "$name fails to compile" 3 "fail cmake --build SCRATCH/$name *"
    grep -q "^error of cmake --build SCRATCH/$name " "$work/out" || fail "$name fails to compile: the error is not shown: $(cat "$work/out")"
    not_called "$name fails to compile" "^ctest --test-dir SCRATCH/$name "
    grep -q 'all passed' "$work/out" && fail "$name fails to compile: and all passed"
done
for name in address thread; do
    ci "a test under $name fails" 3 "fail ctest --test-dir SCRATCH/$name *"
done
ci 'a fuzz target fails' 1 'fail ctest --test-dir SCRATCH/fuzz *'
ci 'the core is not configured' 3 'fail cmake -S . -B SCRATCH/core *'
ci 'clang warns' 3 'fail check_clang *'
ci 'a kernel for aarch64 fails' 3 'fail aarch64 *'
# Stages that run at the same time as a failing one end with it.
ci 'a failing test, compilers at work' 3 'hang cmake --build SCRATCH/thread *' 'late ctest --test-dir SCRATCH/address *'
check 'a failing test: a compiler goes on' all_gone

# ---- Interruptions ----
for signal in INT TERM; do
    rm -f "$work/pids"
    printf '%s\n' 'hang cmake --build SCRATCH/address *' 'hang make test-run *' >"$work/does"
    set -m
    "$work/project/.ci/run" >"$work/out" 2>&1 &
    pid=$!
    set +m
    two() { [ "$(wc -l <"$work/pids")" -eq 2 ]; }
    check "$signal: make and cmake were not called: $(cat "$work/out")" until_true two
    kill -s $signal -- "-$pid"
    check "$signal: goes on" until_true gone "$pid"
    wait "$pid" 2>/dev/null
    check "$signal: make or cmake goes on" until_true all_gone
    [ -z "$(ls -A "$work/tmp")" ] || fail "$signal: left behind: $(ls -A "$work/tmp")"
done

# What a run leaves that was killed outright goes away with the next; the folder of one still running stays.
mkdir "$work/tmp/winnow-ci-dead" "$work/tmp/winnow-ci-alive"
touch "$work/tmp/winnow-ci-dead/lock"
exec 6>"$work/tmp/winnow-ci-alive/lock"
flock 6
printf 'fail make *\n' >"$work/does"
"$work/project/.ci/run" >"$work/out" 2>"$work/err" 6>&-
[ "$(ls -A "$work/tmp")" = winnow-ci-alive ] || fail "of the dead and the living is left: $(ls -A "$work/tmp")"
finish
