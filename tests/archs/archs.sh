# SPDX-License-Identifier: MIT
# llama.cpp's test of its architectures (tests/test-llama-archs.cpp of its source package) on the device WINNOW:
# archs.sh PROGRAM [TABLE [DEVICE]]. PROGRAM is that test with archs/register.c. With TABLE it writes one line per family there:
# family, configuration, error, layers with a ragged cache, layers left as they are. DEVICE is WINNOW, or a device around
# another one, as WINNOW0 with WINNOW_DEVICES=CPU: there no error is allowed at all. With WINNOW_ARCHS_WORKER, the path of
# winnow, that device is around the CPU of a server on this machine.
#
# For a device with other kernels WINNOW_ARCHS_BOUND is another bound, and WINNOW_ARCHS_REFERENCE=NAME compares with that device in place of
# the CPU. WINNOW_ARCHS_FAMILIES="NAME..." tries these families alone.
# With WINNOW_ARCHS_NO_FILES models are not written to files and read again.
# With WINNOW_ARCHS_EACH=SECONDS each family of records/families.csv has a process of its own, which is given that time: a driver that compiles for
# long, or crashes, then leaves no more out than one family. Those are listed, and what ran before is not lost.
#
# Its own bound, a normalised mean square error of 1e-4, would miss real faults: 0.05 added to one element of each
# attention moves it from 1e-14 to 1e-6. Ours is 1e-8.
set -u
program=$1 table=${2:-/dev/null} device=${3:-WINNOW} families=${WINNOW_ARCHS_FAMILIES:-}
out=$(mktemp)
worker=
trap 'rm -f "$out" "$out.one"; [ -z "$worker" ] || kill "$worker"' EXIT
if [ -n "${WINNOW_ARCHS_WORKER:-}" ]; then
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$WINNOW_ARCHS_WORKER" worker --listen "127.0.0.1:$port" --device CPU -t 1 >/dev/null 2>&1 &
    worker=$!
    export WINNOW_DEVICES=rpc:127.0.0.1:$port
    for _ in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
        sleep 0.2
    done
fi
# More threads than cores wait for each other in ggml's barriers; sleeping ones cost less.
export OMP_WAIT_POLICY=passive
if [ -n "${WINNOW_ARCHS_EACH:-}" ]; then
    for family in ${families:-$(tail -n +2 "$(dirname "$0")/../../records/families.csv" | cut -d, -f1 | sort -u)}; do
        timeout "$WINNOW_ARCHS_EACH" "$program" -b "$device" -s 1 -a "$family" >"$out.one" 2>&1
        code=$?
        if [ $code -le 1 ]; then
            cat "$out.one" >>"$out"
        else
            printf 'ended: %s %s\n' "$family" "$code" | tee -a "$out" >&2
            tail -n 3 "$out.one" >&2
        fi
    done
else
    "$program" -b "$device" -s 1 ${families:+-a "^(${families// /|})\$"} >"$out" 2>&1
    code=$?
    [ $code -eq 0 ] || { tail -n 30 "$out" >&2; echo "FAILED: $program ended with $code" >&2; exit 1; }
fi
python3 - "$out" "$table" "$device" <<'PY'
import os, re, sys

BOUND, LEAST_FAMILIES = float(os.environ.get("WINNOW_ARCHS_BOUND", 1e-8 if sys.argv[3] == "WINNOW" else 0)), 120
NAMED = set(os.environ.get("WINNOW_ARCHS_FAMILIES", "").split())
text = re.sub(r"\x1b\[[0-9;]*m", "", open(sys.argv[1]).read())
faults, rows, trips = [], [], 0
# A row begins before the model is opened, and ends after what our device says about its cache.
row = re.compile(r"^\|\s*([\w.-]+)\|[^|]*\|\s*(\w+)\|(.*?)\n?\s*(OK|FAIL|SKIP)[^|\n]*?(?:\((\S+)\))?\|\s*(OK|FAIL|SKIP)\|", re.M | re.S)
kinds = re.compile(r"ragged cache: (\d+), left as they are: (\d+)")
for family, config, said, status, error, trip in row.findall(text):
    first = kinds.search(said)
    ragged, plain = first.groups() if first else ("0", "0")
    rows.append((family, config, error or "-", ragged, plain))
    trips += trip == "OK"
    if status == "SKIP":
        continue
    if status != "OK" or trip == "FAIL" or not error or not float(error) <= BOUND:
        faults.append(f"{family} {config}: {status}, error {error}, round trip {trip}")
ran = [r for r in rows if r[2] != "-"]
late = []
for family, code in re.findall(r"^ended: (\S+) (\d+)$", text, re.M):
    if code == "124":
        late.append(family)
    else:
        faults.append(f"{family}: the process ended with {code}")
if late:
    print("out of time:", " ".join(late))
if len({r[0] for r in ran}) + len(late) < (len(NAMED) or LEAST_FAMILIES):
    faults.append(f"only {len({r[0] for r in ran})} families ran")
if trips == 0 and not NAMED and "WINNOW_ARCHS_NO_FILES" not in os.environ:  # some families cannot be written
    faults.append(f"{trips} models were written to files and read")
if sys.argv[3].startswith("WINNOW") and sum(int(r[3]) > 0 for r in ran) < 0.8 * len(ran):
    faults.append("too few families have a ragged cache")
with open(sys.argv[2], "w") as f:
    f.writelines("\t".join(r) + "\n" for r in rows)
worst = max(((float(r[2]), r[0]) for r in ran), default=(0, "none"))
print(f"{len(ran)} models of {len({r[0] for r in ran})} families, worst error {worst[0]:.2g} ({worst[1]}), "
      f"{sum(r[4] == '0' and r[3] != '0' for r in ran)} all ragged, {sum(r[4] != '0' and r[3] != '0' for r in ran)} partly")
for fault in faults:
    print("FAILED:", fault, file=sys.stderr)
sys.exit(1 if faults else 0)
PY
