"""Studies of the chapter ``book/red-team``."""
