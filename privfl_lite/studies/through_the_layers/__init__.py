"""Studies of the chapter ``book/through-the-layers``."""
