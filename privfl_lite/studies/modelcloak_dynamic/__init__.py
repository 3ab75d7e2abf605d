"""Studies of the chapter ``book/modelcloak-dynamic``."""
