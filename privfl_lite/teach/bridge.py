"""ES modules in a notebook, by anywidget: JupyterLab and Colab run what the book's pages run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import PrivflError, needs
from .modules import JS, bundle

with needs("book"):
    import anywidget
    import traitlets

LABORATORY = """
import { keepKeys } from "./explore/kit/notebook.js";
import { mount } from "./lab/lab.js";

const PROMISE = "The attack runs in this page. Your picture also goes to this notebook's kernel, " +
  "as lab.image, and nowhere else.";

function render({ model, el }) {
  keepKeys(el);
  const lab = mount(el, model.get("options"));
  const send = (image, label) => {
    const data = new DataView(Float32Array.from(image.data).buffer);
    model.set("picture", { shape: Array.from(image.shape), data, label });
    model.save_changes();
  };
  lab.view.promise.textContent = PROMISE;
  lab.onImage = send;
  lab.ready.then(() => lab.image && send(lab.image, lab.label));
  return () => lab.destroy();
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
    picture = traitlets.Dict().tag(sync=True)  # shape (C, H, W), data (bytes of float32), label

    def __init__(self, options: dict[str, Any]):
        super().__init__(_esm=bundle(LABORATORY), options=options)

    @property
    def image(self) -> Tensor:
        """The reader's picture (C, H, W) in [0, 1]."""
        values = np.frombuffer(self._there()["data"], dtype=np.float32).copy()
        return torch.from_numpy(values).view(*self._there()["shape"])

    @property
    def label(self) -> Tensor:
        """Its class (1,), as the reader set it."""
        return torch.tensor([int(self._there()["label"])])

    def _there(self) -> dict[str, Any]:
        if not self.picture:
            raise PrivflError("there is no picture yet: show the laboratory first, in a cell above")
        return self.picture


def lab(**options: Any) -> Laboratory:
    """The laboratory "Attack your own picture" in the notebook.

    ``image`` (C, H, W) and ``label`` (1,) of what is returned are the reader's picture, for the
    package's heavier attacks: ``pf.share(model, lab.image[None], lab.label)``. ``options``: of
    ``mount`` in ``teach/js/lab/lab.js``, for example ``small=True``.
    """
    if not (JS / "lab" / "lab.js").is_file():
        raise PrivflError("this version of the package does not hold the laboratory")
    return Laboratory(options)
