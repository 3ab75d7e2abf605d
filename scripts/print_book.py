"""Print the built book as one PDF: `make pdf` writes _build/privfl_lite.pdf.

    python scripts/print_book.py [PAGE …] [--to FILE]    # only these, such as intro dcs2

All pages of _toc.yml are put on one page, whose links lead from chapter to chapter, and Chromium
prints it. It prints twice: on which page a chapter begins is known only then, and the list of
contents is filled with those numbers. Solutions and folded code stay on the site.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
from chromium import open_browser, serve, why_not  # noqa: E402
from editions.numbers import Index, read_index  # noqa: E402

SITE, TARGET = ROOT / "_build" / "html", ROOT / "_build" / "privfl_lite.pdf"
PAGE = "book/whole-book.html"  # exists only while it is printed
WAIT = 600_000  # ms
ON_PAPER = "stands here if scripts are on"
DROPPED = "script, .headerlink, .widget-subarea, details.hide, button, .pf-strip a, .ledger-filter"
STYLE = """
  @page { size: A4; margin: 18mm 17mm 20mm; }
  html { font-size: 9.5pt; }
  .bd-article h1 { display: block !important; }
  body { overflow: visible; }
  article.bd-article { padding: 0 !important; }
  article.bd-article:has(> section) { break-before: page; }
  .pf-cover { height: 235mm; display: flex; flex-direction: column; justify-content: center; }
  .pf-cover .pf-name { font: 600 34pt Georgia, serif; margin: 0 0 0.3em; }
  .pf-cover .pf-about { font-size: 15pt; }
  .pf-cover .pf-small { margin-top: 4em; }
  .pf-contents { break-before: page; }
  .pf-contents h2 { margin: 0.9em 0 0.3em; font-size: 1.25em; }
  .pf-contents ol { list-style: none; padding: 0; margin: 0 0 0.8em; }
  .pf-contents li { display: flex; gap: 0.5em; line-height: 1.6; }
  .pf-contents li::before { content: attr(data-number); min-width: 1.8em; text-align: right; }
  .pf-contents li > span { margin-left: auto; min-width: 2.5em; text-align: right; }
  .pf-contents a { color: inherit !important; text-decoration: none !important; }
  .bd-article img { max-width: 100%; max-height: 200mm; }
  .bd-article :is(div.cell, div.cell_input, div.highlight, pre) { break-inside: auto; }
  .bd-article pre { orphans: 4; widows: 4; }
"""
FOOT = (
    '<div style="width: 100%; text-align: center; font: 9px sans-serif; color: #51606d">'
    '<span class="pageNumber"></span></div>'
)


class CannotPrint(Exception):
    """One sentence that says why."""


def article(site: Path, slug: str, home: str) -> Tag:
    """A page's text, with ids and links that hold on one page for all."""
    path = site / "book" / f"{slug}.html"
    if not path.is_file():
        raise CannotPrint(f"{path} does not exist: make book")
    found = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").select_one(
        "article.bd-article"
    )
    for part in found.select(DROPPED):
        part.decompose()
    for solution in found.select("div.solution"):
        solution.replace_with(mark(solution, f"{home}/book/{slug}.html"))
    for words in found.find_all(string=re.compile(ON_PAPER)):
        words.replace_with(words.replace(ON_PAPER, "stands here on the site"))
    for part in found.select("[id]"):
        part["id"] = f"{slug}--{part['id']}"
    for part in found.select("a[href]"):
        part["href"] = inside(part["href"], slug, home)
    for part in found.select("details"):
        part["open"] = ""
    for part in found.select(".toggle-hidden, .dropdown"):
        part["class"] = [c for c in part["class"] if c not in ("toggle-hidden", "dropdown")]
    found["id"] = f"{slug}--"
    return found


def mark(solution: Tag, page: str) -> Tag:
    """One line in place of a solution, which would spoil its exercise."""
    address = f"{page}#{solution['id']}" if solution.get("id") else page
    line = BeautifulSoup(
        f'<p><a href="{escape(address)}">Solution: on the page</a></p>', "html.parser"
    )
    return line.p


def inside(href: str, slug: str, home: str) -> str:
    """Where a link of a page leads in the book; what is not in it, on the site."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return href
    if not parts.path:
        return f"#{slug}--{parts.fragment}"
    if re.fullmatch(r"[\w-]+\.html", parts.path):
        return f"#{parts.path.removesuffix('.html')}--{parts.fragment}"
    return urljoin(f"{home}/book/{slug}.html", href)


def front(index: Index, captions: dict[str, list[str]], config: dict) -> str:
    """Title and contents."""
    about = "How federated learning leaks private data, and five defenses put to the test"
    lists = []
    for caption, slugs in captions.items():
        rows = "".join(
            f'<li data-number="{index.chapters[slug]}"><a href="#{slug}--">'
            f'{escape(index.titles[slug])}</a><span data-page="{slug}">000</span></li>'
            for slug in slugs
        )
        lists.append(f"{f'<h2>{escape(caption)}</h2>' if caption else ''}<ol>{rows}</ol>")
    return f"""
<article class="bd-article"><div class="pf-cover">
<p class="pf-name">{escape(config["title"])}</p><p class="pf-about">{about}</p>
<p>{escape(config["author"])}</p>
<p class="pf-small">Printed from <a href="{index.site}">{index.site}</a>, where attacks can be
watched and settings changed. Solutions and folded code are left out here; they are there.<br>
{config["html"]["extra_footer"]}</p>
</div><div class="pf-contents"><h1>Contents</h1>{"".join(lists)}</div></article>"""


def parts_of(toc: dict, only: Sequence[str]) -> dict[str, list[str]]:
    """Caption -> pages; the first page has none."""
    found = {"": [toc["root"].removeprefix("book/")]}
    for part in toc["parts"]:
        found[part["caption"]] = [p["file"].removeprefix("book/") for p in part["chapters"]]
    kept = {c: [s for s in slugs if not only or s in only] for c, slugs in found.items()}
    return {caption: slugs for caption, slugs in kept.items() if slugs}


def head(site: Path, slug: str) -> str:
    """A page's styles, and the script that sets formulas."""
    text = (site / "book" / f"{slug}.html").read_text(encoding="utf-8")
    found = BeautifulSoup(text, "html.parser").head
    scripts = [
        s for s in found.select("script") if "mathjax" in f"{s.get('src')}{s.string}".lower()
    ]
    return "\n".join(map(str, [*found.select('link[rel="stylesheet"]'), *scripts]))


def whole(site: Path, only: Sequence[str] = ()) -> tuple[str, list[str]]:
    """The book as one page of HTML, and its pages in order."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    captions = parts_of(toc, only)
    index, slugs = read_index(), [slug for part in captions.values() for slug in part]
    articles = [str(article(site, slug, index.site)) for slug in slugs]
    body = "\n".join([front(index, captions, config), *articles])
    top = f"{head(site, slugs[0])}<style>{STYLE}</style>"
    return (
        f'<!DOCTYPE html><html lang="en" data-theme="light" data-content_root="../"><head>'
        f'<meta charset="utf-8"><title>{escape(config["title"])}</title>{top}</head><body>'
        f'<main class="bd-main"><div class="bd-content"><div class="bd-article-container">{body}'
        "</div></div></main></body></html>"
    ), slugs


def first_pages(pdf: Path, count: int) -> list[int]:
    """The numbers of the pages on which the chapters begin, from the PDF's own outline."""
    from pypdf import PdfReader

    reader = PdfReader(pdf)
    tops = [entry for entry in reader.outline if not isinstance(entry, list)][1:]  # Contents first
    if len(tops) != count:
        raise CannotPrint(f"the PDF has {len(tops)} chapters in its outline instead of {count}")
    return [reader.get_destination_page_number(entry) + 1 for entry in tops]


# Pages without formulas bring no MathJax.
TYPESET = "!window.MathJax || MathJax.startup.promise.then(() => true)"
FILL = "([slug, n]) => { document.querySelector(`[data-page='${slug}']`).textContent = n; }"
PRINT = {
    "outline": True,
    "tagged": True,
    "print_background": True,
    "prefer_css_page_size": True,
    "display_header_footer": True,
    "header_template": "<span></span>",
    "footer_template": FOOT,
}


def print_book(site: Path = SITE, target: Path = TARGET, only: Sequence[str] = ()) -> int:
    """Write the PDF; the number of pages of the site in it."""
    if reason := why_not():
        raise CannotPrint(reason)
    with open_browser() as browser:
        return print_with(browser, site, target, only)


def print_with(browser: Browser, site: Path, target: Path, only: Sequence[str] = ()) -> int:
    html, slugs = whole(site, only)
    with serve(site) as address:
        page = browser.new_page()
        page.set_default_timeout(WAIT)
        page.route(f"{address}/{PAGE}", lambda r: r.fulfill(body=html, content_type="text/html"))
        page.goto(f"{address}/{PAGE}", wait_until="load")
        page.wait_for_function(TYPESET)
        page.pdf(path=target, **PRINT)
        numbers = first_pages(target, len(slugs))
        for slug, number in zip(slugs, numbers, strict=True):
            page.evaluate(FILL, [slug, number])
        page.pdf(path=target, **PRINT)
        page.close()
    if first_pages(target, len(slugs)) != numbers:
        raise CannotPrint("the list of contents changed the pages that it counts")
    return len(slugs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print pages of the built book as one PDF.")
    parser.add_argument("pages", nargs="*", help="their names (default: all)")
    parser.add_argument("--to", type=Path, default=TARGET, help="the PDF to write")
    asked = parser.parse_args()
    try:
        count = print_book(target=asked.to, only=asked.pages)
    except CannotPrint as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{count} pages of the site printed: {asked.to.resolve().relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
