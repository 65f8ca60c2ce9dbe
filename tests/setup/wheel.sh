#!/bin/bash
# SPDX-License-Identifier: MIT
# Makes the source package and a wheel from it, installs that into empty environments, and tests it there: tests/python/, the lines of README.md
# and docs/use/python.md, and the notebook in examples/.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$(dirname "${BASH_SOURCE[0]}")/lib_reuse.sh"
tools=$user_cache/wheel
models=$user_cache/models
tiny=$models/tiny/tiny-llama.gguf
[ -f "$tools/made" ] || skip "no tools for wheels; scripts/setup.sh wheel installs them"
[ -f "$tiny" ] || skip "no $tiny"
if grep -q 'WNW_SANITIZE:STRING=\(ON\|thread\)' "$(dirname "${WINNOW:?}")/CMakeCache.txt"; then skip "a build with sanitizers"; fi
winnow=$(realpath "$WINNOW")
keep_sets=$(dirname "$winnow")/tests/keep_sets
[ -x "$keep_sets" ] || skip "no $keep_sets; build all targets"
export WINNOW_CACHE=$user_cache CMAKE_BUILD_PARALLEL_LEVEL=2

# must WHAT COMMAND...: without it nothing further can be tested.
must() {
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 || { fail "$what: $(tail -n 40 "$work/log")"; finish; }
}
# passes WHAT COMMAND...
passes() {
    local what=$1
    shift
    "$@" >"$work/out" 2>"$work/log" || fail "$what: $(tail -n 40 "$work/log")"
}
# environment NAME EXTRAS: with the wheel and what it needs, from files alone. Python compiles what is imported, and no more.
environment() {
    python3 -m venv --without-pip "$work/$1" &&
        "$tools/venv/bin/pip" --python "$work/$1/bin/python" install -q --no-compile --no-index --disable-pip-version-check --find-links "$tools/packages" "$wheel$2"
}

cd "$top" || exit 1
must 'the source package cannot be made' "$tools/venv/bin/python" -c 'import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])' "$work/source"
# Objects that the build folder has are not compiled again, unless the package lacks or changes what they are made of. What is compiled is less
# optimised, which takes less time and computes the same.
code=(app bench calibration cli eval include perturb python serve src)
reuse_objects "$work/build"
mkdir "$work/unpacked"
must 'the source package cannot be unpacked' tar -xzf "$work"/source/winnow-*.tar.gz -C "$work/unpacked" --strip-components=1
find "${code[@]}" -type f | while read -r file; do
    cmp -s "$file" "$work/unpacked/$file" || echo "/$file"
done >>"$work/changed"
take_changed
# Nor is it found out once more that llama.cpp's headers fit (cmake/upstream.cmake).
mapfile -t fits < <(sed -n 's/^\(WNW_[A-Z]*_CHECKED\):INTERNAL=/cmake.define.\1=/p' "$(dirname "$winnow")/CMakeCache.txt" | sed 'i-C')
must 'the wheel cannot be made of it' "$tools/venv/bin/pip" wheel "$work"/source/winnow-*.tar.gz -q --no-deps --no-build-isolation --disable-pip-version-check \
    -C build-dir="$work/build" -C cmake.define.CMAKE_C_COMPILER_LAUNCHER="$work/reuse" -C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER="$work/reuse" \
    -C cmake.define.CMAKE_C_FLAGS_RELEASE='-O1 -DNDEBUG' -C cmake.define.CMAKE_CXX_FLAGS_RELEASE='-O1 -DNDEBUG' "${fits[@]}" -w "$work/raw"
must 'the wheel lacks its libraries' "$tools/venv/bin/python" "$top/scripts/wheel.py" "$work"/raw/winnow-*.whl "$work/dist"
version=$(sed -n 's/^project(winnow VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
wheel=$(ls "$work"/dist/*.whl)
[[ ${wheel##*/} == "winnow-$version-py3-none-manylinux_2_28_$(uname -m).whl" ]] || fail "the wheel is called $wheel"

# No file needs more than glibc 2.28 has: by the package's own program, which also knows which symbols 2.28 lacks, and by binutils.
passes 'the wheel does not fit glibc 2.28' "$tools/venv/bin/python" "$top/scripts/wheel_symbols.py" "$wheel"
python3 -m zipfile -e "$wheel" "$work/files"
n_files=0
while read -r file; do
    n_files=$((n_files + 1))
    newer=$({ objdump -p "$file" | sed -n 's/.* GLIBC_\([0-9.]*\)$/\1/p'
        objdump -T "$file" | sed -n 's/.*\*UND\*.*[( ]GLIBC_\([0-9.]*\).*/\1/p'; } | sort -u | awk -F. '$1 > 2 || $2 > 28')
    [ -z "$newer" ] || fail "${file##*/} needs glibc $newer"
done < <(find "$work/files" -name '*.so*' -o -path '*/bin/winnow' -o -name winnow-llama-server)
[ "$n_files" -gt 15 ] || fail "only $n_files files were looked at"
# A wheel with a file that was not treated is refused.
mkdir "$work/newer"
cp "$work"/raw/winnow-*.whl "$work/newer/"
if "$tools/venv/bin/python" "$top/scripts/wheel_symbols.py" "$work"/newer/*.whl >"$work/out" 2>&1; then fail "$(tail -n 1 "$work/out")"; fi
grep -q 'libwinnow.so needs GLIBC_2\.[23]' "$work/out" || fail "wheel_symbols.py says: $(tail -n 3 "$work/out")"

must 'the wheel cannot be installed' environment empty ''
cd "$work" || exit 1 # nothing is imported from the tree
"$work/empty/bin/winnow" --version 2>&1 | grep -qwF "$version" || fail "the command of the package is $("$work/empty/bin/winnow" --version 2>&1)"
passes package.py "$work/empty/bin/python" "$top/tests/python/package.py" "$winnow" "$tiny" "$keep_sets"

# The lines of the pages. Those that ask the default model know the answer.
mkdir "$work/examples"
head -n 50 "$top/examples/document.txt" | tee "$work/examples/document.txt" >"$work/document.txt" # with the answer
# pages PYTHON BLOCKS PAGE...: the program tests/python/pages.py runs this number of blocks and calls.
pages() {
    local python=$1 blocks=$2
    shift 2
    passes "the lines of ${!#}" "$python" "$top/tests/python/pages.py" "$@"
    [ "$(tail -n 1 "$work/out")" = "$blocks" ] || fail "the lines of ${!#} are not '$blocks': $(tail -n 3 "$work/out")"
}
if [ -f "$models/smollm2-135m.gguf" ]; then
    pages "$work/empty/bin/python" '1 blocks, 0 calls' --section 'In Python, after' "$top/README.md"
    grep -q Nimbus "$work/out" || fail "the lines of README.md print: $(cat "$work/out")"
    pages "$work/empty/bin/python" '1 blocks, 0 calls' "$top/docs/use/python.md"
    grep -q Nimbus "$work/out" || fail "the lines of python.md print: $(cat "$work/out")"
fi

# With pandas and matplotlib.
must 'the extras cannot be installed' environment extras '[plot,frames]'
passes 'package.py with pandas' env WINNOW_TESTS='Package.test_evaluate Package.test_plot' \
    "$work/extras/bin/python" "$top/tests/python/package.py" "$winnow" "$tiny" "$keep_sets"
pages "$work/extras/bin/python" '1 blocks, 9 calls' --set smollm2-135m="$tiny" \
    --prelude 'import numpy; layer = head = 0; n_tokens, layers = 4, [numpy.array([[[0, 2]]])]' "$top/docs/research/python.md"
passes 'the notebook' "$work/extras/bin/python" "$top/scripts/notebook.py" "$top/examples/new_scorer.ipynb" --set MODEL="$tiny" --set RATIOS='[0.5]'
grep -qx '[0-9]* cells, 2 figures' "$work/out" || fail "the notebook prints: $(cat "$work/out")"

# With openai and llama-cpp-python, in the environment that pip has installed it into.
must 'the wheel cannot be installed' "$tools/venv/bin/pip" install -q --no-compile --no-index --no-deps --disable-pip-version-check --target "$work/site" "$wheel"
printf '#!/bin/sh\nPYTHONPATH=%q exec %q "$@"\n' "$work/site" "$user_cache/python/bin/python" >"$work/with_site"
chmod +x "$work/with_site"
with_site() { "$work/with_site" "$@"; }
if [ -x "$work/site/winnow/lib/winnow/winnow-llama-server" ] && with_site -c 'import openai' 2>"$work/log"; then
    passes serve.py with_site "$top/tests/python/serve.py" "$tiny"
else
    printf "left out: python -m winnow serve, without openai, or llama.cpp's server in the wheel\n"
fi
if [ -e "$work/site/winnow/lib/winnow/libggml-winnow.so" ] && with_site -c 'import llama_cpp' 2>"$work/log"; then
    passes attach.py with_site "$top/tests/python/attach.py" "$tiny" "$models/tiny/tiny-qwen2.gguf"
    pages "$work/with_site" '2 blocks, 0 calls' --set MODEL.gguf="$tiny" --prelude "import winnow
m = winnow.Model('$tiny', profile=None)
m.compress('The keeper signs for repairs. ' * 40, policy='knorm', ratio=0.5).save('doc.wkv')" "$top/docs/use/llama-cpp-python.md"
else
    printf 'left out: winnow.llama_cpp, without llama-cpp-python, or the backend in the wheel\n'
fi
finish
