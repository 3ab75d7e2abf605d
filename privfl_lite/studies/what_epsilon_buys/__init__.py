"""Studies of the chapter ``book/what-epsilon-buys``."""
