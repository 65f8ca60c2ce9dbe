# SPDX-License-Identifier: MIT
# Sourced by setup.sh: the step `server`, llama.cpp's server as an archive that winnow-llama-server is linked from
# (serve/). It is compiled from the source package of the private copy, against the libllama of that copy, and kept as
# $cache/llama-server/libllama-server.a with the headers that we include. It suits every CPU that the copy suits.

server_folder=$cache/llama-server
server_parts="common src/llama-ext.h tools/server tools/mtmd tools/ui vendor"

# What the archive is made from.
server_from() {
    {
        echo "$llama_version"
        ${CXX:-c++} --version | head -n 1
        cat "$here"/../serve/upstream/*
    } | sha256sum | cut -d' ' -f1
}

make_server() {
    local work=$1
    unpack_llama "$work" $server_parts &&
        cmake -S "$here/../serve/upstream" -B "$work/build" -DLLAMA_SOURCE="$work" -DCMAKE_PREFIX_PATH="$site" &&
        cmake --build "$work/build" --target llama-server -j "$(nproc)"
}

# whole FOLDER FROM: whether the archive and all headers are there. Copies of an earlier version have one header.
whole() {
    intact "$1/made" "$2" || return 1
    why_not="json.h is missing"
    [ -f "$1/json.h" ]
}

# Copies what another cache folder has compiled, if it was made from the same.
take_over_server() {
    local from=$1 other=${WINNOW_LLAMA_FROM:-}/llama-server
    { [ -n "${WINNOW_LLAMA_FROM:-}" ] && [ ! "$other" -ef "$server_folder" ] && whole "$other" "$from"; } || return 1
    say "server: taking over the compiled copy of $other"
    mkdir -p "$server_folder"
    cp "$other/libllama-server.a" "$other"/*.h "$server_folder/"
    record "$server_folder/made" "$from" "$server_folder"/*.[ah]
}

step_server() {
    local from site log=$cache/log/server.log work=$server_folder.new started=$SECONDS
    [ -z "$(system_ggml)" ] ||
        die "server: it goes with the private copy of libllama; with the system's, use a llama-server of its version (docs/use/server.md)"
    need_venv
    site=$(site_packages)
    [ -z "$(misfit "$site")" ] || die "server: libllama is not there yet: scripts/setup.sh llama"
    from=$(server_from)
    if whole "$server_folder" "$from"; then
        say "server: $server_folder/libllama-server.a is there"
        return
    fi
    [ ! -d "$server_folder" ] || say "server: compiling again: $why_not"
    rm -rf "$server_folder" "$work"
    ! take_over_server "$from" || return 0
    mkdir -p "$work" "$cache/log"
    say "server: compiling llama.cpp's server (once, about a minute on 2 cores); log: $log"
    make_server "$work" >"$log" 2>&1 9>&- || {
        tail -n 20 "$log" >&2
        die "server: the build failed; the whole log is $log"
    }
    mkdir -p "$server_folder"
    mv "$work/build/libllama-server.a" "$work/tools/server/server-http.h" "$work/common/json.h" "$server_folder/"
    record "$server_folder/made" "$from" "$server_folder"/*.[ah]
    rm -rf "$work"
    say "server: built in $((SECONDS - started)) s"
}
