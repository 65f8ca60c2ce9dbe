# SPDX-License-Identifier: MIT
# docs/reference/methods.md is the command's output, and the command prints all methods.
. "$(dirname "$0")/lib.sh"

costs=()
[ -f docs/reference/methods-cost.csv ] && costs=(--costs docs/reference/methods-cost.csv)
good 'markdown' methods --markdown "${costs[@]}" && {
    cmp -s "$work/out" docs/reference/methods.md ||
        fail "docs/reference/methods.md is out of date, run make docs: $(diff docs/reference/methods.md "$work/out" | head -5)"
    cp "$work/out" "$work/page"
}
# The tree of questions is drawn from its last table, and has no more than six.
python3 scripts/choice_tree.py --check <"$work/page" 2>"$work/err" || fail "docs/images/choice.svg: $(cat "$work/err")"
python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' docs/images/choice.svg || fail 'choice.svg is no XML'
sed 's/`keydiff-shares`/`keydiff-other`/' "$work/page" | python3 scripts/choice_tree.py --check 2>/dev/null && fail 'another choice is the same picture'
awk '{ print } /^\| everything else/ { for (i = 0; i < 4; i++) print "| question " i " | `full` | | |" }' "$work/page" | python3 scripts/choice_tree.py --check 2>"$work/err"
grep -q 'at most 6' "$work/err" || fail "nine questions: $(cat "$work/err")"
# Every preset has a row, and a recipe that is it unless its name is a scorer's. Every part has a section and says what it computes.
good 'list' methods && {
    for name in $(awk '/^Presets:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' "$work/out"); do
        grep -q "^| \`$name\` |" "$work/page" || fail "preset $name has no row"
    done
    awk '/^## Recipes of presets/ { on = 1; next } /^#/ { on = 0 } on && /^\| `/ { gsub(/`/, ""); print $2, $4 }' "$work/page" >"$work/recipes"
    [ -s "$work/recipes" ] || fail 'no recipes of presets'
    while read -r name recipe; do
        [ "$("$winnow" methods "$name" | grep '^  recipe ')" = "$("$winnow" methods "$recipe" | grep '^  recipe ')" ] || fail "$recipe is not $name"
    done <"$work/recipes"
    for name in $(awk '/^Scorers:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' "$work/out"); do
        grep -qx "### Scorer $name" "$work/page" || fail "scorer $name has no section"
    done
}
awk '/^### (Scorer|Layer|Head|Selector)/ { if (name && n < 2) print name; name = $0; n = 0 }
     /^## / { if (name && n < 2) print name; name = "" }
     name && /^[^#|]/ && !/^(Paper|Observes):/ { n++ }' "$work/page" >"$work/bare"
[ ! -s "$work/bare" ] || fail "parts without details: $(cat "$work/bare")"

# A recipe that is no method's name: its shortest form, the long one, and every part with its values.
good 'recipe' methods snapkv:window=16+head=adakv && {
    head -1 "$work/out" | grep -qx 'adakv:window=16 (recipe)' || fail "not the shortest form: $(head -1 "$work/out")"
    grep -q '^  recipe     snapkv:window=16,kernel=7,.*+adakv:alpha_safeguard=0.2,' "$work/out" ||
        fail "no long form: $(sed -n 2p "$work/out")"
    grep -q '^      window .*\[16, whole number 1 to 4096\]$' "$work/out" || fail "not the value of the recipe: $(grep window "$work/out")"
    grep -q '^    head budget adakv: ' "$work/out" || fail "a part is missing: $(cat "$work/out")"
}
bad 'a part of a recipe' 'unknown' methods snapkv+nothing

# Measured costs find their preset; a table of something else is refused.
cat >"$work/costs.csv" <<'EOF'
# some machine
model,recipe,n,ratio,plain_ms,plain_min,plain_max,read_ms,read_min,read_max,observe_ms,observe_min,observe_max,score_ms,score_min,score_max,select_ms,select_min,select_max,compact_ms,compact_min,compact_max,percent,percent_min,percent_max,extra_mib,whole_cache,rounds,why
m,"snapkv",4096,0.5,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,9.99,1,1,1,0,3,""
m,"snapkv",8192,0.5,1000,1,1,7,7,7,10,1,1,20,1,1,30,1,1,40,1,1,10.70,10.10,11.20,17.31,0,3,""
m,"headkv",8192,0.5,,,,,,,,,,,,,,,,,,,,,,,1,3,"needs a profile: heads"
EOF
good 'costs' methods --markdown --costs "$work/costs.csv" && {
    grep -qF '| `snapkv` | 7 | 10 | 20 | 30 | 40 | 10.7 (10.1 to 11.2) | 17.31 | no |' "$work/out" ||
        fail "no costs: $(grep -A9 '^## Costs' "$work/out")"
    grep -qF '| `headkv` | needs a profile: heads | | | | | | | yes |' "$work/out" ||
        fail "not what was left out: $(grep -A9 '^## Costs' "$work/out")"
}
echo 'a,b' >"$work/other.csv"
bad 'not a table of costs' 'bench methods' methods --markdown --costs "$work/other.csv"
bad 'costs without markdown' 'markdown' methods --costs "$work/costs.csv"
bad 'markdown of one' 'leave out' methods snapkv --markdown
finish
