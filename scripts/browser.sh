#!/bin/sh
# Usage: browser.sh PYTHON. Install Chromium for the browser tests where that is possible at all.
# The tests find the browser themselves (tests/chromium.py) and skip with a reason without one.
set -u
"$1" tests/chromium.py >/dev/null 2>&1 && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 &&
    sh scripts/ask.sh "No Chromium found: about to try apt-get install chromium"; then
    { apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }
    } >/dev/null 2>&1 </dev/null
fi
"$1" tests/chromium.py >/dev/null 2>&1 || echo "No Chromium: the browser tests will be skipped."
exit 0
