# SPDX-License-Identifier: MIT
# winnow worker: who may connect, what it serves, and programs that use it.
. "$(dirname "$0")/lib.sh"
need_backend
free_port
bad 'an address for all' '--i-trust-this-network' worker --listen 0.0.0.0:50999
for address in '' 50999 : :50999 127.0.0.1: 127.0.0.1:0 127.0.0.1:65536 127.0.0.1:99999999999 127.0.0.1:-1 127.0.0.1:+5 '127.0.0.1: 5' 127.0.0.1:5x 127.0.0.1:none 0.0.0.0:0; do
    bad "no address: $address" "is no address.*port from 1 to 65535" worker --listen "$address"
done
for address in localhost.example.invalid:50999 '[::]:50999' 128.0.0.1:50999; do
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
finish
