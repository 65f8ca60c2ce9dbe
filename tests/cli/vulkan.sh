# SPDX-License-Identifier: MIT
# Devices around Vulkan, on Mesa's driver that computes on the CPU: what comes out with entries dropped, and commands.
# Skipped without the module and the driver, which `scripts/setup.sh vulkan vulkan-driver` brings. WNW_VULKAN_FAMILIES="NAME..." tries other
# families than the sample, and "all" every one of them, which takes hours where the driver has compiled nothing yet.
. "$(dirname "$0")/lib.sh"
if [ ! -f "$cache/vulkan/made" ] || [ ! -f "$cache/lavapipe/made" ]; then
    skip 'there is no Vulkan module of ggml, or no driver for it'
fi
program=$(dirname "$WINNOW")/tests/model_bridge_devices
need_file "$program"
model=$tiny/tiny-qwen2-f32.gguf
need_file "$model"
export WINNOW_GGML_MODULES=$cache/vulkan/libggml-vulkan.so VK_DRIVER_FILES=$cache/lavapipe/lavapipe.json
# ggml passes over devices that are CPUs unless they are named. Products in f16 would need wider bounds, and twice the shaders.
export GGML_VK_VISIBLE_DEVICES=0 GGML_VK_DISABLE_F16=1 GGML_NO_BACKTRACE=1
# Most of the time is the driver's compiler.
export MESA_SHADER_CACHE_DIR=$cache/lavapipe/shaders

good 'the list of devices' doctor
grep -q 'Vulkan0 ' "$work/out" || { fail "Vulkan0 is not listed: $(cat "$work/out" "$work/err")"; finish; }

"$program" Vulkan0 first >"$work/log" 2>&1 || fail "entries dropped: $(cat "$work/log")"
grep -q 'dropped to hidden' "$work/log" || fail "entries dropped, no numbers: $(cat "$work/log")"

# llama.cpp's test of its architectures with every layer ragged, compared with Vulkan itself: its own rounding does not count. The driver
# compiles the attention of large heads for many minutes, so heads have 32 numbers. The sample has RoPE, positions that are learned, blocks side
# by side, windows, and sinks; it shares most of what is compiled.
archs=$(dirname "$WINNOW")/tests/llama_archs
if [ -x "$archs" ]; then
    families=${WNW_VULKAN_FAMILIES:-phi3 gpt2 falcon cohere2 gpt-oss}
    [ "$families" != all ] || families=
    WINNOW_DEVICES=Vulkan0 WINNOW_RAGGED_AT_ONCE=1 WINNOW_ARCHS_REFERENCE=Vulkan0 WINNOW_ARCHS_HEAD=32 WINNOW_ARCHS_BOUND=1e-8 \
        WINNOW_ARCHS_FAMILIES=$families bash "$(dirname "$0")/../archs/archs.sh" "$archs" "$work/table" WINNOW0 >"$work/log" 2>&1 || fail "families: $(cat "$work/log" "$work/table")"
fi

# As much is kept as on the CPU, and the text that follows is as likely.
ids 300 >"$work/ids"
for policy in keydiff snapkv; do
    asked=(ppl -m "$model" --tokens "$work/ids" --json --ratio 0.5 --policy "$policy")
    good "$policy on the CPU" "${asked[@]}" --devices cpu && cp "$work/out" "$work/cpu"
    good "$policy on Vulkan" "${asked[@]}" --devices vulkan0 || continue
    py "$work/cpu" "$work/out" <<'PY' || fail "$policy: $(cat "$work/cpu" "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["kept_tokens_mean"] == b["kept_tokens_mean"] and a["scored_tokens"] == b["scored_tokens"]
assert abs(a["nll_mean"] - b["nll_mean"]) < 0.02 * a["nll_mean"]
PY
done

# Weights on Vulkan, cache and attention in this machine's memory.
plain=$(dirname "$WINNOW")/plain_llama_server
if [ -x "$plain" ]; then
    python3 tests/server/weights.py "$WINNOW" "$plain" Vulkan0 >"$work/log" 2>&1 || fail "weights on Vulkan: $(cat "$work/log")"
fi

# A worker whose device is Vulkan.
free_port
start_worker --device vulkan0
good 'a worker on Vulkan' run -m "$model" --tokens "$work/ids" --temp 0 -n 4 -t 1 --json --ratio 0.5 --policy keydiff --devices "rpc:127.0.0.1:$port" && cp "$work/out" "$work/there"
grep -q 'Vulkan0: ' "$work/worker" || fail "the worker serves another device: $(cat "$work/worker")"
good 'the same on Vulkan' run -m "$model" --tokens "$work/ids" --temp 0 -n 4 -t 1 --json --ratio 0.5 --policy keydiff --devices vulkan0 &&
    py "$work/there" "$work/out" <<'PY' || fail "a worker on Vulkan: $(cat "$work/there" "$work/out")"
import json, sys
a, b = (json.load(open(path)) for path in sys.argv[1:])
assert a["kept_tokens_mean"] == b["kept_tokens_mean"] and a["tokens"] == b["tokens"]
PY
kill $worker
wait $worker 2>/dev/null || true

# Modules that are none. `doctor` goes on, and says so.
echo text >"$work/text.so"
for file in none.so text.so; do
    export WINNOW_GGML_MODULES=$work/$file
    "$WINNOW" run -m "$model" --devices vulkan0 -p 'Who?' >"$work/out" 2>"$work/err" && fail "$file: exit code 0"
    [ "$(wc -l <"$work/err")" = 1 ] && grep -q "/$file', which WINNOW_GGML_MODULES names" "$work/err" || fail "$file: $(cat "$work/err")"
    "$WINNOW" doctor >"$work/out" 2>"$work/err"
    grep -q "/$file', which WINNOW_GGML_MODULES names" "$work/out" || fail "doctor, $file: $(cat "$work/out" "$work/err")"
done
finish
