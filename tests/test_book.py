"""The book builds without a warning, its links lead somewhere, and its pages work in a browser.

Marker ``book``: one strict build into a fresh folder (an incremental build would hide the warnings
of pages that did not change). ``PRIVFL_SITE=_build/html`` checks an existing site instead.
Marker ``browser``: the same site in Chromium. Requests to other hosts are cut off there.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from browser import FLAGS, find_chromium, why_not
from links import external_links, external_problems, internal_problems, read_site
from test_notebooks import toc_files

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = {"phone": 360, "laptop": 1280}
PAGES = [*toc_files(), "search", "genindex"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the strict build itself is the first test."""
    if ready := os.environ.get("PRIVFL_SITE"):
        return Path(ready).resolve()
    out = tmp_path_factory.mktemp("book")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "--path-output", out]
    command += ["-n", "-W", "--keep-going", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    warnings = [line for line in said.splitlines() if re.search("WARNING|ERROR|CRITICAL", line)]
    assert done.returncode == 0, "\n".join(warnings) or said[-4000:]
    assert not warnings, "\n".join(warnings)
    return out / "_build" / "html"


@pytest.mark.book
def test_strict_build_has_every_page(site: Path):
    missing = [name for name in PAGES if not (site / f"{name}.html").is_file()]
    assert not missing
    assert (site / "index.html").is_file()


@pytest.mark.book
def test_links_inside_the_book_lead_somewhere(site: Path):
    assert not (found := internal_problems(read_site(site))), "\n".join(found)


@pytest.mark.book
def test_links_to_other_sites_are_well_formed(site: Path):
    links = external_links(read_site(site))
    assert links, "the checker found no external link at all"
    assert not (found := external_problems(links)), "\n".join(found)


@pytest.mark.book
def test_images_have_alt_text(site: Path):
    found = [f"{p.name}: {s}" for p, page in read_site(site).items() for s in page.bare_images]
    assert not found, "\n".join(found)


@pytest.mark.book
def test_no_directive_is_left_unrendered(site: Path):
    for name in toc_files():
        html = (site / f"{name}.html").read_text(encoding="utf-8")
        article = re.sub(r"(?s)<(pre|code|script)\b.*?</\1>", "", html)
        assert not (found := re.search(r"\{(prf|cite|ref|numref|doc):?\w*\}|:::+|```", article)), (
            f"{name}: {found[0]}"
        )


def repository() -> str:
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return config["repository"]["url"]


def test_repository_address_is_the_same_everywhere():
    """_config.yml decides; a fork changes it there, and this test lists the other places."""
    files = [ROOT / "README.md", ROOT / "CITATION.cff", *(ROOT / "book").glob("*.md")]
    files += (ROOT / "book").glob("*.ipynb")
    other = [
        f"{path.relative_to(ROOT)}: {address}"
        for path in files
        if path.is_file()
        for address in re.findall(
            r"https://github\.com/[\w.-]+/privfl_lite", path.read_text(encoding="utf-8")
        )
        if address != repository()
    ]
    assert not other, f"the repository is {repository()}, but:\n" + "\n".join(other)


# --- in a browser ---


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def address(site: Path):
    """The site served on a free port of this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory):
    if reason := why_not():
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=[*FLAGS])
        yield browser
        browser.close()


# Elements of the text that stick out of the window, unless something around them scrolls.
STICKS_OUT = """() => {
  const scrolls = e => e && e !== document.body &&
    (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const wide = document.documentElement.clientWidth + 1;
  return [...document.querySelectorAll('article *')]
    .filter(e => e.getBoundingClientRect().right > wide && !scrolls(e.parentElement)
                 && e.checkVisibility() && !e.closest('svg, mjx-assistive-mml'))
    .map(e => e.tagName + '.' + e.className + ': ' + e.textContent.trim().slice(0, 50));
}"""


@pytest.mark.book
@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_page_works(chromium, address: str, name: str, width: str):
    page = chromium.new_page(viewport={"width": WIDTHS[width], "height": 900})
    errors, failed = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("response", lambda r: failed.append(f"{r.status} {r.url}") if r.status > 399 else None)
    page.on(
        "requestfailed",
        lambda r: failed.append(f"{r.failure} {r.url}") if r.url.startswith(address) else None,
    )
    page.route(lambda url: not url.startswith(address), lambda route: route.abort())
    try:
        page.goto(f"{address}/{name}.html", wait_until="load")
        page.wait_for_timeout(200)  # late scripts
        assert not errors, f"script errors: {errors}"
        assert not failed, f"failed requests: {failed}"
        assert page.locator("h1").count() >= 1, "no heading"
        size = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert size[0] <= size[1], f"{size[0]} px wide in a window of {size[1]} px"
        assert not (out := page.evaluate(STICKS_OUT)), "\n".join(out)
    finally:
        page.close()


# --- the checkers themselves can fail ---


def make_site(folder: Path, **pages: str) -> Path:
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    return folder


def test_good_links_pass(tmp_path: Path):
    (tmp_path / "a b.png").write_bytes(b"")
    body = '<h1 id="top">A</h1><a href="b.html#part">b</a> <a href="#top">up</a>'
    body += '<img src="a%20b.png" alt="a digit">'
    site = make_site(tmp_path, a=body, b='<p id="part">B</p><a href="#">here</a>')
    assert internal_problems(read_site(site)) == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<a href="gone.html">x</a>', "does not exist"),
        ('<a href="b.html#gone">x</a>', "no such anchor"),
        ('<a href="#gone">x</a>', "no such anchor"),
        ('<script src="gone.js"></script>', "does not exist"),
        ('<img src="gone.png" alt="x">', "does not exist"),
        ('<a href="/b.html">x</a>', "root of the host"),
        ('<meta http-equiv="Refresh" content="0; url=gone.html">', "does not exist"),
    ],
)
def test_broken_link_is_noticed(tmp_path: Path, body: str, says: str):
    found = internal_problems(read_site(make_site(tmp_path, a=body, b="<p>B</p>")))
    assert len(found) == 1 and says in found[0]


def test_image_without_alt_is_noticed(tmp_path: Path):
    body = '<img src="x.png"><img src="f/y.png" alt="f/y.png"><img src="z.png" alt="a digit">'
    (page,) = read_site(make_site(tmp_path, a=body)).values()
    assert page.bare_images == ["x.png", "f/y.png"]


def test_malformed_external_link_is_noticed():
    good = {"https://arxiv.org/abs/1906.08935": "a.html", "//cdn.example.org/x.js": "a.html"}
    assert external_problems(good) == []
    for bad in ("https://localhost/x", "http://a.org/x y", "ftp://a.org/x", "https:///x"):
        assert external_problems({bad: "a.html"}), bad
