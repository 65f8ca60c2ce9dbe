# SPDX-License-Identifier: MIT
# The compiled ggml and libllama of another cache folder: copied when they suit the machine, compiled when not.
. "$(dirname "$0")/lib.sh"
for prefix in /usr/local /usr; do
    for config in "$prefix"/lib*/cmake/ggml "$prefix"/lib/*/cmake/ggml; do
        [ ! -d "$config" ] || skip "this machine has its own ggml in $config, so that no private copy is made"
    done
done
unset CMAKE_PREFIX_PATH
export site=$work/other/python/lib/python3.11/site-packages

# The files of a finished build, with ggml's CMake variable GGML_NATIVE; $1 distinguishes copies.
build_of() {
    pip_installs llama_cpp_python "$(version_of llama_version)"
    cat <<SH
mkdir -p "\$site"/lib/cmake/{ggml,llama} "\$site/include/llama-common/jinja" "\$site/llama_cpp"
echo 'set(GGML_NATIVE "$2")' >"\$site/lib/cmake/ggml/ggml-config.cmake"
touch "\$site/lib/cmake/llama/llama-config.cmake" "\$site/include/llama.h" "\$site/llama_cpp/__init__.py"
touch "\$site/include/llama-common/jinja/runtime.h" "\$site/lib/libllama-common.so"
echo '$1' >"\$site/lib/libllama.so.0"
ln -sf libllama.so.0 "\$site/lib/libllama.so"
SH
}
built_as() { [ "$(cat "$cache/python/lib/python3.11/site-packages/lib/libllama.so")" = "$1" ] || fail "$2"; }

# expect NAME CALLS: from an empty cache folder.
expect() {
    rm -rf "$cache" "$work/pip"
    fake_cache "$cache"
    setup "$1" llama
    [ "$(pip_calls)" -eq "$2" ] || fail "$1: pip was called $(pip_calls) times, expected $2"
}

build_of compiled OFF >"$work/pip-does"
export WINNOW_LLAMA_FROM=$work/other
expect 'no other folder' 1
built_as compiled 'no other folder'

fake_cache "$work/other"
build_of taken OFF | bash
before=$(cd "$work/other" && find . -type f -exec sha256sum {} + | sort)
expect 'one that suits' 0
says 'one that suits' "taking over the compiled copy of $work/other"
built_as taken 'one that suits'
[ -L "$cache/python/lib/python3.11/site-packages/lib/libllama.so" ] || fail 'a link was not copied as a link'
[ "$(cd "$work/other" && find . -type f -exec sha256sum {} + | sort)" = "$before" ] || fail 'the other folder was changed'
setup 'second time' llama
grep -q 'taking over' "$work/err" && fail 'second time: copied again'
# Packages that pip installs with this one are not in that folder, and Python could not import it.
for name in gguf jinja2 markupsafe diskcache typing_extensions; do
    pip_installs "$name" "$(sed -n "s/.*[ (]$name==\([0-9.]*\).*/\1/p" "$work/scripts/setup.sh")"
done >"$work/pip-does"
pip_installs numpy "$(version_of numpy_version)" >>"$work/pip-does"
setup 'what the copy imports' python
grep -q '^install .*jinja2==.*diskcache==' "$work/pip" || fail "what the copy imports was not installed: $(cat "$work/pip")"
setup 'what the copy imports, again' python
[ "$(pip_calls)" -eq 1 ] || fail "what the copy imports: pip was called $(pip_calls) times"
build_of compiled OFF >"$work/pip-does"

build_of native ON | bash
expect 'one for another CPU' 1
says 'one for another CPU' 'nothing to take over.*one kind of CPU'
built_as compiled 'one for another CPU'

build_of taken OFF | bash
rm "$site"/llama_cpp_python-*.dist-info/RECORD
expect 'one that was interrupted' 1
says 'one that was interrupted' 'not installed'
build_of taken OFF | bash
rm "$site/lib/libllama.so"
expect 'one with a file missing' 1
says 'one with a file missing' 'files are missing'

build_of taken OFF | bash
rm "$site/include/llama-common/jinja/runtime.h"
expect 'one without the template engine' 1
says 'one without the template engine' 'no Jinja engine'

# The folder itself is not another one.
export WINNOW_LLAMA_FROM=$cache
expect 'itself' 1
built_as compiled 'itself'
finish
