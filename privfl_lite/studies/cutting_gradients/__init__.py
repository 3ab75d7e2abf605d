"""Studies of the chapter ``book/cutting-gradients``."""
