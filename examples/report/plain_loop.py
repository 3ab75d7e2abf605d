"""A gradient out of a plain PyTorch loop, as ``torch.save`` keeps it: eight digits, no truth."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import privfl_lite as pf

x, y = pf.load("mnist").sample(8, seed=1)
torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
cross_entropy(net(x), y).backward()
torch.save([p.grad for p in net.parameters()], "gradient.pt")  # so far the client

report = pf.report(net, torch.load("gradient.pt"), batch=8, seconds=30)
report.save("plain_loop.html")
print(report)
