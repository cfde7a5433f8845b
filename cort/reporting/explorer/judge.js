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
// By query: id, text, ids of candidates and, once they are needed, their texts. By pair, in order: grades; what was
// skipped, and what was shown before.
const judged = { queries: [], grades: new Map(), skipped: new Set(), past: [], query: null, doc: null, waiting: true };
const keyOf = (query, doc) => JSON.stringify([query, doc]);
const gradeOf = (query, doc) => judged.grades.get(keyOf(query.query_id, doc));
const isOpen = (query) => (doc) => gradeOf(query, doc) === undefined;
const openOf = (query) => query.candidates.filter(isOpen(query));

const modes = element("nav", { "aria-label": "Modes", class: "modes" },
  element("a", { href: "#", id: "to-compare" }, "Compare systems"),
  element("a", { href: "#judge", id: "to-judge" }, "Judge results"));
const judge = element("main", { id: "judge", "aria-busy": "true", hidden: true });
document.querySelector("header").append(modes);
$("page").after(judge);

const chooser = element("select", { onchange: () => turnTo(judged.queries[chooser.value]) });
const progress = element("p", { role: "status", id: "progress" });
const question = element("h2", { dir: "auto", id: "question" });
const shown = element("p", { class: "passage", dir: "auto" });
const candidate = element("section", { id: "candidate", tabindex: 0, "aria-label": "Text to judge" }, shown);
const grades = element("div", { id: "grades", role: "group", "aria-label": "How well does the text answer the query?" },
  ...[3, 2, 1, 0].map((grade) => button("", { "aria-keyshortcuts": String(grade), onclick: () => give(grade) },
    element("kbd", {}, String(grade)), " ", element("span", {}, RUBRIC[grade]))));
const keyed = (id, shortcut, key, text, onclick) =>
  button("", { "aria-keyshortcuts": shortcut, id, onclick }, element("kbd", {}, key), ` ${text}`);
const skips = keyed("skips", "s", "s", "Skip", () => skip());
const back = keyed("back", "Backspace", "\u232b", "Back", () => goBack());
const undo = keyed("undo", "u", "u", "Undo the last judgement", () => withdraw());
const before = element("details", { id: "before" });
const after = element("p", { id: "after", class: "quiet" });
judge.append(
  element("div", { class: "bar" }, element("label", {}, "Query ", chooser), progress),
  question, candidate, grades, element("p", { class: "bar" }, skips, back, undo), before, after,
  element("p", { class: "quiet" }, "The first results of all systems, each text once. Their order says nothing about ranks."));

const turnTo = (query) => next(query, openOf(query)[0] ?? query.candidates[0]);

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
    // The server records a judgement for all candidates with this text.
    for (const one of Object.keys(query.texts).filter((one) => query.texts[one] === query.texts[doc])) {
      judged.grades.delete(keyOf(query.query_id, one));
      if (relevance !== null) judged.grades.set(keyOf(query.query_id, one), relevance);
    }
    return true;
  } catch (error) {
    complain(error.message);
    wait(false);
    return false;
  }
}

async function give(grade) {
  if (judged.waiting || judged.doc === null) return;
  if (await send(judged.query, judged.doc, grade)) await move();
}

async function skip() {
  if (judged.waiting || judged.doc === null) return;
  judged.skipped.add(keyOf(judged.query.query_id, judged.doc));
  await move();
}

async function goBack() {
  if (!judged.waiting && judged.past.length) await next(...judged.past.pop());
}

async function withdraw() {
  if (judged.waiting || !judged.grades.size) return;
  const [id, doc] = JSON.parse([...judged.grades.keys()].at(-1));
  const query = judged.queries.find((one) => one.query_id === id);
  if (await send(query, doc, null)) await next(query, doc);
}

async function textsOf(query) {
  if (query.texts) return;
  query.texts = (await ask("judgements", { query_id: query.query_id })).texts;
  const shown = new Map();
  for (const doc of query.candidates) {
    const held = shown.get(query.texts[doc]);
    if (held === undefined || (isOpen(query)(held) && !isOpen(query)(doc))) shown.set(query.texts[doc], doc);
  }
  query.candidates = [...shown.values()];
}

async function move() {
  judged.past.push([judged.query, judged.doc]);
  await next();
}

// The next candidate without a grade, of this query or of the next one that has any; what was skipped comes last.
async function firstOpen(query) {
  const from = judged.queries.indexOf(query);
  for (const again of [false, true]) {
    if (again) judged.skipped.clear();
    for (const one of [...judged.queries.slice(from), ...judged.queries.slice(0, from)]) {
      if (openOf(one).length) await textsOf(one);
      const doc = openOf(one).find((open) => !judged.skipped.has(keyOf(one.query_id, open)));
      if (doc !== undefined) return [one, doc];
    }
  }
  return [query, null];
}

async function next(query = judged.query, doc = null) {
  wait(true);
  try {
    const [shown, text] = doc === null ? await firstOpen(query) : [query, doc];
    await textsOf(shown);
    [judged.query, judged.doc] = [shown, text];
    draw();
  } catch (error) {
    complain(error.message);
  }
  wait(false);
}

function draw() {
  const { query, queries, doc } = judged, done = (one) => one.candidates.length - openOf(one).length;
  const finished = queries.filter((one) => !openOf(one).length).length;
  progress.textContent = `${count(finished)} of ${plural(queries.length, "query", "queries")}; `
    + `${done(query)} of ${plural(query.candidates.length, "text")} of this one`;
  fill(chooser, queries.map((one, place) =>
    [place, `${done(one)}/${one.candidates.length} ${one.query.slice(0, 80)}`]), queries.indexOf(query));
  question.textContent = query.query || "(an empty query)";
  shown.replaceChildren(doc === null ? "Every text is judged." : marked(query.texts[doc], query.query));
  for (const one of grades.children) {
    one.disabled = doc === null;
    const given = doc !== null && String(gradeOf(query, doc)) === one.firstElementChild.textContent;
    one.setAttribute("aria-pressed", String(given));
  }
  [skips.disabled, back.disabled, undo.disabled] = [doc === null, !judged.past.length, !judged.grades.size];
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
    const [about, command] = state.next;
    after.replaceChildren(about, element("code", {}, command), " ", button("Copy", { onclick: () => copy(command) }));
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
  const does = { u: withdraw, s: skip, Backspace: goBack }[event.key];
  if (does) event.preventDefault();
  does?.();
});
route();
