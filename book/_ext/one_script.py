"""Keep each inline script once a page.

sphinx-thebe 0.3.1 registers the same inline ``const`` declarations twice, which a browser reports
as an error on every page. Scripts with a file name are left alone.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def drop_repeats(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree) -> None:
    """Remove later copies of an inline script from the page's list of scripts."""
    seen: set[str] = set()
    kept = []
    for script in context.get("script_files", []):
        attributes = getattr(script, "attributes", {})
        body = attributes.get("body") if not getattr(script, "filename", None) else None
        if body is not None and body in seen:
            continue
        if body is not None:
            seen.add(body)
        kept.append(script)
    context["script_files"] = kept


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", drop_repeats, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
