"""The book builds without a warning, and its links lead somewhere (in a browser: test_site.py).

Marker ``book``: one strict build into a fresh folder, shared by all workers.
``PRIVFL_SITE=_build/html`` checks an existing site instead.
"""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from checkout import toc_files
from chromium import ROOT, shared_site
from links import external_links, external_problems, internal_problems, read_site

sys.path.insert(0, str(ROOT / "scripts"))
import vendor

PAGES = [*toc_files(), "search", "genindex"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; the strict build itself is the first test."""
    return shared_site(tmp_path_factory)


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
    files += [
        p for kind in ("*.ipynb", "student/*.ipynb", "src/*.md") for p in (ROOT / "book").glob(kind)
    ]
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


# --- scripts for reading offline (scripts/vendor.py) ---


def packed(folder: Path, name: str, digest: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let npm "deliver" one tarball with one file, under the given pin."""
    (folder / "require.js").write_text("1")
    tarball = folder / "x.tgz"
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(folder / "require.js", f"package/{name}")
    monkeypatch.setattr(vendor, "PINS", {vendor.REQUIRE: digest or vendor.sha256(tarball)})
    monkeypatch.setattr(vendor, "pack", lambda _: {vendor.REQUIRE: tarball})
    return folder / "_vendor"


def test_vendored_files_appear_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = packed(tmp_path, "require.js", "", monkeypatch)
    for _ in range(2):  # also over an older one
        vendor.vendor(target)
        assert (target / "vendor" / "require.js").read_text() == "1"
        assert vendor.is_done(target)
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("name", "digest", "says"),
    [("require.js", "0" * 64, "wrong hash"), ("other.js", "", "holds no")],
)
def test_wrong_package_is_refused(tmp_path, monkeypatch, name: str, digest: str, says: str):
    target = packed(tmp_path, name, digest, monkeypatch)
    with pytest.raises(vendor.Impossible, match=says):
        vendor.vendor(target)
    assert not target.exists()


def test_without_npm_the_build_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(vendor, "TARGET", tmp_path / "_vendor")
    monkeypatch.setattr(vendor, "is_done", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PRIVFL_OFFLINE", "0")
    for reason in ("npm is not installed", "PRIVFL_OFFLINE is set"):
        assert vendor.main() == 0
        assert reason in capsys.readouterr().err
        monkeypatch.setenv("PRIVFL_OFFLINE", "1")
