#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the wheel of the Python package, installs it into an empty environment, and tests it there: the lines of
# docs/use/python.md, and tests/python/package.py.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
tools=$user_cache/wheel
models=$user_cache/models
[ -f "$tools/made" ] || skip "no tools for wheels; scripts/setup.sh wheel installs them"
[ -f "$models/tiny/tiny-llama.gguf" ] || skip "no $models/tiny/tiny-llama.gguf"
if grep -q 'WNW_SANITIZE:STRING=\(ON\|thread\)' "$(dirname "${WINNOW:?}")/CMakeCache.txt"; then skip "a build with sanitizers"; fi
winnow=$(realpath "$WINNOW")
keep_sets=$(dirname "$winnow")/tests/keep_sets
[ -x "$keep_sets" ] || skip "no $keep_sets; build all targets"

export WINNOW_CACHE=$user_cache CMAKE_BUILD_PARALLEL_LEVEL=2
"$tools/venv/bin/pip" wheel "$top" -q --no-deps --no-build-isolation --disable-pip-version-check -C build-dir="$work/build" -w "$work/raw" >"$work/log" 2>&1 ||
    { fail "the wheel cannot be made: $(tail -n 20 "$work/log")"; finish; }
"$tools/venv/bin/python" "$top/scripts/wheel.py" "$work"/raw/winnow-*.whl "$work/dist" >"$work/log" 2>&1 ||
    { fail "the wheel lacks its libraries: $(tail -n 20 "$work/log")"; finish; }
version=$(sed -n 's/^project(winnow VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
[ -f "$work/dist/winnow-$version-py3-none-"manylinux_*_x86_64.whl ] || fail "the wheel is called $(ls "$work/dist")"

python3 -m venv "$work/empty" || fail 'no environment'
"$work/empty/bin/pip" install -q --no-index --disable-pip-version-check --find-links "$tools/packages" "$work"/dist/winnow-*.whl >"$work/log" 2>&1 ||
    { fail "the wheel cannot be installed: $(cat "$work/log")"; finish; }
cd "$work" || exit 1 # nothing is imported from the tree
"$work/empty/bin/winnow" --version 2>&1 | grep -qwF "$version" || fail "the command of the package is $("$work/empty/bin/winnow" --version 2>&1)"
"$work/empty/bin/python" "$top/tests/python/package.py" "$winnow" "$models/tiny/tiny-llama.gguf" "$keep_sets" >"$work/log" 2>&1 || fail "package.py: $(tail -n 40 "$work/log")"

# With llama-cpp-python, in the environment that pip has installed it into.
if [ -d "$user_cache/python/lib/"python3*/site-packages/llama_cpp ] && [ -e "$(dirname "$winnow")/libggml-winnow.so" ]; then
    "$tools/venv/bin/pip" install -q --no-index --no-deps --disable-pip-version-check --target "$work/site" "$work"/dist/winnow-*.whl >"$work/log" 2>&1 ||
        fail "the wheel cannot be installed: $(cat "$work/log")"
    PYTHONPATH=$work/site "$user_cache/python/bin/python" "$top/tests/python/attach.py" "$models/tiny/tiny-llama.gguf" "$models/tiny/tiny-qwen2.gguf" >"$work/log" 2>&1 ||
        fail "attach.py: $(tail -n 40 "$work/log")"
else
    printf 'left out: winnow.llama_cpp, without llama-cpp-python or the backend\n'
fi

# The page's first lines and what they print.
sed -n '/^## First lines/,/^## /p' "$top/docs/use/python.md" | sed -n 's/^    //p' >"$work/page"
sed -n '/^import/,$p' "$work/page" >"$work/page.py"
[ -s "$work/page.py" ] || fail 'docs/use/python.md has no first lines'
if [ -f "$models/smollm2-135m.gguf" ]; then
    cp "$top/examples/document.txt" "$work/document.txt"
    "$work/empty/bin/python" "$work/page.py" >"$work/out" 2>"$work/log" || fail "the page's lines: $(tail -n 20 "$work/log")"
    grep -q Nimbus "$work/out" || fail "the page's lines print: $(cat "$work/out")"
fi
finish
