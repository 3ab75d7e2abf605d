// What a term means, on hover, on keyboard focus and on a first tap; Escape closes it.
// Without this script a term is a link to the glossary (book/_ext/glossary_links.py).
(() => {
  const data = document.querySelector("script.pf-terms");
  if (!data) return;
  const meanings = JSON.parse(data.textContent);
  const tip = document.createElement("div");
  tip.id = "pf-tip";
  tip.className = "pf-tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let shown = null, leaving = 0, tapped = false;

  const termOf = event => event.target.closest?.("a.pf-term");

  function hide() {
    clearTimeout(leaving);
    shown?.removeAttribute("aria-describedby");
    shown = null;
    tip.hidden = true;
  }

  function show(term) {
    const found = meanings[decodeURIComponent(term.hash.slice(1))];
    if (!found) return;
    clearTimeout(leaving);
    if (shown !== term) hide();
    const name = document.createElement("strong");
    name.textContent = found.name;
    tip.replaceChildren(name, ": " + found.meaning);
    tip.hidden = false;
    shown = term;
    term.setAttribute("aria-describedby", tip.id);
    place();
  }

  function place() {
    const word = shown.getClientRects()[0], box = tip.getBoundingClientRect();
    const right = document.documentElement.clientWidth - box.width - 8;
    tip.style.left = Math.max(8, Math.min(word.left, right)) + "px";
    const below = word.bottom + 6, fits = below + box.height < innerHeight;
    tip.style.top = (fits ? below : Math.max(8, word.top - box.height - 6)) + "px";
  }

  const leave = () => { leaving = setTimeout(hide, 200); };  // time to reach the box itself
  document.addEventListener("pointerover", event => {
    if (event.pointerType === "touch") return;
    const term = termOf(event);
    if (term) show(term);
    else if (event.target.closest?.(".pf-tip")) clearTimeout(leaving);
  });
  document.addEventListener("pointerout", event => {
    if (event.pointerType !== "touch" && (termOf(event) || event.target === tip)) leave();
  });
  document.addEventListener("pointerdown", event => {
    const term = termOf(event);
    tapped = event.pointerType === "touch" && Boolean(term) && shown !== term;
    if (shown && !term && !tip.contains(event.target)) hide();
  });
  document.addEventListener("click", event => {
    const term = termOf(event);
    if (!term || !tapped) return;
    event.preventDefault();  // the second tap follows the link
    tapped = false;
    show(term);
  });
  document.addEventListener("focusin", event => { if (termOf(event)) show(termOf(event)); });
  document.addEventListener("focusout", event => { if (termOf(event)) leave(); });
  document.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", () => { if (shown) place(); }, { passive: true });
})();
