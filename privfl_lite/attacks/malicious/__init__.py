"""Attacks by a server that changes the model it sends."""
