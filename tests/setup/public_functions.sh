#!/bin/bash
# SPDX-License-Identifier: MIT
# Every public function is called by a program, an example or the Python package: what tests alone call is no interface.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top" || exit 1

# The names of the input that nothing there calls.
uncalled() {
    sort -u >"$work/names"
    grep -rhoE --exclude=_declarations.py '\bwnw_[a-z0-9_]+\b' app bench calibration cli eval examples perturb python serve |
        sort -u | comm -13 - "$work/names"
}

names=$(sed -n 's/^    "\(wnw_[a-z0-9_]*\)": (.*/\1/p' python/winnow/_declarations.py)
[ "$(wc -w <<<"$names")" -gt 100 ] || fail "these are no functions: $names"
left=$(uncalled <<<"$names")
[ -z "$left" ] || fail "only tests call these functions: $left"
[ "$(printf '%s\n' "$names" wnw_session_nobody | uncalled)" = wnw_session_nobody ] || fail 'an uncalled function is not noticed'
exit $((failures > 0))
