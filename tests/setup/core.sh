# SPDX-License-Identifier: MIT
# The library without src/*/more shows the same functions as the whole one, and lacks the methods of these folders.
. "$(dirname "$0")/lib.sh"
: "${WINNOW:?set WINNOW to the path of the command}"
folder=$(dirname "$WINNOW")
core=$folder/tests/libwinnow_core.so whole=$folder/libwinnow.so
for file in "$core" "$whole"; do
    [ -f "$file" ] || skip "no $file; build all targets"
done

shown() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort; }
difference=$(diff <(shown "$core") <(shown "$whole")) || fail "the core shows other functions: $difference"
parts() { nm "$1" | grep -oE ' wnw__(scorer|aggregation|layer_budget|head_budget|selector|contents)_[a-z0-9_]+$' | sort; }
left_out=$(sed -nE 's/^MORE\(([A-Z_]+)\(([a-z0-9_]+)\)\)$/ wnw__\L\1\E_\2/p' "$top/src/policy/parts.def" | sort)
[ -n "$left_out" ] || fail 'parts.def leaves out nothing'
[ "$(comm -23 <(parts "$whole") <(parts "$core"))" = "$(comm -12 <(parts "$whole") <(echo "$left_out"))" ] ||
    fail "the core lacks $(comm -23 <(parts "$whole") <(parts "$core"))"
[ -z "$(comm -12 <(parts "$core") <(echo "$left_out"))" ] || fail "the core has $(comm -12 <(parts "$core") <(echo "$left_out"))"
finish
