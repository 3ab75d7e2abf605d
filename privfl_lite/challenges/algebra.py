"""Challenges 1 to 4: what a last layer and a dense first layer say by themselves."""

from __future__ import annotations

from .base import Challenge, Hint
from .sending import DENSE_TEXT, LENET_TEXT, WIDE_TEXT, dense, digits, lenet, sent, wide

LABELS = Challenge(
    name="first-word",
    title="The first word",
    story="Twenty-four people each wrote one digit and sent one gradient. Nobody has looked at a "
    "pixel yet, and the last layer has said too much.",
    granted="24 gradients of one digit each, in order, and the network with its weights.",
    letter="A",
    points=50,
    hints=(
        Hint("Look at the last layer's bias gradient: what signs does it have?", 5),
        Hint("For softmax with cross-entropy it is p − e_y, and p lies between 0 and 1.", 10),
        Hint("pf.attacks.infer_label(upload) does it for a layer behind a sigmoid.", 15),
    ),
    chapter="why-gradients-leak",
    answer="labels",
    uploads=24,
    batch=1,
    private=digits(24),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet),
)

DIVISION = Challenge(
    name="one-division",
    title="One division",
    story="Four clients trained a network of two dense layers on one digit each. Their gradients "
    "hold the digits themselves, on every row, times something.",
    granted="Four gradients of one digit each, and the network with its weights.",
    letter="A",
    points=50,
    hints=(
        Hint("For z = W x + b, write ∂ℓ/∂W and ∂ℓ/∂b with ∂ℓ/∂z.", 5),
        Hint("Row i of one is x times entry i of the other. Which rows can you divide?", 10),
        Hint("pf.attacks.ClosedForm() takes the row with the largest bias gradient.", 15),
    ),
    chapter="why-gradients-leak",
    answer="images",
    uploads=4,
    batch=1,
    private=digits(4),
    network=dense,
    network_text=DENSE_TEXT,
    send=sent(dense),
)

COUNTS = Challenge(
    name="head-count",
    title="Head count",
    story="Eight clients each averaged eight digits, so that no gradient is anybody's. Say how "
    "often each digit stands behind each of them.",
    granted="Eight gradients of eight digits each, in order, and the network with its weights.",
    letter="B",
    points=100,
    hints=(
        Hint("The bias gradient is the mean of p − e_y over the batch, so its entries are "
             "(sum of p_c − count of c) / 8.", 10),
        Hint("The network is untrained: p is nearly the same for every input, noise included.", 15),
        Hint("pf.attacks.infer_labels(upload), by probes, and its counts add up to 8.", 25),
    ),
    chapter="why-gradients-leak",
    answer="labels",
    uploads=8,
    batch=8,
    private=digits(64),
    network=dense,
    network_text=DENSE_TEXT,
    send=sent(dense, each=8),
)  # fmt: skip

ZEROS = Challenge(
    name="in-a-crowd",
    title="Alone in a crowd",
    story="Eight digits stand behind one gradient of a wide ReLU layer, mixed in every row. Some "
    "units saw one digit alone; the rest must be found by counting zeros.",
    granted="One gradient of eight digits, and the network with its weights.",
    letter="B",
    points=150,
    hints=(
        Hint("Divide row by row again, and look which quotients come twice: they are digits.", 15),
        Hint("Units that are off for a digit have rows in the span of the other seven. Seven such "
             "rows give a direction in which many more vanish.", 20),
        Hint("pf.attacks.Spear().run(upload) does just that, exact for eight digits.", 35),
    ),
    chapter="reach",
    answer="images",
    uploads=1,
    batch=8,
    private=digits(8),
    network=wide,
    network_text=WIDE_TEXT,
    send=sent(wide, each=8),
)  # fmt: skip
