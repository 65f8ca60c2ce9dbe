# SPDX-License-Identifier: MIT
# What .ci/run shows clang (scripts/check_clang.py): every file of a build folder, but for those that another one has compiled.
. "$(dirname "$0")/lib.sh"
command -v clang >/dev/null || skip 'no clang; scripts/setup.sh clang installs it'
mkdir -p "$work/tree/scripts"
cp "$top/scripts/check_clang.py" "$work/tree/scripts/"
cd "$work/tree" || exit 1
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(two LANGUAGES C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_compile_options(-Wall -Werror)
add_library(good STATIC good.c ${CMAKE_BINARY_DIR}/written.c ${PROJECT_SOURCE_DIR}/../foreign.c)
add_library(odd STATIC odd.c)
file(WRITE ${CMAKE_BINARY_DIR}/written.c "int written(void);\nint written(void) { return 3; }\n")
CMAKE
echo 'int good(void); int good(void) { return 1; }' >good.c
echo 'int odd(int x); int odd(int x) { return x; }' >odd.c
echo 'int foreign(void) { int unused; return 2; }' >../foreign.c

read_by_clang() { scripts/check_clang.py "$@" >"$work/out" 2>&1; }
check 'a folder cannot be configured' env CC=clang cmake -S . -B "$work/clang" >"$work/log"
read_by_clang "$work/clang" || fail "no warning: $(cat "$work/out")"
grep -q '3 files read, 0 were compiled' "$work/out" || fail "not all three of our files: $(cat "$work/out")"
sed -i 's/return x;/return x = x;/' odd.c
read_by_clang "$work/clang" && fail "a warning is passed over: $(cat "$work/out")"
grep -q 'odd.c:.*-Wself-assign' "$work/out" || fail "the warning is not shown: $(cat "$work/out")"

# What was compiled is not read again, under its name in the other folder where that wrote it.
check 'another folder cannot be configured' env CC=clang cmake -S . -B "$work/compiled" -DCMAKE_C_FLAGS=-w >"$work/log"
check 'it cannot be compiled' cmake --build "$work/compiled" --target good >"$work/log"
read_by_clang "$work/clang" "$work/compiled" && fail "a file that was not compiled is passed over: $(cat "$work/out")"
grep -q '1 files read' "$work/out" || fail "compiled ones are read again: $(cat "$work/out")"
[ -z "$(find "$work/clang" -name '*.o')" ] || fail 'objects were made'
finish
