# SPDX-License-Identifier: MIT
# The page of winnow report in a browser: numbers as in the JSON, charts with marks, one look for each policy, nothing that a text from
# outside can become, phone, dark and paper. Runs of one method and of thirty, several runs, the perturbation study.
. "$(dirname "$0")/lib.sh"

if ! command -v chromedriver >/dev/null || ! command -v chromium >/dev/null; then
    skip 'there is no Chromium with chromedriver (scripts/setup.sh browser installs them)'
fi

# One browser opens all pages.
pages=() n=0
# page NAME "MAKE OPTIONS" "REPORT OPTIONS" WORD...
page() {
    n=$((n + 1))
    python3 tests/lib/make_results.py $2 "$work/run$n" || fail "$1: made-up results"
    good "$1" report "$work/run$n" $3 --json && cp "$work/out" "$work/page$n.json"
    pages+=(-- "$work/run$n/report.html" "$work/page$n.json" "${@:4}")
    grep -q "$work" "$work/run$n/report.html" && fail "$1: the page has a path of this machine"
}
page 'a run' '--contrasts' '--compare snapkv,lagkv' few contrasts
page 'hostile texts' '--small --hostile' '' few hostile
page 'one method with few samples' '--one' '' few
page 'options' '--options' '' few options
page 'thirty methods with long names at eight lengths' '--many' '' faint few

python3 tests/lib/make_results.py --small "$work/one"
python3 tests/lib/make_results.py --small --model other "$work/two"
good 'two runs' report "$work/one" "$work/two" -o "$work/both.html" --json && cp "$work/out" "$work/both.json"
pages+=(-- "$work/both.html" "$work/both.json" two few)

need_file "$tiny/tiny-llama.gguf"
good 'perturbation' eval --study perturbation -m "$tiny/tiny-llama.gguf" -t 1 --quiet --lengths 128 --samples 6 --ratios 0.8,0.5 \
    --policies snapkv:window=8,criticalkv:window=8,knorm --json --out "$work/study" && cp "$work/out" "$work/study.json"
grep -q "$work" "$work/study/report.html" && fail 'perturbation: the page has a path of this machine'
pages+=(-- "$work/study/report.html" "$work/study.json" perturbation)

python3 tests/lib/check_page.py "${pages[@]:1}" >"$work/said" 2>&1 || fail "pages: $(tail -n 5 "$work/said")"
finish
