"""Attacks that search among the images that a network can draw."""
