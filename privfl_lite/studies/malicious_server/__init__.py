"""Studies of the chapter ``book/malicious-server``."""
