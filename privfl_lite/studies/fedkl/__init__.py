"""Studies of the chapter ``book/fedkl``."""
