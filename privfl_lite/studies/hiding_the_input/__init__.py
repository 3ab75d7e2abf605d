"""Studies of the chapter ``book/hiding-the-input``."""
