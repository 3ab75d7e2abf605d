"""Studies of the chapter ``book/dcs2``."""
