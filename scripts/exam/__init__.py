"""An exam of two hours whose numbers are a class's own: `make instructor SECRET=…` writes it.

Two pages: the questions, and the same with answers and points for the grader.
"""
