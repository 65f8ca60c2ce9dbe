# SPDX-License-Identifier: MIT
# Helpers of the tests of set-up: a copy of scripts/ and a cache folder whose Python environment is made up, so that
# nothing is fetched or compiled and the user's cache is not touched.
set -u
unset WINNOW_LLAMA_VERSION

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
user_cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    failures=$((failures + 1))
}

finish() {
    [ "$failures" -eq 0 ] || printf '%d checks failed\n' "$failures" >&2
    exit $((failures > 0))
}

skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

# check NAME COMMAND...
check() {
    local name=$1
    shift
    "$@" || fail "$name"
}

# says NAME PATTERN: whether the last set-up said so.
says() { grep -Eq -- "$2" "$work/err" || fail "$1: no /$2/ in: $(cat "$work/err")"; }

# Waits up to 20 seconds until a command succeeds.
until_true() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        "$@" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

# fake_cache FOLDER: a cache folder whose environment's python is ours. `python -m pip ARGS` notes ARGS in $work/pip
# and runs $work/pip-does; anything else goes to the real environment's python, which has gguf and numpy.
fake_cache() {
    local bin=$1/python/bin
    mkdir -p "$bin" "$1/python/lib/python3.11/site-packages"
    cat >"$bin/python" <<SH
#!/bin/bash
case "\$1 \${2-} \${3-}" in
"-m pip --version" | "-m pip cache") exit 0 ;;
"-m pip "*)
    shift 2
    printf '%s\n' "\$*" >>"$work/pip"
    export site=$1/python/lib/python3.11/site-packages
    exec bash "$work/pip-does" "\$@"
    ;;
*) exec "$user_cache/python/bin/python" "\$@" ;;
esac
SH
    # Older scripts call pip by its own name.
    printf '#!/bin/bash\nexec "%s/python" -m pip "$@"\n' "$bin" >"$bin/pip"
    chmod +x "$bin"/*
}

# How often pip was called to install or download.
pip_calls() { cat "$work/pip" 2>/dev/null | wc -l; }

# pip_installs NAME VERSION: a line for $work/pip-does that leaves what a finished install of the package leaves.
pip_installs() {
    printf 'mkdir -p "$site/%s-%s.dist-info"; touch "$site/%s-%s.dist-info/RECORD"\n' "$1" "$2" "$1" "$2"
}

# The version of a package that setup.sh asks for.
version_of() { sed -n "s/^$1=\(\${[A-Z_]*:-\)*\([0-9.]*\).*/\2/p" "$top/scripts/setup.sh"; }

cp -R "$top/scripts" "$work/scripts"
mkdir "$work/tests"
cp -R "$top/tests/chat" "$work/tests/chat" # templates of the tiny models
cache=$work/cache
fake_cache "$cache"
export WINNOW_CACHE=$cache
unset WINNOW_LLAMA_FROM

# setup NAME STEP...: must succeed; what it said is in $work/err.
setup() {
    local name=$1
    shift
    "$work/scripts/setup.sh" "$@" >"$work/out" 2>"$work/err" </dev/null || fail "$name: $(cat "$work/err")"
}
