"""Studies of the chapter ``book/first-answers``."""
