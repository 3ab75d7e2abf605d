"""Does one of the client's images stand out from the others in its gradient? Needs the truth."""

from __future__ import annotations

from typing import Any

from ..batches import Data
from ..client_checks import d_snr_by_layer
from ..wire import Upload


def loudest(upload: Upload, data: Data | None) -> dict[str, Any] | None:
    """D-SNR of the first upload's batch, and the layer where it is largest; None for one image."""
    if data is None or upload.batch < 2:
        return None
    x, y = (part[: upload.batch] for part in data)
    by_layer = d_snr_by_layer(upload.model, x, y)
    layer = max(by_layer, key=lambda n: by_layer[n])
    value, equal = by_layer[layer], (upload.batch - 1) ** -0.5
    says = (
        f"D-SNR {value:.3g}, at {layer}: the loudest image's gradient over the root of the others' "
        f"squares; {equal:.3g} if all are equally loud, and a client may refuse a model at a high "
        "one (chapter: the malicious server)"
    )
    return {"d_snr": value, "layer": layer, "equal": equal, "says": says}
