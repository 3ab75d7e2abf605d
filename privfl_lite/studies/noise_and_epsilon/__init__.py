"""Studies of the chapter ``book/noise-and-epsilon``."""
