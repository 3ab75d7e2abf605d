"""Figures and panels that take more than a few lines, one module a chapter."""
