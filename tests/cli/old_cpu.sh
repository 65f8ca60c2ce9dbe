# SPDX-License-Identifier: MIT
# A CPU that lacks what ggml was compiled for: one sentence, before an instruction that it does not have. With qemu's emulation of one where
# it is installed (qemu-user), else by what the program has in front of everything else.
. "$(dirname "$0")/lib.sh"
[ "$(uname -m)" = x86_64 ] || skip 'another architecture'
readelf -SW "$WINNOW" | grep -q '\.preinit_array' || skip 'ggml chooses its instructions at run time, or was built for this machine'
server=$(dirname "$WINNOW")/winnow-llama-server

# What runs first and what it calls: neither registers nor instructions of AVX.
for program in "$WINNOW" "$server"; do
    [ -x "$program" ] || continue
    readelf -dW "$program" | grep -q PREINIT_ARRAY || fail "$program: nothing runs first"
    objdump -d --no-show-raw-insn "$program" | awk '/^[0-9a-f]+ <need_cpu(\.[a-z0-9.]+)?>:$/ {on = 1} on && /^$/ {on = 0} on' >"$work/code"
    grep -q xgetbv "$work/code" || fail "$program: the check is not found"
    ! grep -E '%[yz]mm|[[:space:]]v[a-z0-9]+ ' "$work/code" || fail "$program: the check needs AVX itself"
done

good 'this CPU' --version
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static) || finish
for program in "$WINNOW" "$server"; do
    [ -x "$program" ] || continue
    for cpu in qemu64 Nehalem SandyBridge; do
        code=0
        "$qemu" -cpu "$cpu" "$program" --version >"$work/out" 2>"$work/err" </dev/null || code=$?
        [ "$code" = 1 ] && [ ! -s "$work/out" ] || fail "$program on $cpu: exit code $code, $(cat "$work/out" "$work/err")"
        [ "$(grep -v '^qemu' "$work/err" | wc -l)" = 1 ] && grep -q '^winnow: this CPU has no .*avx2.*, which this program was compiled for' "$work/err" ||
            fail "$program on $cpu: $(cat "$work/err")"
    done
done
"$qemu" -cpu max "$WINNOW" --version >"$work/out" 2>"$work/err" </dev/null || fail "on all that is emulated: $(cat "$work/err")"
finish
