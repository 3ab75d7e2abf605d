"""Studies of the chapter ``book/generative-priors``."""
