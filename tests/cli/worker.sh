# SPDX-License-Identifier: MIT
# winnow worker: who may connect, what it serves, and programs that use it.
. "$(dirname "$0")/lib.sh"
need_backend
free_port
bad 'an address for all' '--i-trust-this-network' worker --listen 0.0.0.0:50999
for address in '' 50999 : :50999 127.0.0.1: 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:99999999999 127.0.0.1:-1 127.0.0.1:+5 '127.0.0.1: 5' 127.0.0.1:5x 127.0.0.1:none 0.0.0.0:0 '[::1]:50999' '[::]:50999' ::1:50999 tcp://127.0.0.1:50999; do
    bad "no address: $address" "is no address.*port from 1 to 65535" worker --listen "$address"
done
for address in localhost.example.invalid:50999 128.0.0.1:50999; do
    bad "not of this machine: $address" 'not on the loopback' worker --listen "$address"
done
bad 'a device that is not there' 'no device' worker --listen "127.0.0.1:$port" --device none
start_worker
kill -0 $worker || fail "the worker ended: $(cat "$work/worker")"
grep -q 'WINNOW: winnow: this CPU' "$work/worker" || fail "the worker serves another device: $(cat "$work/worker")"
# A second one at the same address says so, and the first goes on.
code=0
"$WINNOW" worker --listen "127.0.0.1:$port" >"$work/out" 2>&1 || code=$?
[ $code = 1 ] && grep -q 'cannot listen' "$work/out" || fail "a second worker: $code, $(cat "$work/out")"
kill -0 $worker || fail 'the worker ended'
kill $worker
wait $worker 2>/dev/null || true

# Hosts by their names. ggml's own server knows none.
start_worker --listen "localhost:$port"
"$WINNOW" run -m "$tiny/tiny-llama.gguf" --tokens <(ids 20) -n 2 -t 1 --devices "rpc:localhost:$port" >"$work/out" 2>"$work/err" || fail "a host's name: $(cat "$work/worker" "$work/err")"
kill $worker
wait $worker 2>/dev/null || true

# The module that `make vulkan` leaves in the folder of the command is loaded here, too: a file that is none is named.
cp "$WINNOW" "$work/winnow"
echo text >"$work/libggml-vulkan.so"
code=0
timeout 60 "$work/winnow" worker --listen "127.0.0.1:$port" >"$work/out" 2>&1 || code=$?
[ $code = 1 ] && [ "$(wc -l <"$work/out")" = 1 ] && grep -q "$work/libggml-vulkan.so'" "$work/out" || fail "a module that is none: $code, $(cat "$work/out")"
finish
