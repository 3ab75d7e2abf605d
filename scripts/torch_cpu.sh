#!/bin/sh
# Usage: torch_cpu.sh PYTHON. Install PyTorch's CPU builds of torch and torchvision, in the versions
# of requirements.txt. Their index is asked for these two and nothing else: beside the usual one, as
# an extra index, it could serve any package of any name. Their SHA-256 are not known to us.
set -eu
cd "$(dirname "$0")/.."
# shellcheck disable=SC2046
"$1" -m pip install -q --no-deps --only-binary=:all: \
    --index-url https://download.pytorch.org/whl/cpu \
    $(grep -E '^(torch|torchvision)==' requirements.txt)
