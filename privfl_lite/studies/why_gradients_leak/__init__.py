"""Studies of the chapter ``book/why-gradients-leak``."""
