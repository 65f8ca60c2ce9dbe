#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Does calibration help? Answers questions with heads masked and with caches that calibrated and uncalibrated policies
# compress, and prints tables. What the folder holds already is not computed again, so that
# an interrupted study goes on with the same command. On one core and SmolLM2-135M it takes about three quarters of an hour.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: scripts/calibration_study.sh MODEL OUT [--samples N] [--length N] [--threads T] [--profile PATH]
                                    [--budgets LIST] [--docs FILE]
MODEL: a GGUF file or a name from `winnow models`; it needs profiles of the kinds srh, layers and heads, and one of
kind compiler for the last table (`winnow calibrate KIND -m MODEL`). OUT: a folder for the runs of `winnow eval`.
--samples: questions per cell (50). --length: tokens of a prompt (1024). --budgets: entries that CompressKV, HeadKV and
AdaKV keep (256,512). --docs: a file whose section between the marks that calibration_tables.py names is replaced. WINNOW in the
environment is the command (build/winnow).
TEXT
}

samples=50 length=1024 budgets=256,512 docs=''
threads=() profile=() rest=()
while [ $# -gt 0 ]; do
    case $1 in
    --samples) samples=$2 && shift 2 ;;
    --length) length=$2 && shift 2 ;;
    --budgets) budgets=$2 && shift 2 ;;
    --threads) threads=(-t "$2") && shift 2 ;;
    --profile) profile=(--profile "$2") && shift 2 ;;
    --docs) docs=$2 && shift 2 ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) rest+=("$1") && shift ;;
    esac
done
[ ${#rest[@]} -eq 2 ] || { usage >&2 && exit 2; }
model=${rest[0]} out=${rest[1]} winnow=${WINNOW:-build/winnow}
mkdir -p "$out"

# study NAME OPTIONS...: one run of the evaluation. Its text is generated and repeats nothing; a needle is one number.
study() {
    local name=$1
    shift
    echo "$name ..." >&2
    "$winnow" eval -m "$model" "${threads[@]}" "${profile[@]}" --tasks niah_single_2 --lengths "$length" \
        --samples "$samples" --no-gate --out "$out/$name" "$@" >"$out/$name.txt"
}
# joined SEPARATOR WORDS...
joined() {
    local IFS=$1
    shift
    echo "$*"
}

# Masked heads: the best ones by either score, and as many of those outside the 100 best, drawn three times. Fewer than
# the paper's 10 show where the answers begin to suffer.
masks=()
for n in 3 10 20 30; do
    masks+=("srh:top$n" "trad:top$n")
    for seed in 1 2 3; do masks+=("random:$n:$seed:100"); done
done
study masks --policies full --mask-phase decode --mask-heads "$(joined / "${masks[@]}")"
study masks_reading --policies full --mask-phase all --mask-heads srh:top20/trad:top20/random:20:1:100

# CompressKV: which heads choose, how many, and whether layers share the budget by their errors; heads that share by
# importance compared with heads that compete.
heads=(heads=srh heads=traditional heads=all)
for seed in 1 2 3 4 5; do heads+=("heads=random,seed=$seed"); done
policies=(paper-compresskv-snapkv)
for head in "${heads[@]}"; do policies+=("compresskv:$head+uniform" "compresskv:$head"); done
for k in 2 4 6; do policies+=("compresskv:k=$k+uniform"); done
policies+=(headkv adakv criticalkv-headkv criticalkv-adakv)
study heads --policies "$(joined , "${policies[@]}")" --budgets "$budgets" --modes aware_full

# Heads that stream: calibrated, or judged from the prompt; random entries as the floor.
study streams --policies duoattention,duoattention-prompt,random --ratios 0.5,0.7 --modes aware_full

# CompilerKV and its ablations, where there is a table.
has_table() {
    if [ ${#profile[@]} -eq 0 ]; then
        ! "$winnow" methods compilerkv -m "$model" | grep -q 'compiler .*: none for'
    else
        compgen -G "${profile[1]}/compiler*.json" >/dev/null || compgen -G "${profile[1]}/*/compiler*.json" >/dev/null
    fi
}
if has_table; then
    study compiler --budgets 256 --modes aware_full \
        --policies paper-compilerkv,paper-compilerkv-no_risk,paper-compilerkv-strict,paper-compilerkv-strict-no_heads,paper-compilerkv-strict-raw,paper-compilerkv-strict-attention
else
    echo 'compiler: left out, there is no profile of kind compiler' >&2
fi

python3 scripts/calibration_tables.py --winnow "$winnow" --docs "$docs" "$out"
