"""The wire: what leaves a client, and what the server knows of it. Types only.

An attack sees an ``Upload`` and nothing else, so the threat model is this class. Whatever the
server holds by its role is a field: the model it sent, the rules of training it set (``Plan``), the
number of examples a client reports. Anything more, such as the labels or the level of the noise, is
granted by name with ``knows=`` and then stands in ``upload.knows`` (``Facts``).
"""

from .facts import Clip, Facts, Noise
from .plan import Plan
from .upload import Upload

__all__ = ["Clip", "Facts", "Noise", "Plan", "Upload"]
