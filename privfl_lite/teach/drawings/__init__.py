"""Schematic drawings, one file each, in one hand.

``kit`` has the pen; a drawing is a module with a function ``draw()`` that returns a figure. A
chapter shows it in a folded cell of two lines, with alt text.
"""
