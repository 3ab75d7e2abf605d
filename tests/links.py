"""Check the links of a built site without a network, with the standard library alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SKIP = {"data", "mailto", "javascript", "blob", "tel"}
ADDRESSES = {"href", "src", "data", "poster"}


@dataclass
class Page(HTMLParser):
    """One HTML file: where it points, its anchors, and its images without alt text."""

    path: Path
    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    bare_images: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(v for k, v in given.items() if k == "id" or (tag, k) == ("a", "name"))
        self.links += [given[k] for k in ADDRESSES & given.keys() if given[k] and tag != "base"]
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.links.append(given["content"].partition("url=")[2].strip("'\" "))
        if tag == "img":
            name = os.path.basename(urlsplit(given.get("src", "")).path)
            if not given.get("alt", "").strip() or os.path.basename(given["alt"]) == name:
                self.bare_images.append(given.get("src", "")[:80])


def read_site(site: Path) -> dict[Path, Page]:
    """Every page of a built site; Sphinx also copies templates into _static, which are none."""
    site = site.resolve()
    paths = (p for p in sorted(site.rglob("*.html")) if p.relative_to(site).parts[0] != "_static")
    return {path: Page(path) for path in paths}


def internal_problems(pages: dict[Path, Page]) -> list[str]:
    """One sentence for each link inside the site that leads nowhere."""
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme in SKIP or parts.netloc or parts.scheme in ("http", "https"):
                continue
            inside, anchor = unquote(parts.path), unquote(parts.fragment)
            target = Path(os.path.normpath(path.parent / inside)) if inside else path
            if inside.startswith("/"):
                found.append(f"{path.name}: {link} starts at the root of the host")
            elif not target.is_file():
                found.append(f"{path.name}: {link} does not exist")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{path.name}: {link} has no such anchor")
    return found


def external_links(pages: dict[Path, Page]) -> dict[str, str]:
    """Every link that leaves the site, with the page where it first stands."""
    found: dict[str, str] = {}
    for path, page in pages.items():
        for link in page.links:
            if urlsplit(link).netloc:
                found.setdefault(link, path.name)
    return found


def external_problems(links: dict[str, str]) -> list[str]:
    """Faults that show without a network: no host name, a space, a scheme other than http(s)."""
    found = []
    for link, where in links.items():
        parts = urlsplit(link)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https", "") or "." not in host.strip("."):
            found.append(f"{where}: {link} is not a web address")
        elif any(c.isspace() or c in '<>"{}|\\^`' for c in link):
            found.append(f"{where}: {link} holds a character that must be quoted")
    return found
