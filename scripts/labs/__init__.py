"""Labs for a class, made from one text source each, ``labs/src/<slug>.md`` (`make labs`).

``source`` turns a source into otter-assign's master notebook, with the data and the key of one
class; ``build`` has Otter make a student's notebook, an autograder and a solution from it.
"""
