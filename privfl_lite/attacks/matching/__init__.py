"""Gradient matching: DLG, iDLG, GS, and every search that is made of the same parts."""
