"""Challenges 11 and 12: open problems of the book. The flags are true, and nobody has them."""

from __future__ import annotations

from .base import Challenge, Hint
from .sending import LENET_TEXT, digits, lenet, sent

WALL = Challenge(
    name="the-wall",
    title="The wall",
    story="Sixteen digits stand behind one gradient of an untrained LeNet with sigmoids: more "
    "numbers on the wire than pixels. With 400 evaluations our searches name hardly any of them.",
    granted="One gradient of sixteen digits, and the LeNet with its weights.",
    letter="B",
    points=1000,
    hints=(
        Hint("What our searches reach at 1 to 32 images is in the figure of the chapter Reach "
             "on the LeNet.", 50),
        Hint("Count first: 13,426 numbers against 16 · 784 pixels, and the labels can be "
             "counted as in head-count.", 50),
        Hint("Nobody can tell you the last step. The book's searches had 400 evaluations and one "
             "start; more of both, with labels counted beforehand, is the first thing to try.", 50),
    ),
    chapter="reach",
    answer="images",
    uploads=1,
    batch=16,
    private=digits(16),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet, each=16),
    open=True,
)  # fmt: skip

CONCEALED = Challenge(
    name="two-by-two",
    title="Two by two",
    story="DCS² hides a sensitive image behind a crafted one, and for one image algebra tells them "
    "apart. Here each client has two, and four mix where the algebra knows two.",
    granted="Four gradients, each of two sensitive digits and two concealed samples, crafted with "
    "100 steps of DCS²; the LeNet with its weights.",
    letter="B",
    points=1000,
    hints=(
        Hint("The rank-two argument for one image is proved in the chapter on DCS²; read what it "
             "uses the ten classes for.", 50),
        Hint("With two sensitive images the last layer's gradient has rank four.", 50),
        Hint("Not known to work. The verdict on DCS² in the chapter The red team says what was "
             "tried, and where it stopped.", 50),
    ),
    chapter="red-team",
    answer="images",
    uploads=4,
    batch=2,
    private=digits(8),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet, each=2, defense="dcs2:steps=100"),
    open=True,
)  # fmt: skip
