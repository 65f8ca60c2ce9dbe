# SPDX-License-Identifier: MIT
# The step `peers`: a llama.cpp for this CPU is built once, again when one of its sources has changed,
# and never left half made.
. "$(dirname "$0")/lib.sh"
mkdir -p "$work/bench" "$work/app" "$work/fake"
cp -R "$top/bench/llama" "$work/bench/"
cp "$top"/app/process.[ch] "$work/app/"
version=$(version_of llama_version)
made=$cache/peers/llama

# pip downloads a source package; cmake builds a program that answers as $work/answer says.
cat >"$work/pip-does" <<SH
while [ "\$1" != -d ]; do shift; done
name=llama_cpp_python-$version
mkdir -p "$work/tar/\$name/vendor/llama.cpp" && tar -czf "\$2/\$name.tar.gz" -C "$work/tar" "\$name"
SH
cat >"$work/fake/cmake" <<SH
#!/bin/bash
printf '%s\n' "\$*" >>"$work/cmake"
if [ "\$1" = --build ]; then
    printf '#!/bin/sh\nread request\ncat "$work/answer"\n' >"\$2/winnow-peer" && chmod +x "\$2/winnow-peer"
else
    mkdir -p "\$4" && [ -d "\${5#*=}" ]
fi
SH
chmod +x "$work/fake/cmake"
export PATH=$work/fake:$PATH
builds() { grep -c '^--build' "$work/cmake" 2>/dev/null; }
# built NAME N: so often until now, and the result is whole.
built() {
    [ "$(builds)" -eq "$2" ] || fail "$1: built $(builds) times, not $2"
    check "$1: no program" test -x "$made/winnow-peer"
    check "$1: something is left over" test ! -e "$made.new"
}

echo 'ok 1.0 FLAG' >"$work/answer"
setup 'first' peers
built 'first' 1
says 'first' 'built in'
grep -q 'GGML_NATIVE=ON' "$work/cmake" || fail 'not for this CPU'
! cc -mno-amx-tile -x c -c -o /dev/null /dev/null 2>/dev/null || grep -q -e '-mno-amx-tile' "$work/cmake" || fail 'with AMX'
setup 'again' peers
built 'again' 1
says 'again' 'is there'

echo 'something else' >"$made/cpu"
setup 'of another CPU' peers
built 'of another CPU' 2
says 'of another CPU' 'cpu is damaged'
echo '/* changed */' >>"$work/bench/llama/serve.c"
setup 'our part has changed' peers
built 'our part has changed' 3
says 'our part has changed' 'what it is made from has changed'

# A program that the machine does not let run is said so, now and later, and not kept.
: >"$work/answer"
"$work/scripts/setup.sh" peers >"$work/out" 2>"$work/err" </dev/null && fail 'a program that does not run was accepted'
says 'a program that does not run' 'building again: it does not run here'
says 'a program that does not run' 'does not run on this machine'
check 'a program that does not run was kept' test ! -e "$made/winnow-peer"

echo 'ok 1.0 FLAG' >"$work/answer"
printf 'exit 1\n' >"$work/pip-does"
"$work/scripts/setup.sh" peers >"$work/out" 2>"$work/err" </dev/null && fail 'nothing to build from was accepted'
says 'nothing to build from' 'the build failed; the whole log is'
check 'nothing to build from: something was made' test ! -e "$made/winnow-peer"
finish
