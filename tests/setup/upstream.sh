# SPDX-License-Identifier: MIT
# What cmake/upstream.cmake says of patched copies of llama.cpp's files: each that does not fit is named in one sentence.
. "$(dirname "$0")/lib.sh"
site=$(compgen -G "$user_cache/python/lib/python3*/site-packages" | head -n 1) || true
headers=$site/include/llama-common
[ -f "$headers/jinja/runtime.h" ] || skip "there are no headers of llama.cpp's Jinja engine in $user_cache"

# asked CALL: what a function of upstream.cmake sets `answer` to.
asked() {
    printf 'cmake_minimum_required(VERSION 3.22)\ninclude(%s/cmake/upstream.cmake)\n%s\nmessage("${answer}")\n' "$top" "$1" >"$work/ask.cmake"
    cmake -P "$work/ask.cmake" 2>&1
}

# answers NAME PATTERN SAID: nothing was said where the pattern is empty, else one line with it.
answers() {
    if [ -z "$2" ]; then
        [ -z "$3" ] || fail "$1: $3"
    else
        [[ "$3" =~ $2 ]] && [ "$(wc -l <<<"$3")" -eq 1 ] || fail "$1: not one line with /$2/: $3"
    fi
}

# ---- Jinja: patched NAME PATTERN EXPRESSION, a sed expression on runtime.h ----
patched() {
    rm -rf "$work/headers"
    mkdir "$work/headers"
    cp -R "$headers/jinja" "$work/headers/"
    [ -z "$3" ] || sed -i "$3" "$work/headers/jinja/runtime.h"
    answers "$1" "$2" "$(asked "wnw_jinja_misfit(answer ${CXX:-c++} $work/headers $top $site/include)")"
}
patched 'as it is' '' ''
patched 'a field with another name' 'do not compile with its headers \(error: .*loopvar' 's/\bloopvar\b/loop_variable/g'
patched 'a function that is no longer const' 'do not compile with its headers' 's/execute_impl(context \&\( ctx\)*) const/execute_impl(context \&\1)/'
patched 'a node that is not known' 'nodes that are not known: do_statement, walrus_expression' \
    '$ a struct do_statement : public statement {};\nstruct walrus_expression : public expression {};'

# ---- ggml's private header ----
private=$user_cache/llama-source/ggml/src/ggml-backend-impl.h
if [ -f "$private" ]; then
    # bridge NAME PATTERN EXPRESSION, a sed expression on the header
    bridge() {
        mkdir -p "$work/private"
        sed "$3" "$private" >"$work/private/ggml-backend-impl.h"
        answers "$1" "$2" "$(asked "wnw_bridge_misfit(answer ${CC:-cc} $work/private $top $site/include)")"
    }
    bridge 'ggml as it is' '' ''
    bridge 'a function that is gone' 'does not compile with its headers \(error: .*graph_optimize' '/(\*graph_optimize)/d'
    bridge 'a function with another parameter' 'does not compile' 's/(\*graph_compute)\( *\)(ggml_backend_t backend,/(*graph_compute)(int order, ggml_backend_t backend,/'
fi

# ---- Builds without the backend ----
# What takes its place has every public function of it.
${CC:-cc} -std=c11 -Wall -Werror -I"$top/src" -I"$top/include" -c -o "$work/absent.o" "$top/src/bridge/bridge_absent.c" || fail 'bridge_absent.c does not compile'
nm -g --defined-only "$work/absent.o" | awk '{ print $3 }' >"$work/absent"
for name in $(grep -oE '\bwnw_bridge_[a-z_]+\(' "$top/include/winnow_bridge.h" | tr -d '(' | sort -u); do
    grep -qx "$name" "$work/absent" || grep -q "^int $name(" "$top"/src/llama/*.c || fail "src/bridge/bridge_absent.c has no $name"
done

# ---- libllama's form of a sequence ----
sed 's/\(LLAMA_STATE_SEQ_VERSION\) .*/\1 4/' "$site/include/llama.h" >"$work/llama.h"
[ "$(asked "wnw_sequence_version(answer $site/include/llama.h)")" = 3 ] || fail 'the version of sequences'
[ "$(asked "wnw_sequence_version(answer $work/llama.h)")" = 4 ] || fail 'a newer version of sequences'
sed -i 's/LLAMA_STATE_SEQ_VERSION/LLAMA_SEQUENCE/' "$work/llama.h"
[ "$(asked "wnw_sequence_version(answer $work/llama.h)")" = 0 ] || fail 'no version of sequences'

# ---- Names that the server calls ----
listing='                 U _Z4postv\n                 U _Z3getv\n0000000000000000 T _Z5startv\n'
[ "$(asked "wnw_names_missing(answer \"$listing\" U _Z4postv _Z3getv)")" = '' ] || fail 'names that are there'
[ "$(asked "wnw_names_missing(answer \"$listing\" U _Z4postv _Z5startv _Z3ge)")" = '_Z5startv;_Z3ge' ] || fail 'names that are not called'
[ "$(asked "wnw_names_missing(answer \"$listing\" \"\" _Z5startv)")" = '' ] || fail 'a name that is defined'

# ---- Numbers of operations ----
# The version gate compares those that the compiler takes from ggml's header with names.
for op in $(grep -rhoE '\bGGML_(OP|GLU_OP)_[A-Z_0-9]+' "$top/src" --include='*.[ch]' | sort -u); do
    case $op in GGML_OP_COUNT | GGML_OP_) continue ;; esac
    grep -q "\b$op\b" "$top/src/bridge/cells/contacts.c" || fail "src/bridge/cells/contacts.c does not check $op"
done

# ---- The variable of set-up ----
for version in 0.3.34 9.9.9; do
    WINNOW_LLAMA_VERSION=$version bash -c 'eval "$(grep ^llama_version= "$1")"; echo "$llama_version"' - "$top/scripts/setup.sh" |
        grep -qx "$version" || fail "WINNOW_LLAMA_VERSION=$version"
done
finish
