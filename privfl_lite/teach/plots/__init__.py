"""Plots and look-ups that are longer than a chapter should show, one file per chapter."""
