"""The weights after five local steps with momentum 0.9, on two digits."""

import copy

import torch
from torch.nn.functional import cross_entropy

import privfl_lite as pf

x, y = pf.load("mnist").sample(2, seed=1)
net = pf.models.build("lenet", (1, 28, 28), 10)
before, optimizer = copy.deepcopy(net), torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
for _ in range(5):
    optimizer.zero_grad()
    cross_entropy(net(x), y).backward()
    optimizer.step()
plan = pf.Plan(eta=0.05, steps=5, batch_size=2, momentum=0.9)
report = pf.report(before, net.state_dict(), plan, data=(x, y), seconds=30)
report.save("five_steps.html")
print(report)
