"""What both sides know: the model, the rules of training, the defense. And each client's data."""

import privfl_lite as pf

DIGITS = pf.load("mnist", size=14)
PLAN = pf.Plan(eta=0.1, batch_size=5)
DEFENSES = {
    "none": pf.defenses.Defense(),
    "prune": pf.defenses.Prune(0.9, feedback=True),
    "modelcloak": pf.defenses.ModelCloak(clip=2, sigma=5),
}
HELD = DIGITS.clients(333, "iid", 12, seed=0)


def model_fn():
    return pf.models.build("mlp", DIGITS, seed=3)


def data_fn(client):
    """Images and labels of one client. Here digits are dealt out; yours come from a disk."""
    return HELD[client % len(HELD)]
