"""ES modules in a notebook, by anywidget: JupyterLab and Colab run what the book's pages run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import traitlets
from torch import Tensor

from ..errors import PrivflError, needs
from .modules import JS, bundle

with needs("book"):
    import anywidget

LABORATORY = """
import { mount } from "./lab/lab.js";

function render({ model, el }) {
  const lab = mount(el, model.get("options"));
  const send = (image) => {
    const pixels = Float32Array.from(image.data);
    model.set("picture", { shape: Array.from(image.shape), data: new DataView(pixels.buffer) });
    model.save_changes();
  };
  if (lab.image) send(lab.image);
  lab.onImage = send;
  return () => lab.destroy?.();
}

export default { render };
"""


class Moving(anywidget.AnyWidget):
    """An explorable; ``settings`` are where its sliders stand, in the browser and in Python."""

    title = traitlets.Unicode().tag(sync=True)
    settings = traitlets.Dict().tag(sync=True)

    def __init__(self, module: str, title: str, settings: dict[str, float]):
        super().__init__(_esm=module, title=title, settings=settings)


class Laboratory(anywidget.AnyWidget):
    """The laboratory; ``image`` is the picture that the reader drew or chose."""

    options = traitlets.Dict().tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)  # shape (C, H, W), data: bytes of float32

    def __init__(self, options: dict[str, Any]):
        super().__init__(_esm=bundle(LABORATORY), options=options)

    @property
    def image(self) -> Tensor:
        """The reader's picture (C, H, W) in [0, 1]; chosen or drawn in the widget."""
        if not self.picture:
            raise PrivflError(
                "there is no picture yet: show the laboratory, then draw or choose one"
            )
        values = np.frombuffer(self.picture["data"], dtype=np.float32).copy()
        return torch.from_numpy(values).view(*self.picture["shape"])


def lab(**options: Any) -> Laboratory:
    """The laboratory "Attack your own picture" in the notebook.

    ``image`` of what is returned is the reader's picture as a tensor (C, H, W), for the package's
    heavier attacks: ``pf.share(model, lab.image[None], y)``.
    """
    if not (JS / "lab" / "lab.js").is_file():
        raise PrivflError("this version of the package does not hold the laboratory")
    return Laboratory(options)
