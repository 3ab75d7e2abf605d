"""What the labs of ``labs/src`` stand on: a module for each lab, and ``kit``, which they share.

A module has ``handout(key)``, the tensors that students of a class get, and checks. A check is
visible with the key ``PRACTICE`` and hidden with the key of the class; the cases differ. Nothing
here is secret, because keys are drawn from a class's secret (``teach.classroom``).
"""
