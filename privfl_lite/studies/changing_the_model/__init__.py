"""Studies of the chapter ``book/changing-the-model``."""
