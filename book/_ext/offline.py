"""The offline switch: with book/_vendor in place, the built site asks no other host for anything.

scripts/vendor.py fills that folder (`make book` runs it where npm is at hand). It is copied to
``vendor/`` in the site, and MathJax and the widget manager are taken from there. Without it they
come from their usual CDN. Either way a page with widgets first runs ``_assets/widgets.js``.
"""

from __future__ import annotations

from pathlib import Path

from myst_nb.core.config import ipywidgets_js_factory
from sphinx.application import Sphinx
from sphinx.config import Config

VENDOR = Path(__file__).resolve().parents[1] / "_vendor"
# Sphinx reads names of scripts from _static/, so these work at every depth and from a disk.
SITE = "../vendor/"
FIRST = "widgets.js"


def is_vendored() -> bool:
    """The folder appears in one step, and this file is written last."""
    return (VENDOR / "vendor" / "pins.txt").is_file()


def choose(app: Sphinx, config: Config) -> None:
    """Point MathJax and the widgets to the site itself, or leave them at the CDN."""
    if not is_vendored():
        config.nb_ipywidgets_js = {FIRST: {}, **ipywidgets_js_factory()}
        return
    config.html_extra_path = [*config.html_extra_path, str(VENDOR)]
    config.mathjax_path = f"{SITE}mathjax/tex-mml-chtml.js"
    config.nb_ipywidgets_js = {
        FIRST: {"data-vendor": SITE},
        f"{SITE}require.js": {},
        f"{SITE}embed-amd.js": {},
    }


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", choose)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
