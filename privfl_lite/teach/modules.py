"""ES modules of ``teach/js`` as one text, without a build tool.

A widget in a notebook (anywidget) is one ES module, and a page opened from a disk may load no
module at all, only plain scripts. So ``bundle`` follows relative imports and puts each module into
a function that returns its exports, imported ones first. It reads what our modules use and refuses
the rest in one sentence:

    import { a, b as c } from "./x.js";      import * as x from "./x.js";
    export const a = …;  export function f   export { a, b as c };   export default …;
    new URL("./worker.js", import.meta.url)  (a script is bundled too; other files become data)
"""

from __future__ import annotations

import base64
import json
import mimetypes
import re
from pathlib import Path

from ..errors import PrivflError

JS = Path(__file__).parent / "js"
IMPORT = re.compile(
    r"^import\s+(?:\{(?P<names>[^}]*)\}|\*\s+as\s+(?P<all>\w+))\s+from\s+[\"'](?P<file>\.[^\"']+)[\"'];?",
    re.MULTILINE,
)
DECLARED = re.compile(
    r"^export\s+(?=(?:const|class|(?:async\s+)?function\*?)\s+(\w+))", re.MULTILINE
)
LISTED = re.compile(r"^export\s+\{([^}]*)\};?$", re.MULTILINE)
DEFAULT = re.compile(r"^export\s+default\s+", re.MULTILINE)
BESIDE = re.compile(r"new URL\(\s*[\"'](?P<file>\.[^\"']+)[\"'],\s*import\.meta\.url,?\s*\)")
LEFT = re.compile(r"^(?:import|export)\b.{0,50}|\bimport\s*(?:\(|\.meta).{0,50}", re.MULTILINE)
COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
BLOB = 'const $blob = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));'


class Bundle:
    """Modules in the order in which they must run, each once."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.names: dict[Path, str] = {}
        self.open: list[Path] = []

    def add(self, path: Path) -> str:
        """Add a file and all that it imports; the name of the object that holds its exports."""
        path = path.resolve()
        if path in self.open:
            raise PrivflError(f"{path.name} imports itself, by way of {self.open[-1].name}")
        if path not in self.names:
            self.open.append(path)
            body = self.text(_read(path), path)
            self.open.pop()
            self.names[path] = f"$module{len(self.names)}"
            self.parts.append(f"const {self.names[path]} = (() => {{\n{body}\n}})();")
        return self.names[path]

    def text(self, source: str, path: Path) -> str:
        """A module's text as the body of a function that returns its exports."""
        source = COMMENT.sub("", source)
        exports: list[str] = []

        def inside(found: re.Match) -> str:
            name = self.add(path.parent / found["file"])
            if found["all"]:
                return f"const {found['all']} = {name};"
            return f"const {{ {_renamed(found['names'], ':')} }} = {name};"

        def listed(found: re.Match) -> str:
            pairs = [(item.split(" as ") * 2)[:2] for item in _items(found[1])]
            exports.extend(f"{new.strip()}: {old.strip()}" for old, new in pairs)
            return ""

        source = IMPORT.sub(inside, source)
        exports += [found[1] for found in DECLARED.finditer(source)]
        source = LISTED.sub(listed, DECLARED.sub("", source))
        if DEFAULT.search(source):
            exports.append("default: $default")
            source = DEFAULT.sub("const $default = ", source)
        if left := LEFT.search(BESIDE.sub("", source)):
            raise PrivflError(f"{path.name}: a bundle cannot hold {left[0]!r}")
        source = BESIDE.sub(lambda m: self.beside(path.parent / m["file"]), source)
        return f"{source.strip()}\nreturn {{ {', '.join(exports)} }};"

    def beside(self, path: Path) -> str:
        """A file as an address inside the bundle."""
        if path.suffix == ".js":
            return f"new URL($blob({json.dumps(bundle(_read(path), path))}))"
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        data = base64.b64encode(path.read_bytes()).decode()
        return f'new URL("data:{kind};base64,{data}")'


def bundle(entry: str, path: Path = JS / "entry.js") -> str:
    """The text of a module, and of all that it imports, as one text without imports.

    ``path`` says where the entry stands, for its relative imports. If it has a default export, the
    result is an ES module with that export; else it can also be run as a plain script.
    """
    made = Bundle()
    body = made.text(entry, path)
    made.parts.append(f"const $entry = (() => {{\n{body}\n}})();")
    whole = "\n".join([BLOB, *made.parts] if "$blob(" in "".join(made.parts) else made.parts)
    return whole + ("\nexport default $entry.default;\n" if DEFAULT.search(entry) else "\n")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PrivflError(f"there is no module {path.name} in {path.parent.name}") from error


def _items(names: str) -> list[str]:
    return [item.strip() for item in names.split(",") if item.strip()]


def _renamed(names: str, mark: str) -> str:
    return ", ".join(item.replace(" as ", f"{mark} ") for item in _items(names))
