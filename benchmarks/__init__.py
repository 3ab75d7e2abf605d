"""Speed, measured side by side: ``make bench`` makes one run; README.md here says what it found."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler, else, speaks on standard error
