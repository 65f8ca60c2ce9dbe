#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs the library into a temporary folder, builds the example of winnow.h's first comment there in every way that a
# program may want, runs it, and takes everything away again.
set -u
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(dirname "${WINNOW:?}")
model=${WINNOW_CACHE:-$HOME/.cache/winnow}/models/tiny/tiny-llama.gguf
failures=0
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}
skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}
[ -f "$build/libwinnow.so" ] || skip "no $build/libwinnow.so"
[ -f "$model" ] || skip "no $model"
command -v pkg-config >/dev/null || skip "no pkg-config"
if grep -q 'WNW_SANITIZE:STRING=\(ON\|thread\)' "$build/CMakeCache.txt"; then skip "a build with sanitizers"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$build/install_manifest.txt" "$work/manifest.before" 2>/dev/null

# Into DESTDIR, as packages are made, and moved from there to where it is used: nothing may remember the first place.
DESTDIR=$work/stage cmake --install "$build" --prefix /usr/else >"$work/log" 2>&1 || fail "install: $(tail -3 "$work/log")"
cp "$build/install_manifest.txt" "$work/manifest"
if [ -f "$work/manifest.before" ]; then cp "$work/manifest.before" "$build/install_manifest.txt"; else rm -f "$build/install_manifest.txt"; fi
prefix=$work/moved
cp -r "$work/stage/usr/else" "$prefix"
mv "$work/stage/usr/else" "$work/stage/kept" # what still looked there would not find it

# ---- What is there ----
for file in bin/winnow include/winnow{,_batch,_bridge,_calibrate,_chat,_method,_store,_study,_tools}.h share/doc/winnow/{LICENSE,NOTICE} \
    share/winnow/text/calibration.txt share/winnow/text/held-out.txt share/winnow/text/README.md share/winnow/text/kinds/{code,dialogue,records}.txt \
    share/winnow/profiles/{smollm2-135m,qwen2.5-coder-0.5b}/{srh,layers,heads,stats,compiler-b{128,512,1024},curves,shares}.json \
    share/winnow/profiles/smollm2-135m/{gate,inputgate,quality}.json share/man/man1/{winnow,winnow-run,winnow-bench-observe}.1 \
    share/bash-completion/completions/winnow share/zsh/site-functions/_winnow share/fish/vendor_completions.d/winnow.fish; do
    [ -s "$prefix/$file" ] || fail "no $file"
done
for name in RULER kvpress LongBench MInference; do # whose prompts are quoted
    grep -q "^$name.*https://github.com/" "$prefix/share/doc/winnow/NOTICE" || fail "NOTICE does not name $name"
done
lib=$(dirname "$(find "$prefix" -name libwinnow.so)")
[ "$(readelf -d "$lib/libwinnow.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')" = libwinnow.so.0 ] || fail "soname"
version=$(sed -n 's/^project(winnow VERSION \([0-9.]*\).*/\1/p' "$top/CMakeLists.txt")
"$prefix/bin/winnow" --version 2>&1 | grep -qwF "$version" || fail "the installed command does not run"
if readelf -d "$lib/libwinnow.so" "$prefix/bin/winnow" | grep -E 'R(UN)?PATH' | grep -q '\.cache/'; then
    fail "it needs a user's cache folder"
fi

# The shared library shows the functions of the headers and nothing else.
sed -n 's/^WNW_API .*\b\(wnw_[a-z0-9_]*\)(.*/\1/p' "$prefix"/include/winnow*.h | sort >"$work/declared"
nm -D --defined-only "$lib/libwinnow.so" | awk '{ print $3 }' | sort >"$work/shown"
[ "$(wc -l <"$work/declared")" -ge 80 ] || fail "only $(wc -l <"$work/declared") functions were found in the headers"
diff "$work/declared" "$work/shown" >"$work/diff" || fail "headers (<) and library (>) differ: $(cat "$work/diff")"

# ---- The example ----
sed -n '/^ \*     #include <stdio.h>/,/^ \*     }$/s/^ \*\( \{5\}\)\{0,1\}//p' "$prefix/include/winnow.h" >"$work/example.c"
grep -q 'int main' "$work/example.c" || fail "no example in winnow.h"
strict="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"
export PKG_CONFIG_PATH="$lib/pkgconfig"

# runs NAME PROGRAM: it reads the prompt, keeps half, and prints what it always prints.
runs() {
    local n
    "$2" "$model" "$(printf 'the dome %.0s' {1..40})" >"$work/out" 2>"$work/err" || fail "$1: $(cat "$work/err")"
    n=$(sed -n 's/^\([0-9]*\) tokens read, .*/\1/p' "$work/err")
    grep -qE '^[0-9]+ tokens read, [0-9]+ kept per head$' "$work/err" || fail "$1 says: $(cat "$work/err")"
    [ "${n:-0}" -ge 40 ] || fail "$1: ${n:-no} tokens"
    [ -f "$work/first" ] || cp "$work/out" "$work/first"
    cmp -s "$work/first" "$work/out" || fail "$1 answers otherwise"
}

# built NAME COMMAND...
built() {
    local name=$1
    shift
    "$@" >"$work/log" 2>&1 || fail "$name: $(tail -n 5 "$work/log")"
}

built "C, shared" bash -c "cc -std=c11 $strict -o '$work/shared' '$work/example.c' \$(pkg-config --cflags --libs winnow) \
    -Wl,-rpath,'$lib'"
runs "C, shared" "$work/shared"
built "C, static" bash -c "cc -std=c11 $strict -o '$work/static' '$work/example.c' \$(pkg-config --cflags winnow) \
    -Wl,-Bstatic \$(pkg-config --libs winnow) -Wl,-Bdynamic \$(pkg-config --libs --static winnow | sed 's/-lwinnow//')"
runs "C, static" "$work/static"
if readelf -d "$work/static" | grep -q 'NEEDED.*libwinnow'; then fail "the static program needs libwinnow.so"; fi
cp "$work/example.c" "$work/example.cpp"
built "C++, shared" bash -c "c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -o '$work/cxx' '$work/example.cpp' \
    \$(pkg-config --cflags --libs winnow) -Wl,-rpath,'$lib'"
runs "C++, shared" "$work/cxx"

minor=${version%.*}
later=${minor%.*}.$((${minor#*.} + 1))
cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(example LANGUAGES C CXX)
find_package(winnow $minor REQUIRED)
add_executable(with_shared example.c)
target_link_libraries(with_shared PRIVATE winnow::winnow)
add_executable(with_static example.c)
target_link_libraries(with_static PRIVATE winnow::static)
CMAKE
built "CMake configures" cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix"
built "CMake builds" cmake --build "$work/build"
runs "CMake, shared" "$work/build/with_shared"
runs "CMake, static" "$work/build/with_static"
sed "s/winnow $minor /winnow $later /" "$work/CMakeLists.txt" >"$work/other" && mkdir "$work/newer" && mv "$work/other" "$work/newer/CMakeLists.txt"
if cmake -S "$work/newer" -B "$work/newer/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then
    fail "a program that wants $later gets $minor"
fi

# ---- Folders with blanks, as `make` passes them on ----
odd="$work/a b"
mkdir "$odd"
printf '#!/bin/sh\nprintf "%%s|" "DESTDIR=${DESTDIR-}" "PREFIX_PATH=${CMAKE_PREFIX_PATH-}" "$@"\necho\n' >"$odd/cmake"
chmod +x "$odd/cmake"
make_says() { # NAME LINE ARGS...: whether cmake is run so
    local name=$1 line=$2
    shift 2
    (cd "$top" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u BUILD -u CMAKE_FLAGS -u CMAKE_PREFIX_PATH -u DESTDIR -u PREFIX -u SERVER PATH="$odd:$PATH" make -o all "$@") >"$work/out" 2>"$work/err" || fail "$name: $(tail -n 3 "$work/err")"
    grep -qFx -- "$line" "$work/out" || fail "$name: cmake is not run as '$line': $(cat "$work/out")"
}
make_says 'a prefix and a DESTDIR with blanks' "DESTDIR=$odd/stage|PREFIX_PATH=|--install|$odd/build|--prefix|/opt/c d|" \
    install BUILD="$odd/build" DESTDIR="$odd/x/../stage" PREFIX="/opt/c d"
make_says 'no DESTDIR, and a prefix from here' "DESTDIR=|PREFIX_PATH=|--install|build|--prefix|$top/c d|" install BUILD=build PREFIX="c d"
make_says 'a llama.cpp in a folder with blanks' \
    "DESTDIR=|PREFIX_PATH=$odd|-S|.|-B|$odd/build-bridge|-DWNW_TESTS=OFF|-DWNW_BRIDGE=ON|-DWNW_LLAMA_SOURCE_DIR=$odd/src|" bridge BUILD="$odd/build" LLAMA="$odd"

# ---- Away again ----
if DESTDIR=$work/stage "$top/scripts/uninstall.sh" "$work/manifest" 2>"$work/err"; then fail "an uninstall finds nothing and says nothing"; fi
{ [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q "below $work/stage; give the DESTDIR" "$work/err"; } || fail "nothing to uninstall: $(cat "$work/err")"
[ -s "$work/manifest" ] || fail "the list of an install that was not found is lost"
mv "$work/stage/kept" "$work/stage/usr/else"
touch "$work/stage/usr/else/lib/other.txt"
DESTDIR=$work/stage "$top/scripts/uninstall.sh" "$work/manifest" || fail "uninstall"
left=$(find "$work/stage" ! -type d)
[ "$left" = "$work/stage/usr/else/lib/other.txt" ] || fail "left behind: $left"
left=$(find "$work/stage" -type d -name winnow)
[ -z "$left" ] || fail "folders left behind: $left"
if "$top/scripts/uninstall.sh" "$work/manifest" 2>"$work/err"; then fail "a second uninstall does something"; fi

[ "$failures" -eq 0 ] || printf '%d checks failed\n' "$failures" >&2
exit $((failures > 0))
