"""Studies of the chapter ``book/modelcloak-fixed``."""
