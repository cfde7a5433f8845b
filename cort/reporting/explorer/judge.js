// Judging: one text after the other, without systems, ranks and scores. Of a page that `python -m cort.explore
// --judgements` serves; uses the tools of explorer.js. Every judgement is on disk before the next text is shown.
"use strict";

const RUBRIC = {
  3: "Perfectly answers: it is about the query, and has the exact answer",
  2: "Partly or not clearly answers: an answer that is incomplete, or hidden among other things",
  1: "Related: it seems related to the query, but does not answer it",
  0: "Irrelevant: it has nothing to do with the query",
};
// Characters that identify a text; the server checks that they are its beginning.
const BEGINNING = 300;
// By query: id, text, ids of candidates and, once they are needed, their texts. By pair, in order: grades.
const judged = { queries: [], grades: new Map(), query: null, doc: null, waiting: true };
const keyOf = (query, doc) => JSON.stringify([query, doc]);
const gradeOf = (query, doc) => judged.grades.get(keyOf(query.query_id, doc));
const isOpen = (query) => (doc) => gradeOf(query, doc) === undefined;
const openOf = (query) => query.candidates.filter(isOpen(query));

const modes = element("nav", { "aria-label": "Modes", class: "modes" },
  element("a", { href: "#", id: "to-compare" }, "Compare"), element("a", { href: "#judge", id: "to-judge" }, "Judge"));
const judge = element("main", { id: "judge", "aria-busy": "true", hidden: true });
document.querySelector("header").append(modes);
$("page").after(judge);

const chooser = element("select", { onchange: () => { judged.query = judged.queries[chooser.value]; next(); } });
const progress = element("p", { role: "status", id: "progress" });
const question = element("h2", { dir: "auto", id: "question" });
const shown = element("p", { class: "passage", dir: "auto" });
const candidate = element("section", { id: "candidate", tabindex: 0, "aria-label": "Text to judge" }, shown);
const grades = element("div", { id: "grades", role: "group", "aria-label": "How well does the text answer the query?" },
  ...[3, 2, 1, 0].map((grade) => button("", { "aria-keyshortcuts": String(grade), onclick: () => give(grade) },
    element("kbd", {}, String(grade)), " ", element("span", {}, RUBRIC[grade]))));
const undo = button("", { "aria-keyshortcuts": "u", id: "undo", onclick: () => withdraw() },
  element("kbd", {}, "u"), " Undo the last judgement");
const before = element("details", { id: "before" });
judge.append(
  element("div", { class: "bar" }, element("label", {}, "Query ", chooser), progress),
  question,
  element("p", { class: "quiet" }, "The first results of all systems, each text once. Their order says "
    + "nothing about ranks. Press 0, 1, 2 or 3 for a grade, u to undo."),
  candidate, grades, element("p", {}, undo), before);

// While a text is not there yet, keys and buttons do nothing.
function wait(waiting) {
  judged.waiting = waiting;
  judge.setAttribute("aria-busy", String(waiting));
}

async function send(query, doc, relevance) {
  wait(true);
  complain("");
  try {
    await textsOf(query);
    const text = Array.from(query.texts[doc]).slice(0, BEGINNING).join("");
    const body = JSON.stringify({ query_id: query.query_id, doc_id: doc, text, relevance });
    const headers = { "Content-Type": "application/json" };
    const found = await fetch("api/judgements", { method: "POST", headers, body })
      .catch(() => { throw new Error(`No answer: the judgement is not saved. ${REMEDY}`); });
    if (!found.ok) throw new Error((await found.json()).error);
    judged.grades.delete(keyOf(query.query_id, doc));
    if (relevance !== null) judged.grades.set(keyOf(query.query_id, doc), relevance);
    return true;
  } catch (error) {
    complain(error.message);
    wait(false);
    return false;
  }
}

async function give(grade) {
  if (judged.waiting || judged.doc === null) return;
  if (await send(judged.query, judged.doc, grade)) await next();
}

async function withdraw() {
  if (judged.waiting || !judged.grades.size) return;
  const [id, doc] = JSON.parse([...judged.grades.keys()].at(-1));
  const query = judged.queries.find((one) => one.query_id === id);
  if (await send(query, doc, null)) await next(query, doc);
}

async function textsOf(query) {
  query.texts ??= (await ask("judgements", { query_id: query.query_id })).texts;
}

// Show a candidate: by default, the next one without a grade, of this query or the next one that has any.
async function next(query = judged.query, doc = null) {
  const from = judged.queries.indexOf(query), all = [...judged.queries.slice(from), ...judged.queries.slice(0, from)];
  judged.query = doc === null ? all.find((one) => openOf(one).length) ?? query : query;
  judged.doc = doc ?? openOf(judged.query)[0] ?? null;
  wait(true);
  try {
    await textsOf(judged.query);
    draw();
  } catch (error) {
    complain(error.message);
  }
  wait(false);
}

function draw() {
  const { query, queries, doc } = judged, done = (one) => one.candidates.length - openOf(one).length;
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const total = sum(queries.map((one) => one.candidates.length));
  const finished = queries.filter((one) => !openOf(one).length);
  progress.textContent = `${count(sum(queries.map(done)))} of ${count(total)} judged; `
    + `queries finished: ${count(finished.length)} of ${count(queries.length)}`;
  fill(chooser, queries.map((one, place) =>
    [place, `${done(one)}/${one.candidates.length} ${one.query.slice(0, 80)}`]), queries.indexOf(query));
  question.textContent = query.query || "(an empty query)";
  shown.textContent = doc === null ? "Every text is judged." : query.texts[doc];
  for (const one of grades.children) {
    one.disabled = doc === null;
    const given = doc !== null && String(gradeOf(query, doc)) === one.firstElementChild.textContent;
    one.setAttribute("aria-pressed", String(given));
  }
  undo.disabled = !judged.grades.size;
  const known = query.candidates.filter((one) => !isOpen(query)(one));
  before.hidden = !known.length;
  before.replaceChildren(element("summary", {}, `Judged of this query: ${known.length}`),
    element("ul", {}, ...known.map((one) => element("li", { dir: "auto" },
      button("Judge again", { onclick: () => next(query, one) }), ` ${gradeOf(query, one)}: `,
      query.texts[one].slice(0, 120)))));
  document.title = `Judge: ${query.query.slice(0, 60)}`;
  candidate.focus({ preventScroll: true });
  if (candidate.getBoundingClientRect().top < 0) judge.scrollIntoView();
}

async function enter() {
  wait(true);
  try {
    const state = await ask("judgements", {});
    judged.queries = state.queries;
    judged.grades = new Map(state.judgements.map(([query, doc, grade]) => [keyOf(query, doc), grade]));
    if (judged.queries.length) await next(judged.queries[0]);
    else complain("No system has results for the queries of this split.");
  } catch (error) {
    complain(error.message);
  }
  wait(false);
}

function route() {
  const on = location.hash === "#judge";
  $("page").hidden = $("cut").hidden = on;
  judge.hidden = !on;
  for (const [id, current] of [["to-judge", on], ["to-compare", !on]]) {
    if (current) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  }
  if (!on) $("to-compare").href = location.hash || "#";
  else enter();
}

addEventListener("hashchange", route);
addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (judge.hidden || typing || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
  // Some keyboards have digits only with the shift key: there, the key alone counts, too.
  const digit = /^[0-9]$/.test(event.key) || event.shiftKey ? event.key : event.code.replace("Digit", "");
  if (/^[0-3]$/.test(digit)) give(Number(digit));
  if (event.key === "u") withdraw();
});
route();
