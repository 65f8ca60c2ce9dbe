# SPDX-License-Identifier: MIT
# --profile: where calibration results are found, what is said where they are not.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
need_file "$model"
shape='2 4 2 32' # asked of the model below
ids 300 >"$work/ids"
tests=$(dirname "$0")/..
export WINNOW_CACHE=$work/cache # nobody's own profiles
plan() { printf '%s\n' plan -m "$model" --tokens "$work/ids" -o "$work/made/plan.json" "$@"; }
make() { # FILE KIND FINGERPRINT [SETTINGS]
    local file=$1 kind=$2 print=$3
    shift 3
    mkdir -p "$(dirname "$file")"
    # shellcheck disable=SC2086
    python3 "$tests/lib/make_profile.py" "$kind" "$print" $shape "$@" >"$file"
}
checked() { # good|bad ARGS for them, then those of plan
    local how=$1 name=$2 pattern=$3
    shift 3
    mapfile -t args < <(plan "$@")
    if [ "$how" = bad ]; then
        bad "$name" "$pattern" "${args[@]}"
    else
        rm -rf "$work/made" && mkdir "$work/made"
        good "$name" "${args[@]}" && { grep -Eq -- "$pattern" "$work/err" || fail "$name: no /$pattern/ in: $(cat "$work/err")"; }
    fi
}

# A profile of another model is refused; the message tells fingerprint and shape of this one.
make "$work/foreign/srh.json" srh 000000000000000000000000000000ff
checked bad 'foreign profile' 'made for another model' --policy compresskv --budget 64 --profile "$work/foreign"
print=$(sed -n 's/.*this model has \([0-9a-f]\{32\}\).*/\1/p' "$work/err")
numbers=$(sed -n 's/.*this model has [0-9a-f]*, \([0-9]*\), \([0-9]*\) and \([0-9]*\);.*/\1 \2 \3/p' "$work/err")
[ -n "$print" ] && [ -n "$numbers" ] || fail "no fingerprint in: $(cat "$work/err")"
for d in 8 16 32 64 128; do
    shape="$numbers $d"
    make "$work/try.json" srh "$print"
    mapfile -t args < <(plan --policy compresskv+uniform --budget 64 --profile "$work/try.json")
    mkdir -p "$work/made"
    "$WINNOW" "${args[@]}" >"$work/out" 2>"$work/err" </dev/null && break
done

# Nothing anywhere: one line with the kinds, the places, and how to make them.
checked bad 'no profile' 'kind srh and layers .*cache/profiles/tiny-llama.*winnow calibrate srh.*winnow calibrate layers' \
    --policy compresskv --budget 64
checked bad 'layers only' 'of kind layers for' --policy compresskv:heads=all --budget 64
checked good 'no profile needed' . --policy compresskv:heads=all+uniform --budget 64
checked good 'wanted, not needed' 'warning: no calibration profile of kind compiler' --policy compilerkv --budget 64

# A file, the rest from the cache folder; a folder of this model; a folder of several.
make "$work/one/srh.json" srh "$print"
make "$work/one/layers.json" layers "$print"
checked bad 'one kind of two' 'of kind layers for' --policy compresskv --budget 64 --profile "$work/one/srh.json"
checked good 'a folder' 'kept 64.0' --policy compresskv --budget 64 --profile "$work/one"
cp "$work/made/plan.json" "$work/first.json"
mkdir -p "$work/many" "$work/cache/profiles"
cp -r "$work/one" "$work/many/tiny-llama"
checked good 'a folder of models' 'kept 64.0' --policy compresskv --budget 64 --profile "$work/many" &&
    same 'same profile, same plan' "$work/first.json" "$work/made/plan.json"
cp -r "$work/one" "$work/cache/profiles/tiny-llama"
checked good 'the cache folder' 'kept 64.0' --policy compresskv --budget 64 &&
    same 'same profile, same plan' "$work/first.json" "$work/made/plan.json"
checked good 'one file and the cache' 'kept 64.0' --policy compresskv --budget 64 --profile "$work/one/srh.json"

# A profile that was found by the model's name is an input, which no output replaces.
cp "$work/cache/profiles/tiny-llama/srh.json" "$work/srh.before"
bad 'plan over a profile that was found' 'srh.json. is an input' plan -m "$model" --tokens "$work/ids" --policy compresskv --budget 64 -o "$work/cache/profiles/tiny-llama/srh.json"
same 'the profile is there' "$work/srh.before" "$work/cache/profiles/tiny-llama/srh.json"

# Bad files.
checked bad 'no such profile' "cannot read '/nonexistent'" --policy compresskv --budget 64 --profile /nonexistent
head -c 200 "$work/one/srh.json" >"$work/cut.json"
checked bad 'truncated' 'cut.json.*not JSON' --policy compresskv --budget 64 --profile "$work/cut.json"
checked bad 'truncated, though nothing needs it' 'cut.json.*not JSON' --policy snapkv --budget 64 --profile "$work/cut.json"
mkdir -p "$work/wrong"
cp "$work/one/layers.json" "$work/wrong/srh.json"
checked bad 'wrong kind under a name' 'does not hold a profile of kind srh' --policy compresskv --budget 64 --profile "$work/wrong"
checked bad 'not a file' 'neither a file nor a folder' --policy compresskv --budget 64 --profile /dev/null

# Tables of several budgets: the nearest in ratio; one that is far off is refused.
for b in 40 100 400; do
    make "$work/tables/compiler-b$b.json" compiler "$print" budget=$b window=16
done
echo junk >"$work/tables/compiler-bx.json"
checked good 'nearest: 100 for 70' 'made for a budget of 100, not 70' --policy compilerkv:window=16 --budget 70 --profile "$work/tables"
checked good 'nearest: 40 for 60' 'made for a budget of 40, not 60' --policy compilerkv:window=16 --budget 60 --profile "$work/tables"
checked good 'exact' 'kept' --policy compilerkv:window=16 --budget 100 --profile "$work/tables" &&
    { grep -q 'made for' "$work/err" && fail "a warning where the budget is exact: $(cat "$work/err")"; }
checked good 'by ratio' 'made for a budget of 100, not 90' --policy compilerkv:window=16 --ratio 0.7 --profile "$work/tables"
checked bad 'far off' 'made for a budget of 40' --policy compilerkv:window=16 --budget 19 --profile "$work/tables"
checked bad 'another window' 'window=16' --policy compilerkv --budget 100 --profile "$work/tables"
make "$work/other/compiler-b100.json" compiler 000000000000000000000000000000ff window=16 budget=100
checked bad 'tables of another model' 'force=1' --policy compilerkv:window=16 --budget 100 --profile "$work/other"
checked good 'tables of another model, wanted' 'kept' --policy compilerkv:window=16,force=1 --budget 100 --profile "$work/other"

# Files of other programs: taken by shape, with a warning.
python3 - "$work/one/layers.json" >"$work/shares.json" <<'PY'
import json, sys
print(json.dumps({"avg_score": [3 * x for x in json.load(open(sys.argv[1]))["results"]["avg_score"]]}))
PY
checked good 'foreign format' "warning: profile 'shares.json': a published file" --policy compresskv --budget 64 --profile "$work/shares.json" &&
    same 'scaled to the same shares' "$work/first.json" "$work/made/plan.json"

finish
