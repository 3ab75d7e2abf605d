"""torchvision's resnet18 as it comes, untrained, and one photograph of 32 × 32 pixels."""

import torch
from torch.nn.functional import cross_entropy

import privfl_lite as pf

photos = pf.load("photos")
x, y = photos.sample(1, seed=1)
torch.manual_seed(0)
net = pf.runtime.torchvision().models.resnet18(num_classes=10).eval()
gradient = torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))
report = pf.report(net, gradient, data=(x, y), gallery=photos.x_test, seconds=120)
report.save("resnet18.html")
print(report)
