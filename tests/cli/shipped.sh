# SPDX-License-Identifier: MIT
# The profiles that come with the command: found without any option, whole, of the model they are named after.
. "$(dirname "$0")/lib.sh"
need_file "$models/smollm2-135m.gguf"
mkdir -p "$work/cache/models"
seq 400 | awk '{ print 500 + ($1 * 37) % 900 }' >"$work/ids"
checked=0
for file in share/profiles/*/*.json; do
    good "show $file" profile show "$file"
    json "$file: made by the command" "$file" '"effort" in o["settings"] and o["data"]["texts"][0]["name"] == "calibration.txt"'
    checked=$((checked + 1))
done
[ "$checked" -ge 1 ] || fail "only $checked profiles"
for policy in qfilters expected_attention-stats headkv duoattention; do
    kind=stats
    case $policy in headkv | duoattention) kind=heads ;; esac
    [ -f "share/profiles/smollm2-135m/$kind.json" ] || continue
    WINNOW_CACHE=$work/cache good "$policy" plan -m "$models/smollm2-135m.gguf" --tokens "$work/ids" --policy "$policy" --budget 200 -o "$work/plan.json"
done
finish
