"""Studies of the chapter "Your own run"."""
