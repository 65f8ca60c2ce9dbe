# SPDX-License-Identifier: MIT
# The step `server`: llama.cpp's server is compiled once, again when something that it is made of has changed, copied from
# another cache folder where that has it, and never left half made.
. "$(dirname "$0")/lib.sh"
mkdir -p "$work/serve" "$work/fake"
cp -R "$top/serve/upstream" "$work/serve/"
version=$(version_of llama_version)
made=$cache/llama-server

# A compiled libllama, so far as set-up looks at it.
site=$cache/python/lib/python3.11/site-packages
mkdir -p "$site/llama_cpp_python-$version.dist-info" "$site/lib/cmake/ggml" "$site/lib/cmake/llama" "$site/include/llama-common/jinja"
touch "$site/llama_cpp_python-$version.dist-info/RECORD" "$site/lib/cmake/llama/llama-config.cmake" "$site/lib/libllama.so" \
    "$site/lib/libllama-common.so" "$site/include/llama-common/jinja/runtime.h"

# pip downloads a source package; cmake leaves an archive, unless $work/broken is there.
cat >"$work/pip-does" <<SH
while [ "\$1" != -d ]; do shift; done
name=llama_cpp_python-$version
mkdir -p "$work/tar/\$name/vendor/llama.cpp/src" && touch "$work/tar/\$name/vendor/llama.cpp/src/llama-ext.h"
for part in common tools/server tools/mtmd tools/ui vendor; do mkdir -p "$work/tar/\$name/vendor/llama.cpp/\$part"; done
echo '// header' >"$work/tar/\$name/vendor/llama.cpp/tools/server/server-http.h"
echo '// header' >"$work/tar/\$name/vendor/llama.cpp/common/json.h"
tar -czf "\$2/\$name.tar.gz" -C "$work/tar" "\$name"
SH
cat >"$work/fake/cmake" <<SH
#!/bin/bash
printf '%s\n' "\$*" >>"$work/cmake"
[ ! -e "$work/broken" ] || { echo 'no httplib::Server' >&2; exit 1; }
if [ "\$1" = --build ]; then
    echo archive >"\$2/libllama-server.a"
else
    mkdir -p "\$4" && [ -d "\${5#*=}/tools/server" ] && [ -f "\${5#*=}/src/llama-ext.h" ]
fi
SH
chmod +x "$work/fake/cmake"
export PATH=$work/fake:$PATH
builds() { grep -c '^--build' "$work/cmake" 2>/dev/null; }
# built NAME N: so often until now, and the result is whole.
built() {
    [ "$(builds)" -eq "$2" ] || fail "$1: built $(builds) times, not $2"
    check "$1: no archive" test -f "$made/libllama-server.a"
    check "$1: no headers" test -f "$made/server-http.h" -a -f "$made/json.h"
    check "$1: something is left over" test ! -e "$made.new"
}

"$work/scripts/setup.sh" server >"$work/out" 2>"$work/err" </dev/null && fail 'went on without libllama'
says 'without libllama' 'libllama is not there yet'
echo 'set(GGML_NATIVE "OFF")' >"$site/lib/cmake/ggml/ggml-config.cmake"
touch "$work/broken"
"$work/scripts/setup.sh" server >"$work/out" 2>"$work/err" </dev/null && fail 'a build that failed was accepted'
says 'a build that failed' 'no httplib::Server'
check 'a build that failed was kept' test ! -e "$made/made"
rm "$work/broken" "$work/cmake"

setup 'first' server
built 'first' 1
says 'first' 'built in'
grep -q -e "-DCMAKE_PREFIX_PATH=$site" "$work/cmake" || fail 'not against the private copy'
setup 'again' server
built 'again' 1
says 'again' 'is there'
echo cut >"$made/libllama-server.a"
setup 'damaged' server
built 'damaged' 2
says 'damaged' 'libllama-server.a is damaged'
# As an earlier version left it.
rm "$made/json.h"
. "$top/scripts/made.sh"
record "$made/made" "$(head -n 1 "$made/made" | cut -d' ' -f2)" "$made/libllama-server.a" "$made/server-http.h"
setup 'with one header' server
built 'with one header' 3
says 'with one header' 'json.h is missing'
echo '# changed' >>"$work/serve/upstream/CMakeLists.txt"
setup 'our part has changed' server
built 'our part has changed' 4
says 'our part has changed' 'what it is made from has changed'

# Another cache folder has it.
mv "$made" "$work/other"
mkdir "$work/others" && mv "$work/other" "$work/others/llama-server"
export WINNOW_LLAMA_FROM=$work/others
setup 'copied' server
built 'copied' 4
says 'copied' 'taking over'
echo cut >"$work/others/llama-server/libllama-server.a"
rm -r "$made"
setup 'the other one is damaged' server
built 'the other one is damaged' 5
finish
