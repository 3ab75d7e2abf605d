"""Speed, measured side by side: ``make bench`` makes one run; README.md here says what it found."""
