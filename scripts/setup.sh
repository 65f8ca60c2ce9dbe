#!/bin/bash
# SPDX-License-Identifier: MIT
# Sets up what building, running and testing winnow needs: setup.sh [STEP...]
#
#   packages     Debian packages with compiler, CMake and libraries
#   llama        ggml and libllama: the system's or those under CMAKE_PREFIX_PATH, else a private copy
#   python       the private Python environment's packages for scripts/ (gguf, numpy)
#   model        the default model
#   test-models  what the tests need besides: a float32 copy of the default model, tiny random models
#
# Without a step: all of them. Every step looks first and does nothing when its work is done, so running twice is
# cheap, and an interrupted step starts over. Everything but Debian packages goes to ${WINNOW_CACHE:-~/.cache/winnow}.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
venv=$cache/python

debian_packages=(build-essential cmake pkg-config python3-venv python3-dev git libcmocka-dev libjansson-dev
    libpopt-dev)
ggml_min=0.25
llama_version=0.3.36 # of the PyPI package llama-cpp-python: brings ggml 0.25.3
numpy_version=2.4.6
python_packages=(gguf==0.17.1 "numpy==$numpy_version")
default_model=smollm2-135m

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# ---- packages ----
step_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "packages: not a Debian system; needed are the equivalents of: ${debian_packages[*]}"
        return
    fi
    local missing=() package
    for package in "${debian_packages[@]}"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "packages: installed"
        return
    fi
    [ "$(id -u)" = 0 ] || die "packages: missing; as root run: apt-get install ${missing[*]}"
    say "packages: installing ${missing[*]}"
    mkdir -p "$cache/log"
    {
        apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
    } >"$cache/log/packages.log" 2>&1 || {
        tail -n 20 "$cache/log/packages.log" >&2
        die "packages: apt-get failed; the whole log is $cache/log/packages.log"
    }
}

# ---- the private Python environment ----
site_packages() { compgen -G "$venv/lib/python3*/site-packages" || true; }

# pip writes a package's RECORD last: without it an install was interrupted. Names are written with underscores.
installed() { [ -f "$(site_packages)/$1-$2.dist-info/RECORD" ]; }

need_venv() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    say "python: making the environment $venv"
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv" || die "python: 'python3 -m venv' failed; is the package python3-venv installed?"
}

step_python() {
    need_venv
    local spec missing=()
    for spec in "${python_packages[@]}"; do
        installed "${spec%%==*}" "${spec##*==}" || missing+=("$spec")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "python: ${python_packages[*]} installed"
        return
    fi
    say "python: installing ${missing[*]}"
    "$venv/bin/pip" install --quiet --ignore-installed "${missing[@]}" || die "python: pip could not install ${missing[*]}"
}

# ---- ggml and libllama ----
# The ggml version that the CMake package in folder $1 names, if there is one.
ggml_version() {
    sed -n 's/^set(PACKAGE_VERSION "\(.*\)").*/\1/p' "$1/ggml-config-version.cmake" 2>/dev/null
}

# The folder of an installed ggml's CMake package that CMakeLists.txt will find before the private one.
system_ggml() {
    local prefix dir version prefixes
    IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
    for prefix in "${prefixes[@]}" /usr/local /usr; do
        for dir in "$prefix"/lib/cmake/ggml "$prefix"/lib64/cmake/ggml "$prefix"/lib/*/cmake/ggml; do
            version=$(ggml_version "$dir") || true
            if [ -n "$version" ] && [ "$(printf '%s\n' $ggml_min "$version" | sort -V | head -n 1)" = $ggml_min ]; then
                printf '%s' "$dir"
                return
            fi
        done
    done
}

cpu_has() { grep -m 1 '^flags' /proc/cpuinfo | grep -qw "$1"; }

# ggml's CMake names of x86 features and the kernel's names of them.
x86_features="AVX:avx AVX2:avx2 FMA:fma F16C:f16c BMI2:bmi2"

# Why the private copy does not suit this machine; nothing if it does. ggml's CMake package says how it was built.
misfit() {
    local config pair
    if ! installed llama_cpp_python $llama_version; then
        echo "llama-cpp-python $llama_version is not installed"
        return
    fi
    config=$(site_packages)/lib/cmake/ggml/ggml-config.cmake
    if [ ! -f "$config" ] || [ ! -f "${config%ggml/*}llama/llama-config.cmake" ]; then
        echo "files are missing"
        return
    fi
    grep -q 'set(GGML_NATIVE "OFF")' "$config" || { echo "it was built for one kind of CPU only"; return; }
    [ "$(uname -m)" = x86_64 ] || return 0
    for pair in $x86_features AVX512:avx512f; do
        if grep -q "set(GGML_${pair%%:*} \"ON\")" "$config" && ! cpu_has "${pair##*:}"; then
            echo "it uses ${pair%%:*}, which this CPU lacks"
            return
        fi
    done
}

# GGML_NATIVE=OFF: a build for the CPU at hand dies on others. ggml then assumes AVX2, FMA, F16C and BMI2
# (x86-64-v3); on an older machine they are turned off.
cmake_args() {
    local args="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_RPC=ON" pair
    if [ "$(uname -m)" = x86_64 ]; then
        for pair in $x86_features; do
            cpu_has "${pair##*:}" || args+=" -DGGML_${pair%%:*}=OFF"
        done
    fi
    printf '%s' "$args"
}

build_llama() {
    local log=$cache/log/llama.log started=$SECONDS pid site
    mkdir -p "$cache/log"
    site=$(site_packages)
    [ -d "$site" ] || die "llama: $venv has no site-packages folder; remove $venv and try again"
    # pip does not replace what an interrupted install left behind.
    rm -rf "${site:?}"/{llama_cpp*,lib,include,bin}
    say "llama: compiling ggml and libllama (once, 5 to 8 minutes on 2 cores); log: $log"
    CMAKE_ARGS="$(cmake_args)" "$venv/bin/pip" install -v --ignore-installed --no-binary llama-cpp-python \
        "llama-cpp-python==$llama_version" "numpy==$numpy_version" >"$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null || true' EXIT
    while kill -0 $pid 2>/dev/null; do
        sleep 1
        (((SECONDS - started) % 60 != 0)) || say "llama: still compiling, $(((SECONDS - started) / 60)) min"
    done
    trap - EXIT
    wait $pid || {
        tail -n 30 "$log" >&2
        die "llama: the build failed; the whole log is $log"
    }
    say "llama: built in $((SECONDS - started)) s"
}

step_llama() {
    local found why
    found=$(system_ggml)
    if [ -n "$found" ]; then
        [ -f "${found%ggml}llama/llama-config.cmake" ] ||
            die "llama: ggml is in $found, but libllama is not beside it; install that too (Debian: libllama-dev)"
        say "llama: using $found"
        return
    fi
    need_venv
    why=$(misfit)
    if [ -z "$why" ]; then
        say "llama: llama-cpp-python $llama_version in $venv"
        return
    fi
    ! installed llama_cpp_python $llama_version || say "llama: building again: $why"
    build_llama
    why=$(misfit)
    if [ -n "$why" ]; then # pip may have had a wheel at hand that was built with other flags
        say "llama: building again: $why"
        "$venv/bin/pip" cache remove llama_cpp_python >/dev/null 2>&1 || true
        build_llama
        why=$(misfit)
        [ -z "$why" ] || die "llama: the private copy is of no use: $why; see $cache/log/llama.log"
    fi
}

# ---- models ----
step_model() {
    need_venv
    "$here/fetch_models.sh" $default_model
}

step_test_models() {
    step_model
    local f32=$cache/models/$default_model-f32.gguf tiny=$cache/models/tiny made_by
    if [ -f "$f32" ]; then
        say "test-models: $f32 is there"
    else
        say "test-models: writing $f32 (540 MB)"
        "$venv/bin/python" "$here/dequantize_gguf.py" "$cache/models/$default_model.gguf" "$f32"
    fi
    made_by=$(sha256sum <"$here/make_tiny_models.py")
    if [ "$(cat "$tiny/made-by" 2>/dev/null)" = "$made_by" ]; then
        say "test-models: tiny models are there"
    else
        say "test-models: making tiny models in $tiny"
        rm -rf "$tiny"
        "$venv/bin/python" "$here/make_tiny_models.py" "$tiny"
        printf '%s\n' "$made_by" >"$tiny/made-by"
    fi
}

# ---- main ----
[ $# -gt 0 ] || set -- packages llama python model test-models
for step in "$@"; do
    case $step in
    packages | llama | python | model | test-models) ;;
    *)
        sed -n '3,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
    esac
done
mkdir -p "$cache"
exec 9>"$cache/setup.lock"
if ! flock -n 9; then
    say "waiting for another set-up to finish"
    flock 9
fi
for step in "$@"; do
    "step_${step//-/_}"
done
