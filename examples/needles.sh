#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Needle questions for the two small chat models at about 1.5K and 4K tokens, as a table and one CSV file per model.
#
#   examples/needles.sh [OUTPUT FOLDER] [options of needles, e.g. --tries 4 --policies full,snapkv,tova]
#
# BUILD names the build folder (build), WINNOW_CACHE the folder of the models (~/.cache/winnow).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-.}
shift || true
program=${BUILD:-build}/examples/needles
models=${WINNOW_CACHE:-$HOME/.cache/winnow}/models
[ -x "$program" ] || { echo "$0: $program is missing; build the examples first: cmake --build ${BUILD:-build}" >&2; exit 2; }
mkdir -p "$out"
for model in smollm2-135m qwen2.5-coder-0.5b; do
    if [ ! -f "$models/$model.gguf" ]; then
        echo "$0: $models/$model.gguf is missing and left out; fetch it with scripts/fetch_models.sh $model" >&2
        continue
    fi
    "$program" -m "$models/$model.gguf" --tokens 1500,4000 --csv "$out/needles-$model.csv" "$@"
done
