"""Studies of the chapter ``book/matching-gradients``."""
