# SPDX-License-Identifier: MIT
# A newcomer's walk: a scorer, then an observation that it asks for, are added to a copy of this tree by the patches in
# tests/newcomer, touch the files that CONTRIBUTING names and no others, build without a warning, and work.
# The patches are also examples; where they no longer apply, they and CONTRIBUTING are brought up to date.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/lib_reuse.sh"

: "${WINNOW:?set WINNOW to the path of the command}"
cached=$(dirname "$WINNOW")/CMakeCache.txt
model=$user_cache/models/tiny/tiny-llama.gguf
[ -f "$cached" ] || skip 'the command is in no build folder, which says how to configure another'
grep -q '^WNW_SANITIZE:[A-Z]*=OFF' "$cached" || skip 'builds with sanitizers test the patched tree no better'
[ -f "$model" ] || { echo "missing: $model (scripts/make_tiny_models.py makes it)" >&2; exit 1; }

code=(app bench calibration cli eval examples include perturb serve src tests)
mkdir "$work/tree"
for entry in CMakeLists.txt CONTRIBUTING.md cmake docs scripts share "${code[@]}"; do
    cp -R "$top/$entry" "$work/tree/"
done
cd "$work/tree" || exit 1
export WINNOW_CACHE=$user_cache # ggml, and the tiny models, which are only read
export GIT_CEILING_DIRECTORIES=$work # the copy is no part of a repository around it

# An own build folder, as the command's was configured, but without optimisation. A file is compiled if it, or what it includes, has
# changed; the object of any other is the one that the command was linked from (lib_reuse.sh).
of_cache() { sed -n "s/^$1:[A-Z]*=//p" "$cached"; }
options=(-G "$(of_cache CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE=None -DWNW_WERROR=ON -DCMAKE_C_COMPILER_LAUNCHER="$work/reuse" -DCMAKE_CXX_COMPILER_LAUNCHER="$work/reuse")
for name in CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_EXE_LINKER_FLAGS CMAKE_PREFIX_PATH ggml_DIR llama_DIR WNW_KERNELS WNW_JINJA \
    WNW_JINJA_INCLUDE_DIR WNW_BRIDGE WNW_LLAMA_SOURCE_DIR WNW_JINJA_CHECKED WNW_BRIDGE_CHECKED; do
    value=$(of_cache $name)
    [ -z "$value" ] || options+=("-D$name=$value")
done
for name in CMAKE_C_FLAGS CMAKE_CXX_FLAGS; do
    options+=("-D$name=$(of_cache $name) -O0 -DNDEBUG")
done

reuse_objects "$work/build"

# listed PATCH: the files that CONTRIBUTING names for it, with the names that the patch gives its own.
listed() {
    sed -n "/^|.*tests\/newcomer\/$1/s/^|[^|]*|//p" CONTRIBUTING.md | grep -o '`[^`]*/[^`]*`' | tr -d '`' |
        sed "s/NAME/$2/; s/PART/$3/" | sort
}
touched() { sed -n 's,^+++ b/,,p' "tests/newcomer/$1" | sort; }

# Names of the flags that a patch adds to public headers and of the structs that get members, a line each; nothing where it changes a header in another way.
named_in_headers() {
    awk '/^\+\+\+ / { header = $2 ~ /^b\/include\// }
        /^diff / { header = 0 }
        header && /^@@/ { kind = $5; if (kind == "struct") names[$6]; else if (kind != "enum") other = 1 }
        header && /^-/ { other = 1 }
        header && kind == "enum" && /^\+ *[A-Z_]+ = / { names[$2] }
        END { if (!other) for (name in names) print name }' "tests/newcomer/$1"
}

# changed_by PATCH: files whose change has others compiled, as /PATH/FROM/ROOT. Most files know the public headers. A new flag or member changes those
# alone that name the flag or the struct, or include another file that does.
changed_by() {
    local names headers
    names=$(named_in_headers "$1")
    headers=$(touched "$1" | grep '^include/')
    touched "$1" | grep -v '^include/' | sed 's,^,/,'
    if [ -n "$names" ]; then
        grep -rlwF -- "$names" "${code[@]}" | grep -vxF -- "$headers" | sed 's,^,/,'
    elif [ -n "$headers" ]; then
        sed 's,^,/,' <<<"$headers"
    fi
}

# Objects that were taken and depend on what a later patch changes are compiled after all.
forget_changed() {
    local name
    take_changed
    while read -r name; do
        [ -e "$work/known/$name" ] || rm -f "$work/build/$name"
    done <"$work/reused"
}

# walk PATCH NAME PART TARGETS...: applies it, builds the command and the tests of what is new, and runs them.
walk() {
    local patch=$1 name=$2 part=$3 target
    shift 3
    [ "$(listed "$patch" "$name" "$part")" = "$(touched "$patch")" ] ||
        fail "$patch and its row in CONTRIBUTING.md name different files: $(diff <(listed "$patch" "$name" "$part") <(touched "$patch"))"
    changed_by "$patch" >>"$work/changed"
    forget_changed
    git apply -C1 "tests/newcomer/$patch" 2>"$work/err" || {
        fail "tests/newcomer/$patch no longer applies: bring it and CONTRIBUTING.md up to date. $(cat "$work/err")"
        finish
    }
    { cmake -S . -B "$work/build" "${options[@]}" && nice cmake --build "$work/build" -j2 --target winnow "$@"; } >"$work/out" 2>&1 || {
        fail "$patch does not build: $(grep -E -A5 'error|Error' "$work/out" | head -20)"
        finish
    }
    for target in "$@"; do
        "$work/build/tests/$target" >"$work/out" 2>&1 || fail "$patch: $target: $(head -8 "$work/out")"
    done
    "$work/build/winnow" methods | grep -q "^  $part " || fail "$patch: winnow methods does not list $part"
    "$work/build/winnow" methods --markdown --costs docs/reference/methods-cost.csv | cmp -s - docs/reference/methods.md ||
        fail "$patch: docs/reference/methods.md is not what the command prints"
    ./scripts/check_layers.sh 2>"$work/err" || fail "$patch: $(cat "$work/err")"
}

# plan FILE RECIPE: what a budget of 16 of 96 entries keeps.
seq 5 100 >"$work/tokens"
plan() {
    "$work/build/winnow" plan -m "$model" --tokens "$work/tokens" --kv-type f32 --policy "$2" --budget 16 -o "$1" 2>"$work/err" ||
        fail "$2: $(cat "$work/err")"
}
# The sorted numbers of entries that the heads of each layer keep, one line per layer.
counts() { python3 -c 'import json, sys
for layer in json.load(open(sys.argv[1]))["layers"]:
    print(*[len(head) for head in layer["heads"]])' "$1"; }

walk add-scorer.patch value_norm value_norm unit_value_norm
plan "$work/plain" value_norm
counts "$work/plain" | grep -qvx '16 16' && fail "not 16 entries in every head: $(counts "$work/plain")"
plan "$work/shared" value_norm+adakv
counts "$work/shared" | awk '$1 + $2 != 32 { bad = 1 } $1 != $2 { other = 1 } END { exit bad || !other }' ||
    fail "adakv shares nothing out by the new scores: $(counts "$work/shared")"

# With the observation all scores of a head have one factor more: inside a head nothing changes, between heads it does.
walk add-observation.patch query_length value_norm unit_value_norm model_query_length
plan "$work/plain2" value_norm
cmp -s "$work/plain" "$work/plain2" || fail 'one factor for all entries of a head changed their order'
plan "$work/shared2" value_norm+adakv
[ "$(counts "$work/shared")" != "$(counts "$work/shared2")" ] || fail 'the lengths of queries did not reach the scorer'
finish
