#!/bin/sh
# Usage: setup.sh VENV. Create the virtual environment and install the package into it.
# pip's output goes to VENV/install.log and is shown only if something fails.
# PRIVFL_TORCH=cpu takes torch and torchvision, and nothing else, from PyTorch's index of CPU builds.
set -eu
venv=$1
log=$venv/install.log

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "privfl_lite needs Python 3.11 or newer, and none was found." \
        "Install one, or name it: make book PYTHON=/path/to/python3.11" >&2
    exit 1
}

fail() {
    [ ! -f "$log" ] || tail -n 40 "$log" >&2
    echo "$1" >&2
    exit 1
}

case ${PRIVFL_TORCH:-} in
cpu) size="0.45 GB" ;;
"") size="3 GB on Linux with PyTorch's build for GPUs, else 0.45 GB: see requirements.txt" ;;
*) fail "PRIVFL_TORCH is '$PRIVFL_TORCH'; it may be cpu, or not set" ;;
esac
sh scripts/ask.sh "About to install into the folder $venv, and nowhere else: the \
$(grep -c == constraints.txt) Python packages of constraints.txt (a download of $size) and this one." ||
    exit 1

# A folder that was moved or whose Python is gone cannot be repaired, only made again.
if [ -e "$venv" ] && ! "$venv/bin/pip" --version >/dev/null 2>&1; then
    rm -rf "$venv"
fi
if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    echo "Creating $venv with $("$python" --version)"
    "$python" -m venv "$venv" ||
        fail "$python could not make a virtual environment (on Debian: apt install python3-venv)."
fi
python=$venv/bin/python
echo "Installing into $venv (first time: a few minutes)"
if [ "${PRIVFL_TORCH:-}" = cpu ]; then
    sh scripts/torch_cpu.sh "$python" >"$log" 2>&1 ||
        fail "The installation of PyTorch's CPU builds failed; the full log is $log"
fi
# Wheels only, so no downloaded code runs before its hash is compared.
"$python" -m pip install -q --only-binary=:all: --report "$venv/report.json" \
    -r requirements.txt -c constraints.txt >>"$log" 2>&1 ||
    fail "The installation failed; the full log is $log"
if ! "$python" -S scripts/hashes.py "$venv/report.json"; then
    rm -rf "$venv"
    fail "What was downloaded is not what we know, so $venv was removed; see above."
fi
"$python" -m pip install -q --no-deps --no-build-isolation -e . >>"$log" 2>&1 ||
    fail "The installation failed; the full log is $log"
