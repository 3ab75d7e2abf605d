"""Studies of the chapter "At a million clients"."""
