"""Attacks by algebra: exact where they apply."""
