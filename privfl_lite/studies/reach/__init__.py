"""Studies of the chapter ``book/reach``."""
