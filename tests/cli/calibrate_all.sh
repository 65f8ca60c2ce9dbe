# SPDX-License-Identifier: MIT
# winnow calibrate all, from a model without profiles to one that has all: what cannot be measured keeps nothing else
# from being made, and what is there is left alone. Tiny models answer no question, so the kinds that ask some fail until
# profiles with fed answers are there.
. "$(dirname "$0")/lib.sh"
calibrates
folder=$work/profiles
mkdir "$folder"
# Few probes are enough to find no answers, and short texts give every kind something to measure.
few=facts=2,lengths=1,depths=2
short=stats.pieces=2,stats.length=256,curves.length=256,curves.questions=2,shares.shortest=200,shares.longest=300,shares.extra=400
short+=,gate.pieces=2,gate.length=256,inputgate.pieces=2,inputgate.length=256,layers.length=256,layers.generate=8
all=(calibrate all -m "$model" -o "$folder" --effort quick -t 1 --set "srh.${few//,/,srh.},heads.${few//,/,heads.},$short")
# made KIND...: the folder has these profiles and nothing else.
made() {
    local name=$1 want
    shift
    want=$(printf '%s.json\n' "$@" | sort)
    [ "$(ls "$folder" | sort)" = "$want" ] || fail "$name: the folder has $(ls "$folder" | tr '\n' ' ')"
}
# all_fails NAME: exit code 2.
all_fails() {
    local code
    "$WINNOW" "${all[@]}" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ "$code" -eq 2 ] || fail "$1: exit code $code, expected 2: $(cat "$work/err")"
}
# says NAME PATTERN...: all of them are on stderr.
says() {
    local name=$1 pattern
    shift
    for pattern in "$@"; do
        grep -Eq -- "$pattern" "$work/err" || fail "$name: no /$pattern/ in: $(cat "$work/err")"
    done
}

bad 'not a folder' '-o .*nowhere is not a folder; all profiles go to one' calibrate all -m "$model" -o "$work/nowhere"

for set in srh.facts=2,facts=2 nosuch.facts=2 all.facts=2 srh; do
    bad "--set $set" "--set '(facts=2|nosuch.facts=2|all.facts=2|srh)' is no setting of a kind" calibrate all -m "$model" -o "$folder" --set $set
done

# CompilerKV's tables take longest; few trials are enough here.
good 'small tables' calibrate compiler -m "$model" -f "$text" -o "$folder/" --budget 512 -t 1 \
    --set items=4,held_out=2,length=1024,next=12,head_trials=4,tau_trials=4,entropy_bins=2
cp "$folder/compiler-b512.json" "$work/tables"

# Two kinds ask the model and get no answer; a third reads the profile of one of them.
all_fails 'no answers'
says 'no answers' 'answers none of 4 probes, so there is nothing to score' 'answers none of 4 probes, so there is nothing to measure' \
    'compresskv\+uniform needs a calibration profile of kind srh' 'compiler is there: .*compiler-b512\.json'
made 'no answers' compiler-b512 curves gate inputgate shares stats
same 'tables that were there' "$work/tables" "$folder/compiler-b512.json"

# With answers that are fed, by commands of their own.
for kind in srh heads; do
    good "fed $kind" calibrate "$kind" -m "$model" -f "$text" -o "$folder/" -t 1 --set $few,longest=600,steps=6,forced=always
done
cp "$folder"/{stats,curves,shares,gate,inputgate}.json "$work/"
good 'the rest' "${all[@]}" && says 'the rest' 'srh is there' 'heads is there' 'stats is there' 'curves is there' 'shares is there' 'gate is there' 'inputgate is there' 'wrote .*layers\.json'
made 'the rest' compiler-b512 curves gate heads inputgate layers shares srh stats
for kind in stats curves shares gate inputgate; do
    same "$kind, which was there" "$work/$kind.json" "$folder/$kind.json"
done

# Every preset finds what it reads now.
ids 300 >"$work/ids"
for policy in compresskv compresskv-traditional compilerkv headkv duoattention:sinks=16 lukv keydiff-shares kvgate kvzap triattention qfilters expected_attention-stats; do
    good "$policy" plan -m "$model" --tokens "$work/ids" --policy "$policy" --budget 260 --profile "$folder" -o "$work/plan.json"
done
good 'nothing to do' "${all[@]}"
[ -s "$work/out" ] && fail "nothing to do, and it reports: $(cat "$work/out")"
[ "$(grep -c 'is there: ' "$work/err")" -eq 9 ] || fail "nothing to do: $(cat "$work/err")"
finish
