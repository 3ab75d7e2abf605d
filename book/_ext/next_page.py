"""Next on the first page leads to chapter 1, and Previous of chapter 1 back.

The laboratory, which stands between them in the contents, is a side door.
"""

from __future__ import annotations

from sphinx.application import Sphinx

FIRST = "book/federated-learning"


def skip(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    ways = {app.config.root_doc: ("next", FIRST), FIRST: ("prev", app.config.root_doc)}
    if pagename in ways and ways[pagename][1] in app.env.titles:
        way, to = ways[pagename]
        link = app.builder.get_relative_uri(pagename, to)
        title = app.builder.render_partial(app.env.titles[to])["title"]
        context[way] = {"link": link, "title": title}


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
