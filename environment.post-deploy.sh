#!/usr/bin/env bash
# Installs AdaFuse itself into the conda environment of environment.yml. `snakemake --sdm conda` runs this
# in the environment that it has made.
set -euo pipefail

# A clone, a wheel, or what else pip takes; without it, the folder in which Snakemake runs.
adafuse=${ADAFUSE:-.}
if [ "$adafuse" = . ] && ! grep -qs '^name = "adafuse"' pyproject.toml; then
  echo "error: $PWD is not a clone of AdaFuse; set ADAFUSE to a clone or a wheel of it" >&2
  exit 1
fi
python -m pip install --no-deps "$adafuse"
