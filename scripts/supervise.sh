# SPDX-License-Identifier: MIT
# Sourced by scripts: running a command whose children end with it.

supervised=

# supervise CMD...: runs a command or function of the script in a process group of its own and returns its status.
# What it has left in the background ends with it. A signal that ends the script (Ctrl-C, SIGTERM, SIGHUP) ends the whole group
# first, compilers and downloads included; the script then exits with 128 plus the signal's number. Standard input is /dev/null,
# for a group in the background may not read from the terminal.
supervise() {
    local status=0
    trap 'end_supervised 1' HUP
    trap 'end_supervised 2' INT
    trap 'end_supervised 15' TERM
    # With job control a background command becomes the leader of a process group and does not ignore SIGINT.
    set -m
    ("$@") </dev/null &
    supervised=$!
    set +m
    wait "$supervised" || status=$?
    end_group
    supervised=
    trap - HUP INT TERM
    return "$status"
}

# Asks the group to end, and forces it after 10 seconds.
end_group() {
    local tries
    kill -TERM -- "-$supervised" 2>/dev/null || return 0
    for ((tries = 0; tries < 100; tries++)); do
        kill -0 -- "-$supervised" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL -- "-$supervised" 2>/dev/null || true
}

# Ends the group and exits.
end_supervised() {
    trap '' HUP INT TERM
    if [ -n "$supervised" ]; then
        end_group
        wait "$supervised" 2>/dev/null || true
    fi
    exit $((128 + $1))
}
