"""What a browser really shows: words whose color is too near to what lies behind them."""

from __future__ import annotations

ENOUGH = 4.5  # WCAG 2.2, AA
WORDS = """root => {
  const rgb = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
  const paper = rgb(getComputedStyle(root).backgroundColor);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => {
    const [dim, bright] = [light(a), light(b)].sort((x, y) => x - y);
    return (bright + 0.05) / (dim + 0.05);
  };
  const found = [];
  for (const e of root.querySelectorAll("text, tspan, p, b, span, button")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const look = getComputedStyle(e);
    const ink = rgb(e instanceof SVGElement ? look.fill : look.color);
    const value = ratio(ink, paper);
    if (value < LEAST) found.push(`${e.textContent.trim()}: ${value.toFixed(2)}`);
  }
  return found;
}"""


def faint_words(locator) -> list[str]:
    """Texts inside an element with a contrast below AA to the element's own ground."""
    return locator.evaluate(WORDS.replace("LEAST", str(ENOUGH)))
