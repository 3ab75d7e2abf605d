"""What is inside downloads, as the tensors that the cache stores."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ..runtime import PrivflError

Files = dict[str, dict[str, Tensor]]  # file name -> tensors
DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pack(
    x_train: Tensor, y_train: Tensor, x_test: Tensor, y_test: Tensor, classes: Sequence[str]
) -> Files:
    """One data set as it is stored: x uint8 (N, C, H, W), y int64 (N,), class names as UTF-8."""
    for x, y in ((x_train, y_train), (x_test, y_test)):
        if x.ndim != 4 or y.shape != x.shape[:1] or y.min() < 0 or y.max() >= len(classes):
            raise PrivflError(f"images {tuple(x.shape)} and labels {tuple(y.shape)} do not match")
    names = torch.tensor(list("\n".join(classes).encode()), dtype=torch.uint8)
    tensors = {"x_train": x_train, "x_test": x_test, "classes": names}
    tensors |= {"y_train": y_train.long(), "y_test": y_test.long()}
    return {"data.safetensors": {key: value.contiguous() for key, value in tensors.items()}}


def read_idx_set(folder: Path, classes: Sequence[str], suffix: str = "") -> Files:
    """The four idx files of MNIST or Fashion-MNIST, gzipped if ``suffix`` is ".gz"."""

    def read(name: str) -> Tensor:
        packed = (folder / f"{name}{suffix}").read_bytes()
        data = bytearray(gzip.decompress(packed) if suffix else packed)
        start = 4 + 4 * data[3]  # magic: 0, 0, 8 (bytes), number of axes; then one uint32 an axis
        shape = np.frombuffer(data[4:start], ">u4").tolist()
        if data[:3] != b"\0\0\x08" or len(data) != start + np.prod(shape):
            raise PrivflError(f"{name} is not a whole idx file of bytes")
        return torch.frombuffer(data, dtype=torch.uint8, offset=start).view(shape)

    x_train, x_test = (read(f"{part}-images-idx3-ubyte")[:, None] for part in ("train", "t10k"))
    y_train, y_test = (read(f"{part}-labels-idx1-ubyte") for part in ("train", "t10k"))
    return pack(x_train, y_train, x_test, y_test, classes)


def cifar10(work: Path) -> Files:
    def images(name: str) -> Tensor:  # a PNG holds 10,000 images, one a row of 1024 RGB pixels
        rows = torch.from_numpy(np.array(Image.open(work / f"{name}.png")))
        return rows.view(10000, 32, 32, 3).permute(0, 3, 1, 2)

    files = (work / f"{part}_lables.json" for part in ("train", "test"))
    y_train, y_test = (torch.tensor(json.loads(file.read_text())) for file in files)
    x_train = torch.cat([images(f"data_batch_{i}") for i in range(1, 6)])
    return pack(x_train, y_train, images("test_batch"), y_test, CIFAR10)


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        make = np.empty(0).__reduce__()[0]  # numpy's _reconstruct, whose module changes its name
        allowed = {"ndarray": np.ndarray, "dtype": np.dtype, "_reconstruct": make}
        if module.split(".")[0] != "numpy" or name not in allowed:
            raise PrivflError(f"the weights hold {module}.{name}, which is not an array")
        return allowed[name]


def lpips(work: Path) -> Files:
    files: Files = {}
    for net, top in (("alexnet", "AlexNet_0"), ("vgg16", "VGG16_0")):
        with (work / f"{net}.ckpt").open("rb") as file:
            layers = _ArraysOnly(file).load()[top]
        tensors = files[f"{net}.safetensors"] = {}
        for i in range(len(layers)):
            kernel, bias = (torch.from_numpy(layers[f"Conv_{i}"][k]) for k in ("kernel", "bias"))
            tensors[f"conv{i}.weight"] = kernel.permute(3, 2, 0, 1).contiguous()  # HWIO -> OIHW
            tensors[f"conv{i}.bias"] = bias
    return files
