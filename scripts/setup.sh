#!/bin/sh
# Usage: setup.sh VENV. Create the virtual environment and install the package into it.
# pip's output goes to VENV/install.log and is shown only if something fails.
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
echo "Installing into $venv (first time: a few minutes; a download of 0.45 GB," \
    "or 3 GB with PyTorch's build for GPUs: see requirements.txt)"
"$venv/bin/python" -m pip install -q -r requirements.txt -c constraints.txt -e . >"$log" 2>&1 ||
    fail "The installation failed; the full log is $log"
