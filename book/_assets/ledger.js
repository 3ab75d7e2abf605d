// The ledger's form: narrows the entries by paper, verdict, strength and words. Without this script
// the page shows them all, and the bars lead to the papers.
(() => {
  const form = document.querySelector(".ledger-filter");
  if (!form) return;
  const entries = [...document.querySelectorAll(".ledger-entry")];
  const texts = new Map(entries.map((e) => [e, e.textContent.toLowerCase()]));
  const fields = ["paper", "verdict", "strength"];
  const unfold = form.elements.unfold;

  const matches = (entry) => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/);
    return (
      fields.every((f) => ["", entry.dataset[f]].includes(form.elements[f].value)) &&
      words.every((word) => texts.get(entry).includes(word))
    );
  };

  const narrow = () => {
    entries.forEach((entry) => (entry.hidden = !matches(entry)));
    document.querySelectorAll(".ledger-list").forEach((list) => {
      list.classList.toggle("nothing-left", !list.querySelector(".ledger-entry:not([hidden])"));
    });
    const left = entries.filter((entry) => !entry.hidden);
    form.querySelector("output").value = `${left.length} of ${entries.length} entries`;
    unfold.textContent = left.some((entry) => !entry.open) ? "Unfold" : "Fold";
  };

  // A link to an entry opens it, even where the form had hidden it.
  const arrive = () => {
    const entry = entries.find((e) => `#${e.id}` === location.hash);
    if (!entry) return;
    if (entry.hidden) form.reset();
    entry.open = true;
    entry.scrollIntoView();
  };

  form.addEventListener("input", narrow);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(narrow));
  unfold.addEventListener("click", () => {
    const left = entries.filter((entry) => !entry.hidden);
    const open = left.some((entry) => !entry.open);
    left.forEach((entry) => (entry.open = open));
    narrow();
  });
  document.querySelectorAll(".ledger-bar a").forEach((part) => {
    part.addEventListener("click", () => {
      form.reset();
      form.elements.paper.value = part.dataset.paper;
      form.elements.verdict.value = part.dataset.verdict;
      narrow();
    });
  });
  addEventListener("hashchange", arrive);
  form.hidden = false;
  arrive();
})();
