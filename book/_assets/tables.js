// Tables that say pf-sortable: a button in each head sorts, a field above narrows the rows by words, and
// for a head with data-choose a list does (data-choice may hold several choices, with | between them).
// Without this script they are plain tables.
(() => {
  const value = (row, i) => {
    const cell = row.cells[i];
    return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
  };

  // Numbers first, then words; what has no number (a dash) comes last in either direction.
  const compare = (a, b, sign) => {
    const numbers = [a, b].map((v) => typeof v === "number");
    if (numbers[0] && numbers[1]) return sign * (a - b);
    if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
    return sign * a.localeCompare(b);
  };

  const sorter = (table, head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(value(a, i), value(b, i), up ? 1 : -1));
      table.tBodies[0].append(...rows);
    });
  };

  const choices = ({ cells }, i) => cells[i].dataset.choice?.split("|") ?? [cells[i].textContent.trim()];

  // A list of all that a column holds, in the order of the table.
  const chooser = (head, i, rows) => {
    const label = document.createElement("label");
    const list = document.createElement("select");
    list.append(new Option("all", ""));
    new Set(rows.flatMap((row) => choices(row, i))).forEach((text) => list.append(new Option(text, text)));
    label.append(`${head.textContent} `, list);
    return { label, fits: (row) => !list.value || choices(row, i).includes(list.value) };
  };

  const filter = (box, table) => {
    const form = document.createElement("form");
    form.className = "ledger-filter";
    form.innerHTML =
      '<label>Rows with <input type="search" placeholder="any words"></label>' +
      '<output aria-live="polite"></output>';
    const [field, told] = [form.querySelector("input"), form.querySelector("output")];
    const rows = [...table.tBodies[0].rows];
    const heads = [...table.tHead.rows[0].cells];
    const lists = heads.flatMap((h, i) => ("choose" in h.dataset ? [chooser(h, i, rows)] : []));
    form.prepend(...lists.map((list) => list.label));
    const narrow = () => {
      const words = field.value.toLowerCase().split(/\s+/);
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !(words.every((word) => text.includes(word)) && lists.every((l) => l.fits(row)));
      });
      told.value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    };
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", narrow);
    box.before(form);
    narrow();
  };

  document.querySelectorAll(".pf-sortable").forEach((box) => {
    const table = box.querySelector("table");
    [...table.tHead.rows[0].cells].forEach((head, i) => sorter(table, head, i));
    filter(box, table);
  });
})();
