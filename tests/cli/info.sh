# SPDX-License-Identifier: MIT
# Help and lists.
. "$(dirname "$0")/lib.sh"

good version --version && { grep -Eqx 'winnow [0-9]+\.[0-9]+\.[0-9]+' "$work/out" || fail 'version'; }
good help --help
for command in run plan tokens methods models ppl bench; do
    grep -q "^  $command " "$work/out" || fail "help does not name $command"
done
for command in run plan tokens methods models ppl bench; do
    good "help $command" help "$command" && cp "$work/out" "$work/help"
    good "$command --help" "$command" --help && same "help $command" "$work/help" "$work/out"
    grep -q -- '--help' "$work/out" || fail "$command --help does not name --help"
    good "$command --help-all" "$command" --help-all
    grep -Eq '\[(none|off)\]' "$work/out" && fail "$command --help-all shows a default that says nothing"
    [ "$(awk 'length > n {n = length} END {print n}' "$work/out")" -le 80 ] || fail "$command --help-all: a line of more than 80 columns"
    # What --help leaves out it counts, and it names no option that --help-all lacks.
    short=$(grep -Ec '^  (-|    --)' "$work/help") all=$(grep -Ec '^  (-|    --)' "$work/out")
    if [ "$short" -lt "$all" ]; then
        grep -q "has $((all - short)) more options" "$work/help" || fail "$command --help: $short of $all options, and another number is said"
    fi
    [ "$short" -le 12 ] || fail "$command --help has $short options"
done
for family in calibrate store profile ctl; do
    good "$family --help" "$family" --help && cp "$work/out" "$work/help"
    good "help $family" help "$family" && same "help $family" "$work/help" "$work/out"
    grep -Eq "^  $family [a-z]+ +[A-Z]" "$work/out" || fail "$family --help lists nothing: $(cat "$work/out")"
    grep -E '^  [a-z]' "$work/out" | grep -qv "^  $family " && fail "$family --help lists other commands"
done
good 'help bench' help bench && grep -q '^usage: winnow bench \[' "$work/out" || fail 'a command is no family'
good 'no command'
[ "$(wc -l <"$work/out")" -eq 10 ] || fail "winnow alone prints $(wc -l <"$work/out") lines"
bad 'a family with a word that is none' 'needs one of' calibrate nothing --help
good 'all options of run' run --help-all
for option in --model --file --tokens --prompt --policy --budget --ratio --kv-bytes --kv-type --kv-tail --kv-rotate --context-only --evict \
    --evict-every --profile --attn --seed --temp --threads --raw --chat --system --json; do
    grep -q -- "$option" "$work/out" || fail "run --help does not name $option"
done
grep -q 'snapkv' "$work/out" || fail 'run --help does not name a policy'

good methods methods
for name in full streaming_llm snapkv tova knorm lagkv adakv pyramidkv kvpress-snapkv topk; do
    grep -q "^  $name " "$work/out" || fail "methods does not list $name"
done
good 'methods snapkv' methods snapkv
for word in 2404.14469 composite window kernel 'recipe'; do
    grep -q -- "$word" "$work/out" || fail "methods snapkv does not say $word"
done
# Every part of a preset, with the preset's values and not the part's defaults.
good 'methods pyramidkv' methods pyramidkv
for words in '^    scorer snapkv: ' '^    head aggregation group_mean: ' '^    layer budget pyramid: ' '^    head budget equal: ' \
    '^    selector topk: ' '^      window .* \[8, whole number' '^      beta .* \[20, '; do
    grep -q -- "$words" "$work/out" || fail "methods pyramidkv does not say '$words'"
done
WINNOW_CACHE=$work/cache good models models
for name in smollm2-135m qwen2.5-coder-0.5b qwen2.5-coder-1.5b gemma-3-270m; do
    grep -Eq "^$name +no .*$work/cache/models/$name.gguf" "$work/out" || fail "models does not list $name"
done
grep -q 'smollm2-135m.*default' "$work/out" || fail 'models does not say which is the default'
mkdir -p "$work/cache/models" && echo x >"$work/cache/models/gemma-3-270m.gguf"
WINNOW_CACHE=$work/cache good 'models with a file' models
grep -Eq '^gemma-3-270m +yes' "$work/out" || fail 'models does not see a file'
finish
