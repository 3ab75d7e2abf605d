// Questions that answer: choices become buttons, a choice is told its reason, first tries are counted.
// Without this script the answers stand folded below each question. Nothing is stored or sent.
(() => {
  const letter = (i) => String.fromCharCode(97 + i);

  const element = (name, kind, text = "") => {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = text;
    return made;
  };

  // Ids of the page stay unique: a reason that is shown is a copy.
  const copy = (reason) => {
    const made = element("span", "pf-why");
    made.append(...[...reason.cloneNode(true).childNodes]);
    made.querySelectorAll("[id]").forEach((node) => node.removeAttribute("id"));
    return made;
  };

  const question = (box, changed) => {
    const choices = [...box.querySelectorAll(".pf-choices > li")];
    const details = box.querySelector("details");
    const reasons = [...details.querySelectorAll("li")];
    const told = element("div", "pf-told");
    told.setAttribute("role", "status");
    box.querySelector(".pf-choices").after(told);
    details.hidden = true;
    const state = { tries: 0, done: false, read: [] };

    const buttons = choices.map((choice, i) => {
      const button = element("button", "");
      button.type = "button";
      button.append(...choice.childNodes);
      choice.append(button);
      button.addEventListener("click", () => choose(i));
      return button;
    });

    const choose = (i) => {
      if (state.done || choices[i].classList.contains("pf-no")) return;
      const right = choices[i].dataset.kind === "right";
      state.tries += 1;
      state.done = right;
      choices[i].classList.add(right ? "pf-yes" : "pf-no");
      buttons[i].append(element("span", "pf-mark", right ? " ✓ right" : " ✗ not this one"));
      const head = element("strong", "", right ? "Right. " : `Not (${letter(i)}). `);
      told.replaceChildren(head, copy(reasons[i]));
      const settled = right ? buttons : [buttons[i]];
      settled.forEach((button) => button.setAttribute("aria-disabled", "true"));
      if (!right) state.read.push(...told.querySelectorAll("a"));
      changed();
    };

    const reset = () => {
      Object.assign(state, { tries: 0, done: false, read: [] });
      told.replaceChildren();
      choices.forEach((choice, i) => {
        choice.classList.remove("pf-yes", "pf-no");
        choice.querySelector(".pf-mark")?.remove();
        buttons[i].removeAttribute("aria-disabled");
      });
    };
    return { state, reset, first: buttons[0] };
  };

  const praise = (first, all) => {
    if (first === all) return "All right at the first try.";
    return first >= 0.7 * all ? "Well done." : "It is worth another look.";
  };

  document.querySelectorAll(".pf-quiz").forEach((quiz) => {
    const score = element("p", "pf-score");
    score.setAttribute("role", "status");
    const again = element("button", "pf-again", "Start again");
    again.type = "button";
    const questions = [];

    const show = () => {
      const done = questions.filter((q) => q.state.done);
      const first = done.filter((q) => q.state.tries === 1).length;
      const all = questions.length;
      const counted = `${done.length} of ${all} answered, ${first} at the first try.`;
      const links = new Map(
        questions.flatMap((q) => q.state.read).map((a) => [a.href, a.cloneNode(true)]),
      );
      score.replaceChildren(counted);
      again.hidden = !questions.some((q) => q.state.tries);
      if (done.length < all) return;
      score.append(` ${praise(first, all)}`);
      [...links.values()].forEach((a, i) => score.append(i ? ", " : " Read again: ", a));
      if (links.size) score.append(".");
    };

    quiz.querySelectorAll(".pf-question").forEach((box) => questions.push(question(box, show)));
    again.addEventListener("click", () => {
      questions.forEach((q) => q.reset());
      show();
      questions[0].first.focus();
    });
    quiz.append(score, again);
    quiz.classList.add("pf-live");
    show();
  });
})();
