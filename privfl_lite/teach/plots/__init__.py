"""Figures and measurements of single chapters that are too long for a page, a file each."""
