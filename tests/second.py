"""A second device without a GPU: tensors that are computed on the CPU, but are elsewhere.

To every check of PyTorch a ``Second`` tensor is on the device "lazy" (a name that PyTorch knows and
that nothing here uses). It carries its numbers in a CPU tensor, so that every value is real:
``.item()``, ``if``, autograd and ``vmap`` work, and the results can be compared bit by bit with
those of the CPU. What a GPU refuses is refused: tensors of both devices in one operation, indices
there for a tensor here, a CPU generator for a draw there, and ``numpy()`` there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import privfl_lite
from privfl_lite import runtime

SECOND = torch.device("lazy")
MOVES = {"copy_", "_to_copy"}  # what may see both devices
INDEXES = {"index", "index_put_", "index_put", "_index_put_impl_"}  # with indices from the CPU


class WrongDevice(RuntimeError):
    """What PyTorch would say where the second device was a GPU."""


class Second(Tensor):
    """A tensor on the second device; ``numbers`` has its values, on the CPU."""

    @staticmethod
    def __new__(cls, numbers: Tensor) -> Second:
        return Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=SECOND,
        )

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    @classmethod
    def __torch_function__(cls, func: Callable, types: tuple, args=(), kwargs=None) -> object:
        if func is Tensor.tolist:  # PyTorch has none for subclasses
            return args[0].numbers.tolist()
        if func in (Tensor.numpy, Tensor.__array__):
            raise WrongDevice("numpy() of a tensor on the second device: .cpu() first")
        if func is Tensor.data.__set__:
            args[0].numbers = args[1].numbers
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Callable, types: tuple, args=(), kwargs=None) -> object:
        return compute(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers"], None  # with this, Module.to knows how to replace a parameter

    @classmethod
    def __tensor_unflatten__(cls, inner: dict, meta: None, size: object, stride: object) -> Second:
        return cls(inner["numbers"])

    def __repr__(self) -> str:
        return f"Second({self.numbers})"

    def __format__(self, how: str) -> str:
        return format(self.numbers, how)


class _Everywhere(TorchDispatchMode):
    """Operations without any ``Second`` come here too: those that make or move one."""

    def __torch_dispatch__(self, func: Callable, types: tuple, args=(), kwargs=None) -> object:
        return compute(func, args, kwargs or {})


class _Data(TorchFunctionMode):
    """Data and indices that are Python lists become tensors here: PyTorch makes them unseen."""

    def __torch_function__(self, func: Callable, types: tuple, args=(), kwargs=None) -> object:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == SECOND:
            return func(*args, **kwargs | {"device": None}).to(SECOND)
        if func is Tensor.new_tensor and args[0].device == SECOND:
            return torch.tensor(args[1], dtype=args[0].dtype).to(SECOND)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            args = (args[0], _index(args[1]), *args[2:])
        return func(*args, **kwargs)


def _index(index: object) -> object:
    if isinstance(index, tuple):
        return tuple(map(_index, index))
    if isinstance(index, list):
        return torch.tensor(index) if index else torch.zeros(0, dtype=torch.long)
    return index


def compute(func: Callable, args: tuple, kwargs: dict) -> object:
    """Carry out one operation on the CPU, if a GPU would, and put the result where it belongs."""
    if func is torch.ops.aten._efficientzerotensor.default:  # has no numbers at all
        func = torch.ops.aten.zeros.default
    name, leaves = func.overloadpacket.__name__, tree_leaves((args, kwargs))
    tensors = [t for t in leaves if isinstance(t, Tensor)]
    there = [t for t in tensors if isinstance(t, Second)]
    if there and len(there) < len(tensors) and name not in MOVES:
        _check_mixed(func, name, args, tensors)
    target = kwargs.get("device")
    target = (
        (tensors[0] if name in MOVES else there[0]).device if target is None and there else target
    )
    for rng in leaves:
        if isinstance(rng, torch.Generator) and target is not None and target != rng.device:
            raise WrongDevice(f"{name} draws on {target} with a generator on {rng.device}")
    homes = {id(t.numbers): t for t in there}
    args, kwargs = tree_map(_numbers, (args, kwargs))
    if target is not None and kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    out = func(*args, **kwargs)
    if there and torch.Tag.inplace_view in func.tags:  # squeeze_ changes the shape that others see
        there[0].data = Second(out)
    if target is None or target.type == "cpu":
        return out

    def put(t: object) -> object:
        if not isinstance(t, Tensor):
            return t
        return homes[id(t)] if id(t) in homes else Second(t)  # the same one, if changed in place

    return tree_map(put, out)


def _check_mixed(func: Callable, name: str, args: tuple, tensors: list[Tensor]) -> None:
    if name in INDEXES and isinstance(args[0], Second):
        others = [args[0], *(t for t in args[2:3] if t.dim())]  # indices may be here, values not
        if all(isinstance(t, Second) for t in others):
            return
    if torch.Tag.pointwise in func.tags:  # one number from the CPU is as good as a Python number
        large = [t for t in tensors if t.dim()]
        if large and all(isinstance(t, Second) for t in large):
            return
    where = ", ".join(f"{tuple(t.shape)} on {t.device}" for t in tensors)
    raise WrongDevice(f"{name} has tensors of two devices: {where}")


def _numbers(t: object) -> object:
    return t.numbers if isinstance(t, Second) else t


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Inside, ``runtime.device()`` answers the second device, in every module of the package."""
    modules = [m for n, m in sys.modules.items() if n.split(".")[0] == privfl_lite.__name__]
    modules = [m for m in modules if getattr(m, "device", None) is runtime.device]
    kept = runtime.device
    try:
        for m in modules:
            m.device = lambda: SECOND
        with _Data(), _Everywhere():
            yield SECOND
    finally:
        for m in modules:
            m.device = kept
