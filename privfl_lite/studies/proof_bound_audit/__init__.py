"""Studies of the chapter "Proof, bound, audit": one axis of noise; an audit of every claim."""
