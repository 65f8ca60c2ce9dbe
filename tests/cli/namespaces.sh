# SPDX-License-Identifier: MIT
# The example of docs/use/several-machines.md with two network namespaces: its commands as they are, with workers at addresses of networks.
# It runs in namespaces of its own, so that nothing of it stays; where the system does not let it have them, it is skipped.
. "$(dirname "$0")/lib.sh"
need_backend
need_file "$models/smollm2-135m.gguf"
cat >"$work/try.sh" <<'SH'
mount -t tmpfs none /run && mkdir -p /run/netns && ip netns add tried && ip link add to-tried type veth peer name eth0 netns tried && ip netns del tried
SH
unshare --user --map-root-user --net --mount bash "$work/try.sh" >"$work/out" 2>&1 || skip "no network namespaces here: $(tail -n 1 "$work/out")"
{
    echo 'mount -t tmpfs none /run && mkdir -p /run/netns && ip link set lo up || exit 9'
    echo 'winnow() { "$WINNOW" "$@"; }'
    sed -n '/^    for i in 1 2/,/^    winnow run/{s/^    //;p}' docs/use/several-machines.md |
        sed 's/netns exec helper$i winnow/netns exec helper$i "$WINNOW"/'
    echo 'code=$?; kill $(jobs -p); exit $code'
} >"$work/example.sh"
grep -q 'winnow run' "$work/example.sh" || fail "the page has no example: $(cat "$work/example.sh")"
export WINNOW
code=0
timeout 300 unshare --user --map-root-user --net --mount --pid --fork bash "$work/example.sh" >"$work/out" 2>"$work/err" </dev/null || code=$?
[ "$code" = 0 ] && [ -s "$work/out" ] || fail "the example: $code, $(cat "$work/out" "$work/err")"
grep -q '16 tokens' "$work/err" || fail "no answer of 16 tokens: $(cat "$work/err")"
finish
