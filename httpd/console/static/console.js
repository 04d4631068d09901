// The console without this file does everything; with it there are keys, and times in the viewer's zone.
"use strict";

// Times within a part of the page, in the viewer's zone; UTC is shown on hover.
function localTimes(within) {
  for (const time of within.querySelectorAll("time")) {
    const moment = new Date(time.dateTime);
    time.title = time.textContent;
    const year = moment.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
    const form = { ...year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
    time.textContent = moment.toLocaleString(undefined, form);
  }
}
localTimes(document);

for (const link of document.querySelectorAll("nav a")) {
  if (location.pathname === link.pathname || location.pathname.startsWith(`${link.pathname}/`)) {
    link.setAttribute("aria-current", "page");
  }
}

const list = document.getElementById("list");
const rows = list ? [...list.querySelectorAll("tr[data-id]")] : [];
const back = document.getElementById("back");
let at = -1;

function go(to) {
  if (!rows.length) return;
  if (at >= 0) rows[at].classList.remove("current");
  at = Math.max(0, Math.min(rows.length - 1, to));
  rows[at].classList.add("current");
  rows[at].querySelector("a").focus();
  rows[at].scrollIntoView({ block: "nearest" });
}

// What is selected, else the row that the keys are on, else the message of this page.
function decide(verb) {
  const one = document.getElementById("one");
  const form = one || list;
  if (!form) return;
  if (!one && !list.querySelector("input[name=id]:checked")) {
    if (at < 0) return;
    rows[at].querySelector("input").checked = true;
  }
  form.requestSubmit(form.querySelector(`button[value=${verb}]`));
}

// The form that blocks the sender of the row that the keys are on, else of this page's message.
function block() {
  const link = document.getElementById("block");
  if (link) link.click();
  else if (at >= 0) location.assign(`${rows[at].querySelector("a").href}/block`);
}

const KEYS = {
  b: block,
  j: () => go(at + 1),
  k: () => go(at - 1),
  o: () => at >= 0 && rows[at].querySelector("a").click(),
  x: () => at >= 0 && rows[at].querySelector("input").click(),
  r: () => decide("release"),
  d: () => decide("delete"),
  u: () => back && back.click(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input:not([type=checkbox]), textarea, select");
  if (typing || event.ctrlKey || event.altKey || event.metaKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});

// A condition is completed word by word: what stands before the last word goes before each word that the page knows.
const typed = document.querySelector("input[name=condition][list]");
if (typed) {
  const known = document.getElementById(typed.getAttribute("list"));
  const every = [...known.options].map((option) => option.value);
  const names = [...new Set(every.filter((word) => word.includes("=")).map((word) => word.replace(/=.*/s, "")))];
  const complete = () => {
    const [, before, word] = /^(.*?)((?:[^\s("]|"[^"]*"?)*)$/s.exec(typed.value);
    const values = names.includes(word) ? ["=", "!=", "~", "<", ">"].map((operator) => word + operator) : [];
    const not = /^(\w+)!=/.exec(word);
    const from = not ? every.map((each) => each.replace("=", "!=")) : every;
    const fitting = [...from.filter((each) => each.startsWith(word) && each !== word), ...values];
    known.replaceChildren(...fitting.slice(0, 200).map((each) => new Option("", before + each)));
  };
  typed.addEventListener("input", complete);
  typed.addEventListener("focus", complete);
}

if (list) {
  for (const hint of document.querySelectorAll(".keys")) hint.hidden = false;
  const every = document.getElementById("every");
  every.hidden = false;
  every.addEventListener("change", () => {
    for (const box of list.querySelectorAll("input[name=id]")) box.checked = every.checked;
  });
}
