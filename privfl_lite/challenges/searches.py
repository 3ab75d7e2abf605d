"""Challenges 5 to 8: where one must look for what fits, and for whom."""

from __future__ import annotations

import torch

from ..runtime import generator
from ..wire import Plan
from .base import Challenge, Hint, Private, Seeds
from .digits import drawn
from .sending import DENSE_TEXT, LENET_TEXT, dense, digits, lenet, sent

POOL, SUSPECTS = 1000, 8
STEPS = Plan(eta=0.1, steps=4, batch_size=1)


def line_up(seeds: Seeds) -> Private:
    """Eight of a thousand digits; the thousand are known to the attacker."""
    x, y = drawn(POOL, seeds("images"))
    places = torch.randperm(POOL, generator=generator(seeds("places")))[:SUSPECTS]
    return Private(x[places], y[places], x, y, places)


MATCHING = Challenge(
    name="no-formula",
    title="No formula",
    story="Between the pixels and the gradient now lie three convolutions with sigmoids. Nothing "
    "can be divided, so guess an image and ask what it would have sent.",
    granted="Four gradients of one digit each, and the LeNet with its weights.",
    letter="B",
    points=150,
    hints=(
        Hint("Read the label first; then only the pixels are unknown.", 15),
        Hint("Minimize the squared distance of gradients with L-BFGS from several starts, and "
             "keep the lowest cost, not the prettiest picture.", 20),
        Hint("pf.attacks.IDLG(steps=400), or without any search pf.attacks.Recursive().", 35),
    ),
    chapter="matching-gradients",
    answer="images",
    uploads=4,
    batch=1,
    private=digits(4),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet),
)  # fmt: skip

PRUNED = Challenge(
    name="nine-tenths",
    title="Nine tenths are gone",
    story="The clients send the largest tenth of their gradient and zeros in place of the rest. "
    "An attack that believes the zeros sees fog.",
    granted="Four gradients of one digit each, nine tenths of every tensor's entries set to zero, "
    "and the LeNet with its weights.",
    letter="B",
    points=200,
    hints=(
        Hint("A zero here means 'not said'. What does your cost do with it?", 20),
        Hint("Compare entries that were sent, only those; a little smoothness fills what they "
             "leave open.", 30),
        Hint("pf.attacks.Unprune(steps=300).run(upload)", 50),
    ),
    chapter="cutting-gradients",
    answer="images",
    uploads=4,
    batch=1,
    private=digits(4),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet, defense="prune:rate=0.9"),
)  # fmt: skip

NAMED = Challenge(
    name="line-up",
    title="The line-up",
    story="There is noise on every entry, too much for a division to show a digit. But the server "
    "has a thousand candidates, and eight of them have sent something.",
    granted="Eight gradients of one digit each, with Gaussian noise of standard deviation 0.1 on "
    "every entry, in order; the dense network with its weights; 1,000 candidates with labels.",
    letter="D",
    points=200,
    hints=(
        Hint("You need no picture, only a name. What would each candidate have sent?", 20),
        Hint("Under equal Gaussian noise the likeliest sender is the nearest in Euclidean "
             "distance, over all 50,890 entries together.", 30),
        Hint("pf.share(model, pool, labels, each=1) gives all 1,000 clean gradients at once; then "
             "torch.cdist.", 50),
    ),
    chapter="what-epsilon-buys",
    answer="places",
    uploads=SUSPECTS,
    batch=1,
    private=line_up,
    network=dense,
    network_text=DENSE_TEXT,
    send=sent(dense, defense="dp_gaussian:sigma=0.1"),
)  # fmt: skip

TRAINED = Challenge(
    name="four-steps",
    title="Four steps later",
    story="No gradient leaves any more: each client took four steps on its digit and sent the "
    "change of its weights. The server set the rules of training, so it can walk along.",
    granted="Four updates Δ = after − before, each of four steps of SGD at rate 0.1 on one digit, "
    "and the LeNet with its weights before.",
    letter="C",
    points=250,
    hints=(
        Hint("Divided by −0.1 · 4 the update is nearly the gradient. Nearly is not enough for the "
             "pixels, and enough for the label.", 25),
        Hint("Let your dummy image take the four steps, too, and compare the updates.", 40),
        Hint("upload.imitator() does it, and pf.attacks.IDLG(steps=400) uses it on updates.", 60),
    ),
    chapter="reach",
    answer="images",
    uploads=4,
    batch=1,
    private=digits(4),
    network=lenet,
    network_text=LENET_TEXT,
    send=sent(lenet, plan=STEPS),
    plan=STEPS,
)  # fmt: skip
