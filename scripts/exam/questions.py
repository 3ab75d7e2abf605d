"""The questions. Numbers are drawn from the class's secret, and each answer is computed from "
"them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

NORMAL = NormalDist()


@dataclass(frozen=True)
class Question:
    """One question with the numbers of a class: points for each line of the rubric."""

    name: str
    chapter: str  # slug, where it is taught
    minutes: int
    text: str
    answer: str
    rubric: tuple[tuple[int, str], ...]
    numbers: tuple[float, ...] = ()  # what a grader compares

    @property
    def points(self) -> int:
        return sum(points for points, _ in self.rubric)


def wire(draw: random.Random) -> Question:
    steps, batch = draw.choice([(4, 8), (5, 10), (3, 16), (6, 5)])
    return Question(
        "What leaves",
        "federated-learning",
        8,
        f"A hospital trains {steps} local steps on batches of {batch} pictures and sends the "
        "change of its weights over "
        "TLS. The data set stays on its disk. (a) Name three facts about its pictures that the "
        "server may learn from the "
        "message. (b) Who does TLS keep out, and who not? (c) A sum of all hospitals by secure "
        "aggregation: what changes "
        "for (a)?",
        "(a) For instance labels and their counts, the pictures themselves or some of them, "
        "whether a given picture took "
        "part. (b) Those who listen on the way; not the server that opens the message. (c) The "
        "facts are then about the "
        "crowd, unless the crowd is one, or the server makes the others silent.",
        (
            (3, "(a) one for each fact"),
            (2, "(b) both halves"),
            (2, "(c) the crowd, and a way around"),
        ),
    )


def division(draw: random.Random) -> Question:
    pixels = [draw.randrange(1, 10) / 10 for _ in range(3)]
    slopes = draw.sample([0.5, -0.25, 0.4, -0.8, 0.2, -0.5], 2)
    rows = ["(" + ", ".join(f"{s * x:.3g}" for x in pixels) + ")" for s in slopes]
    found = ", ".join(f"{x:g}" for x in pixels)
    return Question(
        "One division",
        "why-gradients-leak",
        8,
        "One picture of three pixels is behind a dense layer with three units. The rows of ∇W "
        f"are {rows[0]}, (0, 0, 0) "
        f"and {rows[1]}; the bias gradient is ({slopes[0]:g}, 0, {slopes[1]:g}). (a) What is the "
        "picture? (b) What does the "
        "second row say? (c) Behind two pictures the first row would be a mixture: how would you "
        "notice?",
        f"(a) ({found}). (b) The unit is off for this picture, or its error signal is zero; "
        "nothing more. (c) The quotients "
        "of different rows disagree.",
        ((3, "(a) divided by the bias's entry"), (1, "(b)"), (2, "(c) rows disagree")),
        tuple(pixels),
    )


def labels(draw: random.Random) -> Question:
    batch = draw.choice([8, 10, 16, 20])
    counts = [0, 0, 0, 0]
    for _ in range(batch):
        counts[draw.randrange(4)] += 1
    bias = ", ".join(f"{0.25 - c / batch:.4g}" for c in counts)
    return Question(
        "Count the labels",
        "why-gradients-leak",
        8,
        "An untrained network predicts 1/4 for each of four classes, whatever it sees. A batch "
        f"of {batch} has the last "
        f"bias gradient ({bias}), a mean over the batch. (a) How often is each label in the "
        "batch? (b) Why do these numbers "
        "have to be rounded in practice? (c) What is missing once the network has trained?",
        f"(a) {', '.join(map(str, counts))}. (b) Floating point leaves 2.9999998. (c) The mean "
        "prediction, which must then be "
        "estimated.",
        ((3, "(a)"), (1, "(b)"), (2, "(c)")),
        tuple(map(float, counts)),
    )


def decibels(draw: random.Random) -> Question:
    side, norm = draw.choice([28, 32, 16]), draw.randrange(4, 30) / 10
    psnr = 10 * math.log10(side * side / norm**2)
    return Question(
        "A score",
        "measuring-leakage",
        8,
        f"A paper reports an L2 distance of {norm:g} between a gray picture of {side} × {side} "
        "pixels in [0, 1] and its "
        "reconstruction. (a) What PSNR is that? (b) A gray square scores 12 dB on the same "
        "pictures. What does that tell you "
        "about the paper's claim if it is 13 dB? (c) Name a score for which the negative of a "
        "picture counts as found.",
        f"(a) MSE = {norm:g}² / {side * side}, so {psnr:.1f} dB. (b) That the attack has hardly "
        "done better than knowing "
        "nothing. (c) Identification by absolute correlation; or by features.",
        ((3, "(a) one for the size"), (2, "(b)"), (1, "(c)")),
        (psnr,),
    )


def zeros(draw: random.Random) -> Question:
    tries = draw.choice([12, 16, 20, 24, 40])
    z2 = NORMAL.inv_cdf(0.975) ** 2
    most = z2 / (tries + z2)
    return Question(
        "Nothing found",
        "measuring-leakage",
        7,
        f"An attack found 0 of {tries} pictures. (a) Which rates does Wilson's 95 % interval "
        "allow? (b) The same attack without "
        "the defense found 1. What does the experiment say about the defense? (c) Which attacker "
        "is missing?",
        f"(a) From 0 to z²/(n + z²) = {100 * most:.0f} %. (b) Next to nothing: the attack fails "
        "without it, too. (c) The one who "
        "knows the defense.",
        ((2, "(a)"), (2, "(b)"), (1, "(c)")),
        (most,),
    )


def bins(draw: random.Random) -> Question:
    batch, count = draw.choice([(8, 32), (16, 64), (32, 128), (16, 128)])
    alone = batch * (1 - 1 / count) ** (batch - 1)
    return Question(
        "A crafted layer",
        "malicious-server",
        9,
        f"A server puts a layer with {count} bins in front of a network; brightness falls into "
        "each bin with equal chance. A "
        f"client sends the gradient of a batch of {batch}. (a) How many pictures do you expect "
        "alone in their bin? (b) Does "
        "noise on the data set's labels help? (c) What can a client look at before it trains?",
        f"(a) {batch} (1 − 1/{count})^{batch - 1} = {alone:.1f}. (b) No; the layer does not ask "
        "for labels. (c) The model: equal "
        "rows and a staircase of biases; or how much one picture stands out in the gradient "
        "(D-SNR).",
        ((3, "(a)"), (1, "(b)"), (3, "(c) a check that could be run")),
        (alone,),
    )


def naming(draw: random.Random) -> Question:
    sigma, of = draw.choice([0.8, 1.0, 1.25, 1.5, 2.0]), draw.choice([50, 100, 200])
    bound = NORMAL.cdf(NORMAL.inv_cdf(1 / of) + 1 / sigma)
    return Question(
        "How often can anybody name it?",
        "what-epsilon-buys",
        10,
        "A client clips the gradient of its one picture to length C and adds Gaussian noise "
        f"with deviation {sigma:g} C to each "
        f"entry. The attacker has {of} equally likely candidates. (a) Bound the success of every "
        "attacker. (b) Which of these "
        "would make the bound invalid: the noise is scaled by the private norm in place of C; "
        "the network is trained; the "
        "attacker has a generator? (c) One attack named 0 of 20. Which of the two facts is "
        "stronger, and why?",
        f"(a) Φ(Φ⁻¹(1/{of}) + 1/{sigma:g}) = {bound:.3f}. (b) Only the first. (c) The bound: it "
        "holds for all attackers; 0 of 20 "
        "allows 16 % even for this one.",
        ((4, "(a)"), (3, "(b) one each"), (2, "(c)")),
        (bound,),
    )


def shares(draw: random.Random) -> Question:
    clients, away = draw.choice([(100, 10), (50, 5), (200, 40), (1000, 100)])
    sigma = draw.choice([2, 4, 5])
    mine, owed = sigma / math.sqrt(clients), sigma / math.sqrt(clients - away)
    return Question(
        "A share of the noise",
        "which-would-you-deploy",
        9,
        f"{clients} clients use a secure sum, and the sum shall carry noise of deviation {sigma} "
        "C. (a) How much does each add? "
        f"(b) Up to {away} of them may drop out or share their noise with the server. How much "
        "does each add now? (c) The noise "
        "was added at the server instead. Against whom does ε still hold?",
        f"(a) {sigma} C / √{clients} = {mine:.3f} C. (b) {sigma} C / √{clients - away} = "
        f"{owed:.3f} C. (c) Against those who see "
        "only what the server publishes, not against the server.",
        ((2, "(a)"), (3, "(b)"), (2, "(c)")),
        (mine, owed),
    )


def pruning(draw: random.Random) -> Question:
    rate = draw.choice([0.8, 0.9, 0.95])
    return Question(
        "Silence is no zero",
        "cutting-gradients",
        9,
        f"Clients send the largest {100 * (1 - rate):.0f} % of their gradient's entries. A "
        "search that compares whole gradients "
        "finds 1 of 20 digits. (a) Write the distance that an informed attacker minimizes "
        "instead. (b) Why can it succeed "
        "although most numbers are missing? (c) Clients keep what they did not send and add it "
        "next time. What follows for an "
        "attacker who listens to many rounds?",
        "(a) The sum of squared differences over the entries that were sent. (b) There are many "
        "more entries than pixels; what "
        "counts is the rank of the equations that are left. (c) Nothing is lost for good: the "
        "sum over rounds is that of the "
        "unpruned uploads, up to what is still kept.",
        ((3, "(a)"), (2, "(b)"), (2, "(c)")),
    )


def factor(draw: random.Random) -> Question:
    steps, momentum = draw.choice([3, 4, 5]), draw.choice([0.5, 0.8, 0.9])
    weight = sum(momentum**k for j in range(steps) for k in range(steps - j))
    return Question(
        "An update is no gradient",
        "your-own-run",
        9,
        f"A client takes {steps} steps of SGD on one picture with rate 0.1 and momentum "
        f"{momentum:g}, and sends the change of its "
        "weights. (a) By which number must the change be divided so that it is nearly the first "
        "gradient? (b) Why only nearly? "
        "(c) What does an attacker conclude who takes the change for a gradient and reads the "
        "label off the last bias?",
        f"(a) By −0.1 · W with W = {weight:.2f}. (b) Later gradients are taken at other weights. "
        "(c) A wrong label: the only "
        "negative entry has become the only positive one.",
        ((4, "(a) two for the sign and the rate"), (1, "(b)"), (2, "(c)")),
        (weight,),
    )


def audit(draw: random.Random) -> Question:
    share, of = draw.choice([0.4, 0.5, 0.6, 0.8]), draw.choice([10, 20, 50])
    least = math.log(share * of)
    return Question(
        "An attack is an audit",
        "proof-bound-audit",
        8,
        f"A mechanism claims ε = 1 with δ = 0. An attacker who knows {of} equally likely "
        "candidates names the right one with "
        f"probability {share:g} (suppose that this is exact). (a) Which ε does that prove at "
        "least? (b) Is the claim refuted? (c) "
        "In truth the probability was estimated. Which end of its interval must be used?",
        f"(a) log({share:g} · {of}) = {least:.2f}. (b) {'Yes' if least > 1 else 'No'}. (c) The "
        "lower one.",
        ((3, "(a)"), (1, "(b)"), (1, "(c)")),
        (least,),
    )


def referee(draw: random.Random) -> Question:
    plain, psnr = draw.choice([0, 1]), draw.choice([9.8, 11.2, 12.4])
    return Question(
        "Referee",
        "all-against-all",
        17,
        f"“With our defense, inverting gradients (one start, 300 steps) recovers {plain} of 8 "
        f"images; the mean PSNR is {psnr:g} dB. "
        "We add noise proportional to the norm of the gradient, which gives ε = 0.9. Accuracy "
        "falls by only 0.4 points when "
        "one of ten clients is defended.” Name five things that you would ask the authors for, "
        "and say for each what it could "
        "change.",
        "For instance: the same attack without the defense; an attacker who knows the defense; "
        "more starts and steps, and more "
        "images with an interval; what a blind guess scores; why an ε holds if the noise follows "
        "the data (it does not); ε's "
        "unit, δ and neighbors; accuracy with every client defended.",
        (
            (10, "two for each of five: the question, and what it could change"),
            (1, "the ε is called wrong, not only unclear"),
        ),
    )


def deploy(draw: random.Random) -> Question:
    who, count = draw.choice([("hospitals", 12), ("banks", 8), ("schools", 30)])
    return Question(
        "Deploy",
        "which-would-you-deploy",
        10,
        f"{count} {who} want one model and trust no single server. Their technicians propose to "
        "prune 90 % of each update, "
        "because an attack failed against it. Advise them in ten lines: what may go wrong, what "
        "you propose, against whom it "
        "holds, and which number you would compute before the first round.",
        "Pruning falls to an attacker who knows it. With few members of a known size: a secure "
        "sum, clip, and a share of the noise "
        "from each, sized so that those who drop out or collude are not counted; ε for all "
        "rounds, per member or per record, "
        "computed beforehand; the server sees the sum, and the sum of a small crowd still tells. "
        "What it costs in accuracy must "
        "be measured.",
        (
            (2, "why a failed attack is no evidence"),
            (3, "a combination, and against whom it holds"),
            (2, "the number, with its unit"),
            (1, "what is left open"),
        ),
    )


MAKERS: tuple[Callable[[random.Random], Question], ...] = (
    *(wire, division, labels, decibels, zeros, bins, naming),
    *(shares, pruning, factor, audit, referee, deploy),
)
