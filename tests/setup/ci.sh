# SPDX-License-Identifier: MIT
# Continuous integration starts from an empty cache folder, names the user's for the compiled ggml alone, and leaves
# nothing behind, interrupted or not.
. "$(dirname "$0")/lib.sh"
mkdir -p "$work/project/.ci" "$work/bin" "$work/tmp"
cp "$top/.ci/run" "$work/project/.ci/"
cp -R "$top/scripts" "$work/project/"
export TMPDIR=$work/tmp WINNOW_CACHE=$work/cache
PATH=$work/bin:$PATH

# make stands for all stages: it notes where it is to work and fails, or hangs.
cat >"$work/bin/make" <<SH
#!/bin/bash
printf '%s\n' "\$WINNOW_CACHE" "\$WINNOW_LLAMA_FROM" "\$*" >"$work/seen.new"
ls -A --ignore=setup.lock "\$WINNOW_CACHE" >"$work/listing" 2>/dev/null
mv "$work/seen.new" "$work/seen"
[ ! -e "$work/hang" ] || { echo \$\$ >"$work/pid"; exec sleep 300; }
exit 3
SH
# A browser is there, so that none is installed.
printf '#!/bin/sh\n' | tee "$work/bin/chromium" >"$work/bin/chromedriver"
chmod +x "$work"/bin/*

"$work/project/.ci/run" >"$work/out" 2>"$work/err" && fail 'a failing test is not noticed'
[ -f "$work/seen" ] || fail "make was not called: $(cat "$work/err")"
mapfile -t seen <"$work/seen"
[[ ${seen[0]} == "$work"/tmp/*/cache ]] || fail "the cache folder is ${seen[0]}"
[ ! -s "$work/listing" ] || fail "the cache folder is not empty: $(cat "$work/listing")"
[ "${seen[1]}" = "$cache" ] || fail "the compiled ggml comes from ${seen[1]}"
[[ ${seen[2]} == test*BUILD="$work"/tmp/* ]] || fail "make is called with ${seen[2]}"
grep -q '^setup: browser: ' "$work/err" || fail "the browser was not set up: $(cat "$work/err")"
[ -z "$(ls -A "$work/tmp")" ] || fail "left behind: $(ls -A "$work/tmp")"

touch "$work/hang"
gone() { [ ! -e "/proc/$1" ]; }
for signal in INT TERM; do
    rm -f "$work/pid"
    set -m
    "$work/project/.ci/run" >"$work/out" 2>"$work/err" &
    pid=$!
    set +m
    check "$signal: make was not called" until_true test -s "$work/pid"
    kill -s $signal -- "-$pid"
    check "$signal: goes on" until_true gone "$pid"
    wait "$pid" 2>/dev/null
    check "$signal: make goes on" until_true gone "$(cat "$work/pid")"
    [ -z "$(ls -A "$work/tmp")" ] || fail "$signal: left behind: $(ls -A "$work/tmp")"
done

# What a run leaves that was killed outright goes away with the next; the folder of one still running stays.
rm "$work/hang"
mkdir "$work/tmp/winnow-ci-dead" "$work/tmp/winnow-ci-alive"
touch "$work/tmp/winnow-ci-dead/lock"
exec 6>"$work/tmp/winnow-ci-alive/lock"
flock 6
"$work/project/.ci/run" >"$work/out" 2>"$work/err" 6>&-
[ "$(ls -A "$work/tmp")" = winnow-ci-alive ] || fail "of the dead and the living is left: $(ls -A "$work/tmp")"
finish
