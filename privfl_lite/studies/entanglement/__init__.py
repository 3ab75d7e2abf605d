"""Studies of the chapter ``book/entanglement``."""
