#!/usr/bin/env bash
# Exports a layer with jax, binds it with serry to a mesh that has other axis names and another order,
# and runs it in jax there. PYTHON is a Python with jax and flatbuffers, SERRY the binary.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3} serry=${SERRY:-serry}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

"$python" export.py "$out/step.jax"
"$serry" export inspect "$out/step.jax"
"$serry" export inspect "$out/step.jax" --show 0/w

# The job calls its axes tensor and batch, and has them in the other order.
bind=("$serry" export bind "$out/step.jax" --mesh tensor=2,batch=4 --alias batch=data,tensor=model --allow-reorder --tasks 4)
"${bind[@]}"
"${bind[@]}" -o json >"$out/bound.json"
"$python" run.py "$out/step.jax" "$out/bound.json"
