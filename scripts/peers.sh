# SPDX-License-Identifier: MIT
# Sourced by setup.sh: the step `peers`, a llama.cpp built for this CPU. `winnow bench` runs it as a process and compares
# itself with it (bench/llama/, decision 036). It is one program, $cache/peers/llama/winnow-peer. The file `cpu` next to it
# has the system's names of the CPU and its features. On another CPU the program is not used and is built again.

peer_folder=$cache/peers/llama

# The model and the features of the CPU, as bench/peer.c compares them.
this_cpu() {
    local key
    for key in 'model name' '(flags|Features)'; do
        grep -m 1 -E "^$key[[:space:]]*:" /proc/cpuinfo | sed 's/^[^:]*: *//' || true
    done
}

# Flags of the compiler that leave AMX out, which dies on virtual machines that show it but do not allow it.
without_amx() {
    local flag flags=()
    for flag in -mno-amx-tile -mno-amx-int8 -mno-amx-bf16; do
        ! ${CC:-cc} "$flag" -x c -c -o /dev/null /dev/null 2>/dev/null || flags+=("$flag")
    done
    printf '%s' "${flags[*]}"
}

# What the program is made from.
peer_from() {
    {
        echo "$llama_version"
        ${CC:-cc} --version | head -n 1
        cat "$here"/../bench/llama/* "$here"/../app/process.[ch] "$here"/../src/base/system.h
        this_cpu
    } | sha256sum | cut -d' ' -f1
}

get_llama_source() {
    local to=$1
    "$venv/bin/python" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$to" \
        "llama-cpp-python==$llama_version" &&
        tar -xzf "$to/llama_cpp_python-$llama_version.tar.gz" -C "$to" --strip-components=1 \
            "llama_cpp_python-$llama_version/vendor/llama.cpp" && rm "$to"/*.tar.gz
}

make_peer() {
    local work=$1 flags
    flags=$(without_amx)
    get_llama_source "$work" &&
        cmake -S "$here/../bench/llama" -B "$work/build" -DLLAMA_SOURCE="$work/vendor/llama.cpp" -DGGML_NATIVE=ON \
            -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" &&
        cmake --build "$work/build" --target winnow-peer -j "$(nproc)"
}

# Whether the program runs at all: an instruction that the machine forbids ends it at once.
peer_answers() { [[ $(echo about | "$1" 2>/dev/null) == "ok "* ]]; }

step_peers() {
    local from log=$cache/log/peers.log work=$peer_folder.new started=$SECONDS
    need_venv
    from=$(peer_from)
    if intact "$peer_folder/made" "$from"; then
        if peer_answers "$peer_folder/winnow-peer"; then
            say "peers: $peer_folder/winnow-peer is there"
            return
        fi
        why_not="it does not run here"
    fi
    [ ! -d "$peer_folder" ] || say "peers: building again: $why_not"
    rm -rf "$peer_folder" "$work"
    mkdir -p "$work" "$cache/log"
    say "peers: compiling llama.cpp for this CPU (once, 5 to 8 minutes on 2 cores); log: $log"
    make_peer "$work" >"$log" 2>&1 9>&- || {
        tail -n 20 "$log" >&2
        die "peers: the build failed; the whole log is $log"
    }
    peer_answers "$work/build/winnow-peer" || die "peers: the program that was built does not run on this machine"
    mkdir -p "$peer_folder"
    mv "$work/build/winnow-peer" "$peer_folder/"
    this_cpu >"$peer_folder/cpu"
    record "$peer_folder/made" "$from" "$peer_folder/winnow-peer" "$peer_folder/cpu"
    rm -rf "$work"
    say "peers: built in $((SECONDS - started)) s"
}
