// Shows one slide at a time; on a narrow window all of them, one below the other.
// Keys: arrows, space, Page Up and Down, Home, End; N notes, S speaker's window, T theme, P print.
"use strict";
(() => {
  const slides = [...document.querySelectorAll(".slide")];
  const root = document.documentElement;
  const said = document.querySelector(".said");
  const narrow = matchMedia("(max-width: 700px)");
  const began = Date.now();
  let at = 0;
  let speaker = null;

  const steps = (slide) => [...slide.querySelectorAll(".step")];
  const waiting = () => (narrow.matches ? [] : steps(slides[at]).filter((s) => !s.matches(".seen")));
  const title = (slide) => slide.querySelector("h1, h2").textContent;
  const minutes = (from, to) =>
    slides.slice(from, to).reduce((sum, s) => sum + Number(s.dataset.minutes), 0);

  function show(number, seen = false) {
    at = Math.max(0, Math.min(slides.length - 1, number));
    slides.forEach((slide, i) => slide.classList.toggle("now", i === at));
    steps(slides[at]).forEach((step) => step.classList.toggle("seen", seen));
    root.style.setProperty("--part", (at + 1) / slides.length);
    said.textContent = `Slide ${at + 1} of ${slides.length}: ${title(slides[at])}`;
    history.replaceState(null, "", `#${at + 1}`);
    if (narrow.matches) slides[at].scrollIntoView();
    tell();
  }

  function on() {
    const [step] = waiting();
    if (step) {
      step.classList.add("seen");
      said.textContent = step.textContent;
    } else if (at < slides.length - 1) show(at + 1);
  }

  // The window of the speaker: notes, what comes next, and the time beside the plan.
  function tell() {
    if (!speaker || speaker.closed) return;
    const spent = Math.round((Date.now() - began) / 60000);
    const next = slides[at + 1] ? title(slides[at + 1]) : "the end";
    speaker.document.title = `Notes ${at + 1} / ${slides.length}`;
    speaker.document.body.innerHTML =
      `<h1>${at + 1} / ${slides.length}: ${slides[at].querySelector("h1, h2").innerHTML}</h1>` +
      `<p>${spent} minutes gone; the plan for here: ${minutes(0, at)} of ` +
      `${minutes(0, slides.length)}</p>` +
      slides[at].querySelector(".notes").innerHTML + `<p>Next: ${next}</p>`;
  }

  function open() {
    speaker = window.open("", "notes", "width=720,height=640");
    if (!speaker) return document.body.classList.add("with-notes");
    speaker.document.documentElement.lang = "en";
    speaker.document.body.style.cssText =
      "font: 22px/1.45 system-ui, sans-serif; margin: 1.5em; color: #1f2a35; background: #ffffff";
    speaker.onkeydown = key;
    tell();
  }

  const acts = {
    on,
    back: () => (at > 0 ? show(at - 1, true) : show(0)),
    first: () => show(0),
    last: () => show(slides.length - 1),
    notes: () => document.body.classList.toggle("with-notes"),
    speaker: open,
    theme: () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; },
    print: () => window.print(),
  };
  const keys = {
    ArrowRight: "on", ArrowDown: "on", PageDown: "on", " ": "on", Enter: "on",
    ArrowLeft: "back", ArrowUp: "back", PageUp: "back", Backspace: "back",
    Home: "first", End: "last", n: "notes", s: "speaker", t: "theme", p: "print",
  };

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const presses = [" ", "Enter"].includes(name);
    if (presses && event.target.closest?.("a, button")) return;
    if (["ArrowUp", "ArrowDown", " "].includes(name) && narrow.matches) return;
    if (!(name in keys)) return;
    event.preventDefault();
    acts[keys[name]]();
  }

  document.addEventListener("keydown", key);
  for (const button of document.querySelectorAll("[data-do]"))
    button.addEventListener("click", () => acts[button.dataset.do]());
  let touched = null;
  document.addEventListener("touchstart", (e) => { touched = e.changedTouches[0]; });
  document.addEventListener("touchend", (e) => {
    const moved = e.changedTouches[0].clientX - (touched?.clientX ?? 0);
    if (!narrow.matches && Math.abs(moved) > 60) acts[moved < 0 ? "on" : "back"]();
  });
  window.addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1));
  setInterval(tell, 20000);
  if (matchMedia("(prefers-color-scheme: dark)").matches) root.dataset.theme = "dark";
  document.body.classList.add("playing");
  show((Number(location.hash.slice(1)) || 1) - 1);
})();
