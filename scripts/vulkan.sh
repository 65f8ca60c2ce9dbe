# SPDX-License-Identifier: MIT
# Sourced by setup.sh: the steps `vulkan`, ggml's Vulkan backend as a module, $cache/vulkan/libggml-vulkan.so, compiled from the source
# package of the private copy; and `vulkan-driver`, Mesa's driver that computes on the CPU, with which tests run without a GPU.

vulkan_folder=$cache/vulkan
vulkan_packages=(glslc libvulkan-dev libvulkan1 spirv-headers)

# What the module is made from.
vulkan_from() {
    {
        echo "$llama_version"
        ${CXX:-c++} --version | head -n 1
        find "$here/../cmake/vulkan" -type f | sort | xargs cat
    } | sha256sum | cut -d' ' -f1
}

make_vulkan() {
    local work=$1
    unpack_llama "$work" ggml &&
        cmake -S "$here/../cmake/vulkan" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGGML_SOURCE_DIR="$work/ggml" &&
        cmake --build "$work/build" --target ggml-vulkan -j "$(nproc)"
}

step_vulkan() {
    local from log=$cache/log/vulkan.log work=$vulkan_folder.new other=${WINNOW_LLAMA_FROM:-}/vulkan started=$SECONDS
    [ -z "$(system_ggml)" ] ||
        die "vulkan: it goes with the private copy of ggml; for the system's, install its own Vulkan backend"
    from=$(vulkan_from)
    if intact "$vulkan_folder/made" "$from"; then
        say "vulkan: $vulkan_folder/libggml-vulkan.so is there"
        return
    fi
    rm -rf "$vulkan_folder" "$work"
    if [ -n "${WINNOW_LLAMA_FROM:-}" ] && [ ! "$other" -ef "$vulkan_folder" ] && intact "$other/made" "$from"; then
        say "vulkan: taking over the compiled copy of $other"
        mkdir -p "$vulkan_folder"
        cp "$other/libggml-vulkan.so" "$vulkan_folder/"
    else
        need_packages "${vulkan_packages[@]}"
        need_venv
        mkdir -p "$work" "$cache/log"
        say "vulkan: compiling ggml's Vulkan backend (once, about 6 minutes on 2 cores); log: $log"
        make_vulkan "$work" >"$log" 2>&1 9>&- || {
            tail -n 20 "$log" >&2
            die "vulkan: the build failed; the whole log is $log"
        }
        mkdir -p "$vulkan_folder"
        find "$work/build" -name libggml-vulkan.so -exec cp {} "$vulkan_folder/" \;
        rm -rf "$work"
        say "vulkan: built in $((SECONDS - started)) s"
    fi
    record "$vulkan_folder/made" "$from" "$vulkan_folder/libggml-vulkan.so"
}

# ---- The driver ----
# The driver of Debian 12, Mesa 22.3, crashes in whole models. That of its backports does not; it needs no installation: the loader of
# Vulkan takes it from where VK_DRIVER_FILES says.
lavapipe=$cache/lavapipe

# The newest mesa-vulkan-drivers of Debian's backports, fetched into the folder $1 from where this machine's packages come from.
fetch_backport() {
    local work=$1 release uri
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' "Created-By: Packages" 2>/dev/null | awk -v r="$release" '$2 == r {print $1; exit}')
    [ -n "$uri" ] || return 1
    mkdir -p "$work"/{lists,archives}/partial
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $release-backports main" >"$work/sources.list"
    local options=(-o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists"
        -o Dir::Cache="$work" -o Dir::Cache::Archives="$work/archives" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update && (cd "$work" && apt-get "${options[@]}" download mesa-vulkan-drivers)
}

step_vulkan_driver() {
    local work=$lavapipe.new log=$cache/log/vulkan-driver.log other=${WINNOW_LLAMA_FROM:-}/lavapipe library
    if intact "$lavapipe/made" mesa; then
        say "vulkan-driver: $lavapipe/lavapipe.json is there"
        return
    fi
    rm -rf "$lavapipe" "$work"
    need_packages libvulkan1 mesa-vulkan-drivers # the second for the libraries that the driver needs
    mkdir -p "$work" "$lavapipe" "$cache/log"
    if [ -n "${WINNOW_LLAMA_FROM:-}" ] && [ ! "$other" -ef "$lavapipe" ] && intact "$other/made" mesa; then
        say "vulkan-driver: taking over the copy of $other"
        cp "$other/libvulkan_lvp.so" "$lavapipe/"
        # what it has compiled for tests, which takes it minutes
        [ ! -d "$other/shaders" ] || cp -R "$other/shaders" "$lavapipe/"
    else
        say "vulkan-driver: fetching Mesa's driver from the backports"
        fetch_backport "$work" >"$log" 2>&1 && dpkg-deb -x "$work"/mesa-vulkan-drivers_*.deb "$work/files" >>"$log" 2>&1 || {
            tail -n 5 "$log" >&2
            die "vulkan-driver: it cannot be fetched; the whole log is $log"
        }
        find "$work/files" -name libvulkan_lvp.so -exec cp {} "$lavapipe/" \;
    fi
    rm -rf "$work"
    library=$(ldd "$lavapipe/libvulkan_lvp.so" | awk '/not found/ {print $1}')
    [ -z "$library" ] || die "vulkan-driver: it needs libraries that are not there:" $library
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.4.305"}}\n' "$lavapipe/libvulkan_lvp.so" \
        >"$lavapipe/lavapipe.json"
    record "$lavapipe/made" mesa "$lavapipe/libvulkan_lvp.so"
}
