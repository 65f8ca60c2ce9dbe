# SPDX-License-Identifier: MIT
# winnow backend: the library's place, and which libllama it fits.
. "$(dirname "$0")/lib.sh"
need_backend
good 'the path' backend --path
library=$(cat "$work/out")
[ -f "$library" ] || fail "there is no file $library"
nm -D --defined-only "$library" | grep -q ' T ggml_backend_init$' || fail "$library has no ggml_backend_init"
# Nothing of it may lead to a ggml other than the program's.
readelf -d "$library" | grep -Eq 'R(UN)?PATH' && fail 'the library has a path to other libraries'
# Nor does it need a libllama: a program may have one by another name, or none that is a library.
readelf -d "$library" | grep -q 'NEEDED.*libllama' && fail "the library needs libllama, by: $(nm -D -u "$library" | grep ' llama_' | tr -s ' \n' ' ')"
good 'what a shell needs' backend --env
eval "$(cat "$work/out")"
[ "$GGML_BACKEND_PATH" = "$library" ] || fail "GGML_BACKEND_PATH is $GGML_BACKEND_PATH"
# With a model its profiles too; what is there is read by the policies that need it.
need_file "$tiny/tiny-llama.gguf"
good 'a model without profiles' backend --env -m "$tiny/tiny-llama.gguf"
eval "$(cat "$work/out")"
[ "${WINNOW_PROFILE-unset}" = "" ] || fail "WINNOW_PROFILE is ${WINNOW_PROFILE-unset}"
cp "$tiny/tiny-llama.gguf" "$work/smollm2-135m.gguf" # profiles are found by the name, and are of another model
good 'another model of that name' backend --env -m "$work/smollm2-135m.gguf"
eval "$(cat "$work/out")"
[ -z "$WINNOW_PROFILE" ] || fail "profiles of another model are named: $WINNOW_PROFILE"
need_file "$models/smollm2-135m.gguf"
good 'a model with profiles' backend --env -m "$models/smollm2-135m.gguf"
eval "$(cat "$work/out")"
for kind in shares gate inputgate quality; do
    found=$(tr : '\n' <<<"$WINNOW_PROFILE" | grep "/$kind.json\$")
    [ -f "$found" ] || fail "no profile of $kind in $WINNOW_PROFILE"
done
grep -q 'compiler' <<<"$WINNOW_PROFILE" && fail 'tables of one budget are named'
unset WINNOW_PROFILE GGML_BACKEND_PATH
bad 'a model that is not there' 'there is no file' backend --env -m none
bad 'a model for nothing' '--env' backend --path -m "$tiny/tiny-llama.gguf"

llama=$(ldd "$WINNOW" | sed -n 's/.*libllama\.so[.0-9]* => \(\/[^ ]*\).*/\1/p')
good 'the libllama of this program' backend --check "$llama"
grep -Eq '^fits: ggml [0-9.]+ ' "$work/out" || fail "said: $(cat "$work/out")"

# Another version: the same libraries, with other numbers in ggml's string.
mkdir "$work/other"
folder=$(dirname "$llama")
cp "$folder"/*.so* "$work/other/"
py "$work/other" <<'PY'
import glob, os, re, sys
version = re.compile(rb"\x000\.(\d\d)\.(\d)\x00")
for path in glob.glob(sys.argv[1] + "/libggml-base.so*"):
    data = open(path, "rb").read()
    other = version.sub(lambda m: b"\x000.99." + m.group(2) + b"\x00", data)
    assert other != data, path + " does not hold its version"
    open(path, "wb").write(other)
PY
bad 'another ggml' 'built for' backend --check "$work/other/$(basename "$llama")"
grep -q 'make bridge LLAMA=' "$work/err" || fail 'nothing says how to build for it'
bad 'no file' 'cannot open' backend --check "$work/none.so"
echo text >"$work/text.so"
bad 'no library' 'cannot open' backend --check "$work/text.so"
bad 'a library without ggml' 'contains no ggml' backend --check "$(ldd "$WINNOW" | sed -n 's/.*libm\.so[.0-9]* => \(\/[^ ]*\).*/\1/p')"
# An unmodified llama-cpp-python: the example, and the way of programs that only know GGML_BACKEND_PATH.
python=$cache/python/bin/python
model=$tiny/chat/smollm2.gguf
if has_llama_cpp; then
    need_file "$model"
    export OMP_WAIT_POLICY=passive
    WINNOW_BACKEND=$library "$python" "$(dirname "$0")/../../examples/llama_cpp_python.py" "$model" 'One two three' \
        >"$work/out" 2>"$work/err" || fail "the example ended with $?: $(tail -n 3 "$work/err")"
    [ -s "$work/out" ] || fail 'the example printed nothing'
    "$python" - "$library" >"$work/out" 2>"$work/err" <<'PY' || fail "not loaded as a backend: $(tail -n 3 "$work/err")"
import ctypes, glob, os, sys
import llama_cpp
folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
ggml = ctypes.CDLL(os.path.join(folder, "libggml.so"))
ggml.ggml_backend_load.restype = ggml.ggml_backend_dev_by_name.restype = ctypes.c_void_p
assert not ggml.ggml_backend_dev_by_name(b"WINNOW")
assert ggml.ggml_backend_load(sys.argv[1].encode())
assert ggml.ggml_backend_dev_by_name(b"WINNOW")
PY
fi
# A program with another ggml continues without the device, and one line says so.
python3 - "$library" "$work/other" >"$work/out" 2>"$work/err" <<'PY' || fail "another ggml was not refused: $(cat "$work/err")"
import ctypes, os, sys
for name in ("libggml-base.so.0", "libggml-cpu.so.0", "libggml.so.0"):
    ggml = ctypes.CDLL(os.path.join(sys.argv[2], name), mode=ctypes.RTLD_GLOBAL)
ggml.ggml_backend_load.restype = ctypes.c_void_p
assert not ggml.ggml_backend_load(sys.argv[1].encode())
PY
grep -q '^winnow: .*built for' "$work/err" || fail "not one line says why: $(cat "$work/err")"
bad 'no option' 'needs one of' backend
bad 'two options' 'needs one of' backend --path --env
finish
