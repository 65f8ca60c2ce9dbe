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
for file in smollm2-135m/{srh,layers,heads,stats,compiler-b512,curves} qwen2.5-coder-0.5b/{srh,layers,heads,stats,compiler-b512,curves}; do
    [ -f "share/profiles/$file.json" ] || fail "there is no profile $file"
done
for policy in qfilters expected_attention-stats headkv criticalkv-headkv duoattention compresskv compresskv-traditional compilerkv lukv; do
    WINNOW_CACHE=$work/cache good "$policy" plan -m "$models/smollm2-135m.gguf" --tokens "$work/ids" --policy "$policy" --budget 256 -o "$work/plan.json"
done
finish
