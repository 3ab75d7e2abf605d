"""What TeX's commands stand for in a formula, as far as the book uses them."""

from __future__ import annotations

GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi "
        "rho varrho sigma varsigma tau upsilon phi varphi chi psi omega".split(),
        "αβγδϵεζηθικλμνξπρϱσςτυϕφχψω",
        strict=True,
    )
)
UPRIGHT = dict(  # identifiers that are not slanted
    zip(
        "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega nabla infty top perp dots cdots ldots "
        "angle emptyset".split(),
        "ΓΔΘΛΞΠΣΦΨΩ∇∞⊤⊥…⋯…∠∅",
        strict=True,
    )
)
SLANTED = {"partial": "∂", "ell": "ℓ"}
OPERATORS = {
    "cdot": "⋅", "times": "×", "pm": "±", "mp": "∓", "circ": "∘", "odot": "⊙", "ast": "∗",
    "cup": "∪", "cap": "∩", "setminus": "∖", "otimes": "⊗", "oplus": "⊕", "star": "⋆",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "approx": "≈",
    "sim": "∼", "equiv": "≡", "ll": "≪", "gg": "≫", "preceq": "⪯", "succeq": "⪰",
    "gtrsim": "≳", "lesssim": "≲", "propto": "∝", "parallel": "∥", "in": "∈", "notin": "∉",
    "subset": "⊂", "subseteq": "⊆", "supset": "⊃", "supseteq": "⊇", "to": "→",
    "rightarrow": "→", "leftarrow": "←", "Rightarrow": "⇒", "Leftrightarrow": "⇔",
    "iff": "⟺", "implies": "⟹", "mapsto": "↦", "mid": "∣", "forall": "∀", "exists": "∃",
    "neg": "¬", "wedge": "∧", "vee": "∨", "colon": ":",
}  # fmt: skip
BIG = {"sum": "∑", "prod": "∏", "bigcup": "⋃", "bigcap": "⋂"}  # limits above and below
INTEGRALS = {"int": "∫"}  # limits beside
OPENING = {"lVert": "‖", "lvert": "|", "langle": "⟨", "lceil": "⌈", "lfloor": "⌊", "{": "{"}
CLOSING = {"rVert": "‖", "rvert": "|", "rangle": "⟩", "rceil": "⌉", "rfloor": "⌋", "}": "}"}
FENCES = {"Vert": "‖", "vert": "|", "|": "‖"}
FUNCTIONS = set("log ln lg exp sin cos tan arccos det dim deg tanh arg ker".split())
LIMITS = set("min max sup inf lim Pr argmin argmax".split())
SPACES = {",": 0.17, ":": 0.22, ";": 0.28, " ": 0.33, "quad": 1.0, "qquad": 2.0, "!": -0.17}
ACCENTS = {"hat": "^", "tilde": "~", "bar": "¯", "dot": "˙", "vec": "→", "widehat": "^",
           "widetilde": "~", "overline": "¯"}  # fmt: skip
SIZES = {"big": 1.2, "Big": 1.8, "bigg": 2.4, "Bigg": 3.0}
STYLES = {"textstyle", "displaystyle", "limits", "nolimits"}
# Letters of other alphabets: the first of A–Z and of a–z, and those that Unicode had before.
ALPHABETS = {
    "mathbb": (0x1D538, 0x1D552, dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True))),
    "mathcal": (0x1D49C, 0x1D4B6, dict(zip("BEFHILMR", "ℬℰℱℋℐℒℳℛ", strict=True))),
    "mathbf": (0x1D400, 0x1D41A, {}),
    "boldsymbol": (0x1D400, 0x1D41A, {}),
}


def letter(alphabet: str, char: str) -> str:
    """A letter of another alphabet, such as ℝ; other characters stay."""
    upper, lower, known = ALPHABETS[alphabet]
    if char in known:
        return known[char]
    if "A" <= char <= "Z":
        return chr(upper + ord(char) - ord("A"))
    if "a" <= char <= "z":
        return chr(lower + ord(char) - ord("a"))
    if alphabet != "mathcal" and char.isdigit():
        return chr({"mathbb": 0x1D7D8}.get(alphabet, 0x1D7CE) + int(char))
    return char
