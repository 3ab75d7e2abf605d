"""Studies of the chapter ``book/loda``."""
