"""Studies of the chapter ``book/membership``."""
