"""Studies of the chapter ``book/measuring-leakage``."""
