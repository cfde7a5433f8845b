// The explorer: two systems, query by query. Texts from outside are only ever set as textContent.
"use strict";

const $ = (id) => document.getElementById(id);
const MINUS = "\u2212", ROW = 54, CELLS = 20, BINS = 10, CLIP = 280, SHARDS_KEPT = 24;
const NARROW = "(max-width: 56rem)", SVG = "http://www.w3.org/2000/svg";
// Of a page that `python -m cort.explore` serves: the most results of a search.
const LIVE = document.documentElement.dataset.live, START = "start “python -m cort.explore”";
const REMEDY = LIVE ? `Is the server still there? If not, ${START} again.`
  : "The page needs its whole folder: copy it again, or build it again.";

// Data. A source has index(), values(system) and query(place), which promise what cort/reporting/explorer/page.py
// describes. This one loads scripts of the folder, for a page that was opened as a file may fetch nothing.

const arrived = new Map();
window.shard = (name, packed) => arrived.set(name, packed);

function folderSource() {
  const held = new Map();
  let starts = [];

  function load(name) {
    const found = held.get(name) ?? read(name).catch((error) => { held.delete(name); throw error; });
    held.delete(name);
    held.set(name, found);
    const results = [...held.keys()].filter((key) => key.startsWith("results"));
    if (results.length > SHARDS_KEPT) held.delete(results[0]);
    return found;
  }

  async function read(name) {
    const file = `data/${name}.js`, script = document.createElement("script");
    const broken = new Error(`${file} cannot be read. ${REMEDY}`);
    await new Promise((done, failed) => {
      Object.assign(script, { onload: done, onerror: () => failed(broken), src: file });
      document.head.append(script);
    }).finally(() => script.remove());
    const packed = arrived.get(name);
    arrived.delete(name);
    if (typeof DecompressionStream === "undefined") throw new Error("This page needs a browser of 2023 or newer.");
    try {
      const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
      return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
    } catch {
      throw broken;
    }
  }

  return {
    async index() {
      const index = await load("index");
      starts = index.shards;
      return index;
    },
    values: (system) => load(`values-${system}`),
    async query(place) {
      const number = starts.findLastIndex((start) => start <= place);
      return (await load(`results-${number}`))[place - starts[number]];
    },
  };
}

// Small tools.

function element(name, attributes = {}, ...children) {
  const made = attributes.svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "svg" || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const button = (text, attributes, ...more) => element("button", { type: "button", ...attributes }, text, ...more);
// A button that opens something and closes it again.
function opener(text, name, toggle) {
  const made = button(text, { "aria-expanded": "false", "aria-label": name });
  made.onclick = () => {
    const open = made.getAttribute("aria-expanded") === "false";
    made.setAttribute("aria-expanded", String(open));
    toggle(open, made);
    drawMoves();
  };
  return made;
}

// If passages are aggregated, each of `docs` is a passage that stands for its document.
const documentOf = (id) => (index.aggregate ? id.replace(/(.)#[^#]*$/, "$1") : id);
// For each of `docs`, the first one of the same document.
function unitsOf(docs) {
  const first = new Map();
  docs.forEach((id, place) => { if (!first.has(documentOf(id))) first.set(documentOf(id), place); });
  return docs.map((id) => first.get(documentOf(id)));
}
const noun = () => (index.aggregate ? "document" : "passage");

const named = (text, kind) => element("bdi", { class: kind }, text);
const sideOf = (difference) => (difference > 0 ? "of-a" : difference < 0 ? "of-b" : "");
const drawn = (name, attributes, ...children) => element(name, { svg: true, ...attributes }, ...children);
const count = (number) => number.toLocaleString("en");
const plural = (number, noun, many = `${noun}s`) => `${count(number)} ${number === 1 ? noun : many}`;
const some = (ids, all = ids.split(", ")) => all.slice(0, 3).join(", ") + (all[3] ? ` and ${all.length - 3} more` : "");
const fixed = (value) => value.toFixed(3);
const signed = (value) => (value === 0 ? "0.000" : (value > 0 ? "+" : MINUS) + fixed(Math.abs(value)));
const label = (measure) => measure.replace("(judged_only=True)", "")
  + (measure.includes("judged_only") ? ", judged only" : "");

// Keyboard focus stays where it is when the focused part is redrawn.
function redraw(box, ...children) {
  const stops = () => [...box.querySelectorAll("button, [tabindex], summary")];
  const place = stops().indexOf(document.activeElement);
  box.replaceChildren(...children.filter(Boolean));
  if (place < 0) return;
  stops()[place]?.focus();
  if (!box.contains(document.activeElement)) box.focus();
}

// A table whose columns of systems have their colours.
function table(head, lines) {
  const column = (text, place) => (text
    ? element("th", { scope: "col", class: { [state.a]: "of-a", [state.b]: "of-b" }[place && text] }, named(text))
    : element("td"));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map(column))), element("tbody", {}, ...lines));
}

function line(head, ...cells) {
  const columns = cells.map((one) => element("td", {}, typeof one === "number" ? String(one) : one));
  return element("tr", {}, element("th", { scope: "row" }, named(head)), ...columns);
}

// A spreadsheet would take a text that begins so for a formula.
const harmless = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value ?? "");

function download(name, rows) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cell = (value) => quoted(String(harmless(value)));
  const text = rows.map((row) => row.map(cell).join(",") + "\n").join("");
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  element("a", { href: address, download: name.replace(/[^\w.+-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  say(`${plural(rows.length - 1, "row")} downloaded`);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not every browser lets a file have the clipboard that way.
    const area = element("textarea", { class: "unseen" }, text), before = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    if (!done) return complain(`The browser refuses to copy. The line is: ${text}`);
  }
  say(`Copied: ${text}`);
}

const say = (text) => { $("status").textContent = text; };
const complain = (text) => Object.assign($("message"), { textContent: text, hidden: !text });

// Words of the query, of scripts without blanks as the browser finds them.

const SEGMENTER = typeof Intl.Segmenter === "function" ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;

function parts(text) {
  if (!SEGMENTER || /^[\p{ASCII}\p{Script=Latin}]*$/u.test(text)) {
    return text.split(/([\p{L}\p{N}\p{M}_]+)/u).map((part, place) => [part, place % 2 === 1]);
  }
  return Array.from(SEGMENTER.segment(text), ({ segment, isWordLike }) => [segment, isWordLike]);
}

// Words that say nothing about a passage.
const COMMON = new Set(("a about am an and any are as at be been being but by can could did do does for from had has have he "
  + "her his how i if in into is it its many may me more most much must my no nor not of off on or our she should so some "
  + "such than that the their them then there these they this those to too until up us was we were what when where which "
  + "while who whom whose why will with would you your").split(" "));

function marked(text, query) {
  const wanted = new Set(parts(query.toLowerCase()).flatMap(([part, isWord]) => (isWord && !COMMON.has(part) ? part : [])));
  const found = document.createDocumentFragment(), known = (part) => wanted.has(part.toLowerCase());
  found.append(...parts(text).map(([part, isWord]) => (isWord && known(part) ? element("mark", {}, part) : part)));
  found.normalize();
  return found;
}

// State: all of it is in the address, so that links and the back button work.

const source = folderSource();
const usualCount = String(Math.min(20, LIVE ?? 20));
let index, state, compared = "", listed = "", current = "", rows = [], means = [], visible = [], asked = 0, follow;

// Of a page where a person judges: its other mode, which knows nothing of the state.
const judges = () => location.hash === "#judge";

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), faults = [];
  const among = (key, names, usual, why = "which is not here; choose one above") => {
    const name = given.get(key);
    if (name === null || names.includes(name)) return name ?? usual;
    faults.push(`The address asks for ${key}=${name.slice(0, 80)}, ${why}.`);
    return usual;
  };
  const usual = index.pair.map((place) => index.systems[place]);
  state = {
    a: among("a", index.systems, usual[0]),
    b: among("b", index.systems, usual[1]),
    measure: among("measure", index.measures, index.measures[0] ?? null),
    sort: among("sort", Object.keys(SORTS), "difference"),
    show: among("show", Object.keys(FILTERS), "all"),
    pick: given.get("pick") ?? "",
    find: given.get("find") ?? "",
    q: among("q", index.ids, null, "a query that is not of this split; choose one of the list"),
    text: among("text", LIVE ? [given.get("text")] : [], null, `a search: ${START} and open the address there`),
    k: given.get("k") ?? usualCount,
  };
  complain(faults.join(" "));
}

const busy = () => $("page").setAttribute("aria-busy", "true");

function go(changes, replaced = false) {
  const usual = { sort: "difference", show: "all", pick: "", find: "", k: usualCount };
  const wanted = Object.entries({ ...state, ...changes });
  const pairs = wanted.filter(([key, value]) => value !== null && value !== usual[key]);
  const address = "#" + new URLSearchParams(pairs);
  busy();
  if (address === location.hash) update();
  else if (replaced) location.replace(address);
  else location.hash = address;
}

// Queries: what is compared, and in which order.

// Queries without judgements come last: nothing of them is measured.
const isMeasured = (row) => row.difference !== null;
const by = (key) => (one, other) =>
  isMeasured(other) - isMeasured(one) || key(other) - key(one) || one.place - other.place;
let SORTS = {
  difference: ["A better first", () => by((row) => row.difference)],
  against: ["B better first", () => by((row) => -row.difference)],
  size: ["Largest difference first", () => by((row) => Math.abs(row.difference))],
  file: ["As in the file", () => by(() => 0)],
};
let FILTERS = {
  all: ["All queries", () => true],
  won: ["A is better", (row) => row.difference > 0],
  tied: ["Both are equal", (row) => row.difference === 0],
  lost: ["B is better", (row) => row.difference < 0],
  "only-a": ["Only A finds a relevant passage", (row) => row.first[0] && !row.first[1]],
  "only-b": ["Only B finds a relevant passage", (row) => row.first[1] && !row.first[0]],
  neither: ["Neither finds a relevant passage", (row) => isMeasured(row) && !row.first[0] && !row.first[1]],
  unjudged: ["The top passage of A or B is not judged", (row) => row.judged.includes(0)],
  empty: ["A or B has no results", (row) => row.judged.includes(null)],
};
// Of a split without judgements: what both systems have in common.
const WITHOUT_JUDGEMENTS = {
  sorts: {
    difference: ["Least in common first", () => by((row) => -row.overlap)],
    against: ["Most in common first", () => by((row) => row.overlap)],
    file: SORTS.file,
  },
  filters: {
    all: FILTERS.all,
    same: ["Same top passage", (row) => row.same],
    other: ["Different top passage", (row) => !row.same],
    apart: ["Nothing in common", (row) => row.overlap === 0],
    empty: FILTERS.empty,
  },
};
const cell = (value) => Math.round(value * CELLS);
const bin = (difference) => Math.sign(difference) * Math.ceil(Math.abs(difference) * BINS - 1e-9);
const PICKS = {
  values: (row) => `values:${cell(row.b)},${cell(row.a)}`,
  difference: (row) => `difference:${bin(row.difference)}`,
};

const mean = (all) => {
  const values = all.filter((value) => typeof value === "number");
  return values.reduce((sum, value) => sum + value, 0) / values.length;
};

function common(ofA, ofB, place) {
  if (!ofA) return {};
  const [a, b] = [ofA[place], ofB[place]], longest = Math.max(a.length, b.length);
  const shared = a.filter((doc) => b.includes(doc)).length, overlap = longest ? shared / longest : 0;
  const alone = [a.length - shared, b.length - shared];
  return { overlap, alone, same: longest > 0 && a[0] === b[0] };
}

async function compare() {
  const key = JSON.stringify([state.a, state.b, state.measure]);
  if (key === compared) return;
  const places = [state.a, state.b].map((name) => index.systems.indexOf(name));
  const [a, b] = await Promise.all(places.map((place) => source.values(place)));
  const column = index.measures.indexOf(state.measure);
  rows = index.ids.map((id, place) => {
    const values = [a, b].map((one) => one.measures[column]?.[place]);
    const difference = values[0] - values[1], known = typeof values[0] === "number";
    return {
      id, place, text: index.queries[place], a: values[0], b: values[1],
      difference: !known ? null : Math.abs(difference) < 1e-9 ? 0 : difference, ...common(a.tops, b.tops, place),
      first: [a.first[place], b.first[place]], judged: [a.judged[place], b.judged[place]],
    };
  });
  means = index.measures.map((name, place) => [name, mean(a.measures[place]), mean(b.measures[place])]);
  compared = key;
  listed = "";
}

function select() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const pick = PICKS[state.pick.split(":")[0]], shown = FILTERS[state.show][1];
  const matches = (row) => {
    const text = `${row.id} ${row.text}`.toLowerCase();
    const picked = !pick || (isMeasured(row) && pick(row) === state.pick);
    return shown(row) && picked && words.every((word) => text.includes(word));
  };
  visible = rows.filter(matches).sort(SORTS[state.sort][1]());
}

async function update() {
  const turn = ++asked;
  try {
    readAddress();
    await compare();
    if (turn !== asked) return;
    reveal();
    const key = JSON.stringify([compared, state.find, state.show, state.sort, state.pick]);
    if (key !== listed) {
      select();
      listed = key;
      showControls();
      showOverview();
      $("list").scrollTop = 0;
    }
    const row = wanted();
    showList(row);
    await showQuery(row, turn);
  } catch (error) {
    if (turn === asked) {
      reveal();
      showControls();
      complain(error.message);
      if (state.text !== null) $("query").replaceChildren();
    }
  } finally {
    if (turn === asked) $("page").setAttribute("aria-busy", "false");
  }
}

// The row of the query that is shown; one that is not of the list has no more than a text.
function wanted() {
  if (state.text === null) return state.q === null ? visible[0] : rows[index.ids.indexOf(state.q)];
  return rows.find((row) => row.text === state.text && (state.q ?? row.id) === row.id) ?? { text: state.text };
}

function reveal() {
  $("loading").hidden = true;
  for (const id of ["choice", "overview", "columns"]) $(id).hidden = false;
  $("ask").hidden = !LIVE;
  if (state.text !== null) [$("text").value, $("k").value] = [state.text, state.k];
}

// The controls.

function fill(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
  select.value = chosen;
}

function showControls() {
  for (const side of ["a", "b"]) fill($(side), index.systems.map((name) => [name, name]), state[side]);
  fill($("measure"), index.measures.map((name) => [name, label(name)]), state.measure);
  for (const [id, kinds] of [["show", FILTERS], ["sort", SORTS]]) {
    fill($(id), Object.entries(kinds).map(([key, [text]]) => [key, text]), state[id]);
  }
  $("measure").parentElement.hidden = !index.measures.length;
  if (document.activeElement !== $("find")) $("find").value = state.find;
  $("unpick").hidden = !state.pick;
  $("shown").textContent = visible.length === rows.length ? plural(rows.length, "query", "queries")
    : `${count(visible.length)} of ${plural(rows.length, "query", "queries")}`;
  $("none").hidden = visible.length > 0;
  $("list").hidden = $("queries-csv").disabled = !visible.length;
}

// The overview: counts, values of both systems, differences.

function showOverview() {
  const measured = index.measures.length > 0;
  const shares = measured
    ? [["won", `${state.a} better`, "of-a"], ["tied", "equal", ""], ["lost", `${state.b} better`, "of-b"]]
    : [["same", "with the same first passage", ""], ["other", "with another one", ""]];
  redraw($("counts"), ...shares.map(([show, text, kind]) => {
    const number = rows.filter(FILTERS[show][1]).length, pressed = state.show === show;
    return button(element("b", {}, count(number)), {
      class: kind, "aria-pressed": String(pressed), onclick: () => go({ show: pressed ? "all" : show, q: null }),
    }, " ", named(text));
  }));
  for (const figure of document.querySelectorAll("#charts figure")) figure.hidden = !measured;
  if (!measured) return showCommon();
  const measure = label(state.measure);
  scatter(measure);
  histogram(measure);
  $("means").replaceChildren(table(["Mean", state.a, state.b, "Difference"], means.map(([name, a, b]) => {
    const made = line(label(name), fixed(a), fixed(b), signed(Number((a - b).toFixed(3))));
    made.classList.toggle("chosen", name === state.measure);
    return made;
  })));
}

function showCommon() {
  const shares = [
    [`In common among the top ${index.overlap} ${noun()}s`, mean(rows.map((row) => row.overlap))],
    [`Queries with the same top ${noun()}`, mean(rows.map((row) => Number(row.same)))],
  ];
  const alone = [state.a, state.b].map((name, side) => line(name, mean(rows.map((row) => row.alone[side])).toFixed(1)));
  $("means").replaceChildren(
    element("p", {}, "This split has no judgements, so nothing is measured."),
    table(["Both systems", "Mean"], shares.map(([name, share]) => line(name, fixed(share)))),
    table([`Of the top ${index.overlap}`, "Alone"], alone));
}

function grouped(kind) {
  const found = new Map();
  for (const row of rows.filter(isMeasured)) {
    const key = PICKS[kind](row), one = found.get(key);
    if (one) one.number++;
    else found.set(key, { key, number: 1, row });
  }
  return [...found.values()];
}

// Marks of a chart are one stop of the tab key; arrow keys go from one to the next.
function asButtons(svg, frame, items) {
  const marks = items.map(({ mark, key, title }) => {
    mark.append(drawn("title", {}, title));
    for (const [name, value] of Object.entries({
      role: "button", tabindex: -1, "aria-label": title, "aria-pressed": String(state.pick === key), "data-key": key,
    })) mark.setAttribute(name, value);
    return mark;
  });
  (marks.find((mark) => mark.dataset.key === state.pick) ?? marks[0])?.setAttribute("tabindex", 0);
  const choose = (mark) => go({ pick: state.pick === mark.dataset.key ? "" : mark.dataset.key, q: null });
  svg.onclick = (event) => marks.includes(event.target) && choose(event.target);
  svg.onkeydown = (event) => {
    const place = marks.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (place < 0 || (!step && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    if (!step) return choose(marks[place]);
    const next = marks[(place + step + marks.length) % marks.length];
    marks[place].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  };
  const focused = svg.contains(document.activeElement);
  svg.replaceChildren(frame, drawn("g", { class: "marks" }, ...marks));
  if (focused) svg.querySelector("[tabindex='0']")?.focus();
}

const axis = (x, y, text, anchor, transform) => drawn("text", { x, y, "text-anchor": anchor, transform }, text);
const clipped = (name) => (name.length > 26 ? `${name.slice(0, 25)}…` : name);

function scatter(measure) {
  const [left, top, size] = [46, 8, 168], groups = grouped("values").sort((one, other) => other.number - one.number);
  const at = ({ row }) => [left + (cell(row.b) / CELLS) * size, top + size - (cell(row.a) / CELLS) * size];
  const largest = groups[0]?.number ?? 1;
  const frame = drawn("g", { "aria-hidden": "true", class: "frame" },
    drawn("path", { d: `M${left} ${top + size}L${left + size} ${top}`, class: "diagonal" }),
    drawn("path", { d: `M${left - 8} ${top - 4}V${top + size + 8}H${left + size + 4}` }),
    axis(left - 12, top + 4, "1", "end"), axis(left - 12, top + size + 4, "0", "end"),
    axis(left, top + size + 21, "0", "middle"), axis(left + size, top + size + 21, "1", "middle"),
    axis(14, top + size / 2, clipped(state.a), "middle", `rotate(-90 14 ${top + size / 2})`),
    axis(left + size / 2, top + size + 34, clipped(state.b), "middle"));
  $("scatter").setAttribute("aria-label", `${measure} of each query: ${state.a} upwards, ${state.b} to the right`);
  asButtons($("scatter"), frame, groups.map((group) => {
    const [x, y] = at(group), kind = sideOf(cell(group.row.a) - cell(group.row.b));
    const [a, b] = [cell(group.row.a), cell(group.row.b)].map((one) => (one / CELLS).toFixed(2));
    return {
      key: group.key,
      title: `${plural(group.number, "query", "queries")}: ${state.a} about ${a}, ${state.b} about ${b}`,
      mark: drawn("circle", { cx: x, cy: y, r: 2.2 + 11 * Math.sqrt(group.number / largest), class: kind }),
    };
  }));
  $("scatter-about").textContent = `${measure} of each query; a larger dot is more queries. Choose one to see them.`;
}

function histogram(measure) {
  const [left, top, width, height] = [14, 20, 392, 150], step = width / (2 * BINS + 1);
  const groups = grouped("difference").sort((one, other) => bin(one.row.difference) - bin(other.row.difference));
  const largest = Math.max(1, ...groups.map((group) => group.number));
  const middle = left + step * BINS, tall = (number) => height * Math.sqrt(number / largest);
  const frame = drawn("g", { "aria-hidden": "true", class: "frame" },
    drawn("path", { d: `M${left} ${top + height}H${left + width}` }),
    ...[-1, -0.5, 0, 0.5, 1].map((value) => {
      const x = middle + step / 2 + value * step * (BINS + 0.5);
      return axis(x, top + height + 15, value === 0 ? "0" : signed(value).slice(0, 4), "middle");
    }),
    axis(left, top + height + 34, `${clipped(state.b)} better`, "start"),
    axis(left + width, top + height + 34, `${clipped(state.a)} better`, "end"),
    ...groups.map(({ row, number }) => {
      const x = middle + step * (bin(row.difference) + 0.5), y = top + height - 4 - tall(number);
      return axis(x, y, number > 9999 ? `${Math.round(number / 1000)}k` : String(number), "middle");
    }));
  $("histogram").setAttribute("aria-label", `Queries by the difference in ${measure}, ${state.a} minus ${state.b}`);
  asButtons($("histogram"), frame, groups.map(({ key, number, row }) => {
    const place = bin(row.difference), high = tall(number), x = middle + step * place + 1;
    const bounds = [(Math.abs(place) - 1) / BINS, Math.abs(place) / BINS].map((one) => one.toFixed(1));
    const better = place ? `${place > 0 ? state.a : state.b} better by ${bounds[0]} to ${bounds[1]}` : "no difference";
    return {
      key,
      title: `${plural(number, "query", "queries")}: ${better}`,
      mark: drawn("rect", { x, y: top + height - high, width: step - 2, height: high, class: sideOf(place) }),
    };
  }));
  $("histogram-about").textContent = `Differences in ${measure}; heights are square roots of the numbers.`;
}

// The list: only the rows in view are there.

function showList(row) {
  const list = $("list"), place = visible.indexOf(row), changed = current !== row?.id;
  current = row?.id;
  $("rows").style.height = `${visible.length * ROW}px`;
  if (changed && place >= 0) {
    if (place * ROW < list.scrollTop) list.scrollTop = place * ROW;
    const below = (place + 1) * ROW - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
  }
  drawRows();
}

// While the list rolls, rows that stay in view are kept: one that is replaced between press and release is not clicked.
function drawRows(rolls = false) {
  const list = $("list"), start = Math.max(0, Math.floor(list.scrollTop / ROW) - 6);
  const shown = visible.slice(start, start + Math.ceil((list.clientHeight || 600) / ROW) + 12);
  // The chosen row is always there: the list names it for screen readers.
  const chosen = visible.findIndex((row) => row.id === current);
  const items = shown.map((row, offset) => [row, start + offset]);
  if (chosen >= 0 && chosen < start) items.unshift([visible[chosen], chosen]);
  if (chosen >= start + shown.length) items.push([visible[chosen], chosen]);
  const rows = $("rows"), wanted = new Set(items.map(([, place]) => `row-${place}`));
  for (const old of [...rows.children]) if (!(rolls && wanted.has(old.id))) old.remove();
  let next = rows.firstElementChild;
  for (const [row, place] of items) {
    if (next?.id === `row-${place}`) next = next.nextElementSibling;
    else rows.insertBefore(option(row, place, place === chosen), next);
  }
  if (chosen >= 0) list.setAttribute("aria-activedescendant", `row-${chosen}`);
  else list.removeAttribute("aria-activedescendant");
}

function option(row, place, chosen) {
  const made = element("div", {
    role: "option", id: `row-${place}`, class: "row", "aria-selected": String(chosen),
    "aria-posinset": place + 1, "aria-setsize": visible.length, onclick: () => choose(place, false),
  },
  element("span", { class: "text", dir: "auto" }, row.text.slice(0, 300)),
  element("span", { class: "difference" }, ...isMeasured(row)
    ? [element("b", { class: sideOf(row.difference) }, signed(row.difference)),
      element("small", {}, `${fixed(row.a)} · ${fixed(row.b)}`)]
    : row.overlap === undefined ? [element("small", {}, "not judged")]
      : [element("b", {}, fixed(row.overlap)), element("small", {}, "in common")]));
  made.style.top = `${place * ROW}px`;
  return made;
}

function choose(place, byKey) {
  if (place < 0 || place >= visible.length) return;
  follow = !byKey && matchMedia(NARROW).matches;
  // A walk through the list with the arrow keys is one step back.
  go({ q: visible[place].id, text: null }, byKey);
}

function onListKey(event) {
  const page = Math.max(1, Math.floor($("list").clientHeight / ROW) - 1), last = visible.length - 1;
  const place = visible.findIndex((row) => row.id === current);
  const target = {
    ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: last,
    PageDown: Math.min(last, place + page), PageUp: Math.max(0, place - page),
  }[event.key];
  if (target === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  choose(target, true);
}

// The query: what is relevant, and both rankings.

async function showQuery(row, turn) {
  const article = $("query");
  if (!row) {
    article.replaceChildren();
    document.title = `Explorer: ${index.dataset}, ${index.split}`;
    return;
  }
  const says = state.text === null ? "Loading the query" : "Searching";
  const slow = setTimeout(() => { say(says); article.classList.add("slow"); }, 150);
  try {
    const query = await (state.text === null ? source.query(row.place) : answer(row));
    if (turn !== asked) return;
    drawQuery(row, query);
    follow &&= article.scrollIntoView(); // Once: and before, there may have been nothing to move to.
  } finally {
    clearTimeout(slow);
    article.classList.remove("slow");
  }
}

function drawQuery(row, query) {
  const places = [state.a, state.b].map((name) => index.systems.indexOf(name));
  const units = unitsOf(query.docs), sides = places.map((place) => query.rankings[place]);
  const [ofA, ofB] = sides.map((one) => new Set(one.map((doc) => units[doc])));
  const common = [...ofA].filter((unit) => ofB.has(unit)).length, place = visible.indexOf(row);
  const live = query.times, known = row.id !== undefined, text = live ? null : row.text;
  const now = button(live ? "Stored runs" : "Search now", { onclick: () => go({ text, q: row.id }) });
  document.title = `${row.text.slice(0, 60)}: ${state.a} and ${state.b}, ${index.dataset}`;
  const step = (text, by) => {
    const to = place < 0 ? -1 : place + by;
    return button(text, { disabled: to < 0 || to >= visible.length, onclick: () => choose(to, false) });
  };
  const lit = (event) => light(body, event.target.closest(".result")?.dataset.doc);
  const body = element("div",
    { class: "rankings", onpointerover: lit, onfocusin: lit, onpointerleave: () => light(body) },
    ranking(0, row, query, sides, units),
    drawn("svg", { class: "moves", "aria-hidden": "true" }),
    ranking(1, row, query, sides, units));
  const number = (value) => element("b", {}, count(value));
  redraw($("query"),
    element("p", { class: "bar" }, step("← Previous", -1), step("Next →", 1),
      LIVE && known && row.text.trim() ? now : null,
      button("CSV of both rankings", { onclick: () => downloadRankings(row, query, places) })),
    element("h2", { id: "heading", dir: "auto" }, row.text || "(an empty query)"),
    known && element("p", { class: "facts" },
      element("span", {}, "Query ", element("code", {}, named(row.id)), live ? ", by the stored runs:" : null),
      ...(isMeasured(row) ? [element("span", {}, named(state.a, "of-a"), ` ${fixed(row.a)}`),
        element("span", {}, named(state.b, "of-b"), ` ${fixed(row.b)}`),
        element("b", { class: sideOf(row.difference) }, signed(row.difference))] : [])),
    live ? null : relevantPassages(row, query, places),
    element("p", { class: "quiet summary" },
      `Of the top ${query.depth ?? index.depth} results, `, number(common), " are in both, ",
      number(ofA.size - common), " only in ", named(state.a, "of-a"), ", ",
      number(ofB.size - common), " only in ", named(state.b, "of-b"), "."),
    body);
  drawMoves();
}

const rankText = (rank) => (rank > 0 && rank < Infinity ? `rank ${count(rank)}` : "not retrieved");
const firstOf = (ranks) => Math.min(...ranks.filter(Boolean), Infinity);

function relevantPassages(row, query, places) {
  if (!query.relevant) return element("p", { class: "quiet" }, isMeasured(row)
    ? `No ${noun()} is judged relevant to this query.` : "This query has no judgements, so it is not measured.");
  const ranks = places.map((place) => query.ranks[place]);
  const best = (doc) => firstOf(ranks.map((one) => one[doc]));
  const docs = [...Array(query.relevant).keys()].sort((one, other) => best(one) - best(other) || one - other);
  const lines = docs.map((doc) => relevantLine(doc, row, query, ranks));
  const title = noun().replace(/^./, (letter) => letter.toUpperCase());
  const found = table([title, "Grade", state.a, state.b, ""], lines);
  found.prepend(element("caption", {}, `${plural(query.relevant, `relevant ${noun()}`)}, ranks in the whole runs`));
  const firsts = index.systems.map((name, place) => line(name, rankText(firstOf(query.ranks[place]))));
  const systems = table(["System", `First relevant ${noun()}`], firsts);
  return element("div", { class: "relevant-passages" },
    element("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `Relevant ${noun()}s` }, found),
    element("details", { ontoggle: drawMoves },
      element("summary", {}, `All ${plural(index.systems.length, "system")}`), systems));
}

function relevantLine(doc, row, query, ranks) {
  const id = documentOf(query.docs[doc]), more = opener("Text", `Text of ${id}`, (open) => {
    const passage = element("td", { colspan: 5, class: "passage", dir: "auto" });
    if (open) passage.append(marked(query.texts[doc] ?? "", row.text));
    if (open) made.after(element("tr", {}, passage));
    else made.nextSibling.remove();
  });
  const made = line(id, query.grades[doc], ...ranks.map((one) => rankText(one[doc])), more);
  return made;
}

function ranking(side, row, query, sides, units) {
  const [name, other] = side ? [state.b, state.a] : [state.a, state.b];
  const [mine, known] = [name, other].map((one) => index.systems.indexOf(one));
  const where = new Map(sides[1 - side].map((doc, place) => [units[doc], place + 1]));
  const items = sides[side].map((doc, place) => {
    const unit = units[doc], both = where.has(unit), about = query.about?.[mine][place];
    const there = where.get(unit) ?? (unit < query.relevant ? query.ranks[known][unit] : 0);
    const score = query.scores[mine][place];
    return result({ doc, unit, name, other, row, query, rank: place + 1, score, about, both, there });
  });
  const letter = side ? "B" : "A";
  const nothing = query.times ? " finds nothing for this query."
    : ` has no results for this query${isMeasured(row) ? ": it counts 0" : ""}.`;
  const attributes = { class: `ranking ${side ? "of-b" : "of-a"}`, "aria-label": `Ranking of ${letter}, ${name}` };
  return element("section", attributes,
    element("h3", {}, `${letter} `, named(name)),
    query.times && times(query.times, mine),
    items.length ? element("ol", {}, ...items) : element("p", { class: "message" }, named(name), nothing));
}

function moved({ unit, rank, there, other, query }) {
  const by = there - rank;
  if (there && by === 0) return ["same rank in ", named(other)];
  if (there) return [`${by > 0 ? "▲" : "▼"} ${count(Math.abs(by))}: rank ${count(there)} in `, named(other)];
  const depth = query.depth ?? index.depth;
  return [unit < query.relevant ? "not retrieved by " : `not in the first ${depth} of `, named(other)];
}

function result(one) {
  const { doc, unit, rank, row, query, name, score, about, both } = one, grade = query.grades[doc];
  const passageId = query.docs[doc], id = documentOf(passageId);
  const kind = grade >= index.relevance_level ? "relevant" : grade === null ? "unjudged" : "irrelevant";
  const judged = kind === "unjudged" ? "not judged" : `${kind === "relevant" ? "" : "not "}relevant, grade ${grade}`;
  const text = query.texts[doc], long = text?.length > CLIP;
  const passage = element("p", { class: "passage", dir: "auto" });
  const show = (whole) => {
    const shown = whole || !long ? text : `${text.slice(0, CLIP).replace(/\s+\S*$/, "")} …`;
    passage.replaceChildren(marked(shown, row.text));
  };
  if (text === undefined) passage.append(element("i", {}, "The page has the texts of higher ranks alone.")); else show(false);
  const more = opener("Whole text", `Whole text of ${id}`, (open, made) => {
    made.textContent = open ? "Less text" : "Whole text";
    show(open);
  });
  const trec = `${row.id ?? "query"} Q0 ${id} ${rank} ${score} ${name}`;
  const why = element("div", { class: "why", role: "region", tabindex: 0, "aria-label": `Why ${id}`, hidden: true });
  return element("li", { class: `result ${kind}${both ? "" : " alone"}`, "data-doc": unit },
    element("div", { class: "line" },
      element("b", { class: "rank" }, count(rank)),
      grade === undefined || !isMeasured(row) ? null : element("span", { class: "badge" }, judged),
      element("span", { class: "move" }, ...moved(one)),
      element("span", { class: "score", title: "Score" }, String(score))),
    element("div", { class: "doc" }, named(id), about?.trim() === about && about ? ` · passage ${some(about)}` : null,
      query.stored && storedRank(query.stored, id, name)),
    passage,
    element("div", { class: "actions" }, long ? more : null,
      query.times && opener("Why", `Why ${id} has this rank`, (open) => explain(why, open, row.text, name, passageId)),
      button("Copy TREC line", { "aria-label": `Copy the TREC line of ${id}`, onclick: () => copy(trec) })),
    query.times && why);
}

function light(body, doc) {
  for (const one of body.querySelectorAll("[data-doc]")) one.classList.toggle("lit", one.dataset.doc === doc);
}

// Moves: lines between the two places of a passage.
function drawMoves() {
  const svg = document.querySelector(".moves");
  if (!svg || svg.clientWidth === 0) return;
  const { top, width } = svg.getBoundingClientRect(), [left, right] = document.querySelectorAll(".ranking");
  const height = (item) => item.getBoundingClientRect().top - top + 18;
  const there = new Map(Array.from(right.querySelectorAll(".result"), (item) => [item.dataset.doc, height(item)]));
  const both = Array.from(left.querySelectorAll(".result")).filter((item) => there.has(item.dataset.doc));
  svg.replaceChildren(...both.map((item) => {
    const doc = item.dataset.doc, y = height(item), to = there.get(doc), middle = width / 2;
    const kind = item.classList.contains("relevant") ? "relevant" : "";
    return drawn("path", { d: `M0 ${y}C${middle} ${y} ${middle} ${to} ${width} ${to}`, class: kind, "data-doc": doc });
  }));
}

// Live: what the server answers, as a query that a source gives, with `times` by system and the `stored` one.

let latest = { stop: new AbortController() };

async function ask(path, given, signal) {
  const address = `api/${path}?${new URLSearchParams(given)}`;
  const found = await fetch(address, { signal }).catch(() => { throw new Error(`No answer. ${REMEDY}`); });
  const answer = await found.json();
  if (!found.ok) throw new Error(answer.error);
  return answer;
}

async function answer(row) {
  const given = { q: state.text, systems: [...new Set([state.a, state.b])], k: state.k }, key = JSON.stringify(given);
  if (key !== latest.key) {
    latest.stop.abort();
    const stop = new AbortController(), made = { key, stop, found: ask("search", given, stop.signal) };
    made.found.catch(() => { made.key = null; });
    latest = made;
  }
  const stored = row.id === undefined ? undefined : await source.query(row.place), found = await latest.found;
  const passageOf = (one) => one.passage ?? one.doc_id;
  const docs = [...new Set(found.systems.flatMap(({ results }) => results.map(passageOf)))];
  const places = new Map(docs.map((doc, place) => [doc, place]));
  const grades = docs.map((doc) => stored && (stored.grades[storedUnit(stored, documentOf(doc))] ?? null));
  const query = { docs, grades, stored, relevant: 0, depth: found.k, texts: [], rankings: [], scores: [], times: [] };
  query.about = [];
  for (const { system, results, milliseconds } of found.systems) {
    const place = index.systems.indexOf(system);
    query.rankings[place] = results.map((one) => places.get(passageOf(one)));
    query.about[place] = results.map((one) => one.about);
    query.scores[place] = results.map((one) => one.score);
    query.times[place] = milliseconds;
    for (const one of results) query.texts[places.get(passageOf(one))] = one.text;
  }
  return query;
}

const storedUnit = (stored, id) => stored.docs.findIndex((doc) => documentOf(doc) === id);

function storedRank(stored, id, name) {
  const system = index.systems.indexOf(name), unit = storedUnit(stored, id);
  const place = stored.rankings[system].findIndex((doc) => documentOf(stored.docs[doc]) === id);
  const rank = place + 1 || stored.ranks[system][unit];
  return ` · ${rank ? `rank ${count(rank)} in the stored run` : `not in the stored run's first ${index.depth}`}`;
}

function times(all, system) {
  const max = Math.max(...Object.values(all).map((one) => one.total));
  const bar = ([part, value]) => element("li", {},
    part, element("meter", { max, value, "aria-label": `Time of ${part}` }), `${value.toFixed(1)} ms`);
  return element("ul", { class: "times" }, ...Object.entries(all[system]).map(bar));
}

async function explain(box, open, q, system, id) {
  box.hidden = !open;
  if (!open) return;
  box.textContent = "Loading …";
  try {
    box.replaceChildren(reasons(await ask("why", { q, system, doc_id: id })));
  } catch (error) {
    box.textContent = error.message;
  }
  drawMoves();
}

function reasons({ system, rank, score, about, columns, rows, parts }) {
  const cell = (value) => (typeof value !== "number" ? value ?? "none" : String(Number(value.toPrecision(4))));
  const place = rank === null ? ": not among its results. " : `: rank ${count(rank)}, score ${cell(score)}. `;
  return element("div", {}, element("p", {}, element("b", {}, named(system)), place, about),
    rows.length ? table(columns, rows.map(([head, ...cells]) => line(head, ...cells.map(cell)))) : null,
    ...parts.map(reasons));
}

// Downloads.

function downloadQueries() {
  const measured = index.measures.length > 0, first = `overlap@${index.overlap}`;
  const values = (row) => (measured ? [row.a, row.b, row.difference, state.measure]
    : [row.overlap, Number(row.same), ...row.alone]);
  const head = ["query_id", "query", ...(measured ? [state.a, state.b, "difference", "measure"]
    : [first, "same_first_passage", "alone_a", "alone_b"])];
  const lines = visible.map((row) => [row.id, row.text, ...values(row)]);
  download(`${index.dataset}.${index.split}.queries.csv`, [head, ...lines]);
}

function downloadRankings(row, query, places) {
  const head = ["query_id", "query", "system", "rank", "doc_id", "score", "grade", "text"];
  const lines = places.flatMap((system) => query.rankings[system].map((doc, place) => [
    row.id, row.text, index.systems[system], place + 1, documentOf(query.docs[doc]), query.scores[system][place],
    query.grades[doc], query.texts[doc],
  ]));
  download(`${index.dataset}.${index.split}.${row.id ?? "search"}.csv`, [head, ...lines]);
}

// The start.

function listen() {
  for (const id of ["a", "b", "measure"]) $(id).onchange = () => go({ [id]: $(id).value, pick: "" });
  for (const id of ["show", "sort"]) $(id).onchange = () => go({ [id]: $(id).value, q: null });
  $("swap").onclick = () => go({ a: state.b, b: state.a, pick: "" });
  $("skip").onclick = () => $("query").focus();
  $("unpick").onclick = () => { go({ pick: "", q: null }); $("list").focus(); };
  $("queries-csv").onclick = downloadQueries;
  let typed;
  $("find").oninput = () => {
    busy();
    clearTimeout(typed);
    typed = setTimeout(() => go({ find: $("find").value, q: null }, true), 120);
  };
  $("ask").onsubmit = (event) => {
    event.preventDefault();
    follow = matchMedia(NARROW).matches;
    go({ text: $("text").value, k: $("k").value, q: null });
  };
  $("list").onscroll = () => drawRows(true);
  $("list").onkeydown = onListKey;
  $("charts").open = !matchMedia(NARROW).matches;
  addEventListener("hashchange", () => judges() || update());
  new ResizeObserver(() => { drawRows(); drawMoves(); }).observe($("columns"));
}

async function start() {
  index = await source.index();
  $("about").textContent = `${index.dataset}, ${index.split}`;
  if (!index.measures.length) ({ sorts: SORTS, filters: FILTERS } = WITHOUT_JUDGEMENTS);
  else if (index.judged !== undefined) {
    FILTERS = { ...FILTERS, unmeasured: ["Without judgements", (row) => !isMeasured(row)] };
  }
  if (index.aggregate) for (const one of Object.values(FILTERS)) one[0] = one[0].replace("passage", "document");
  $("links").hidden = LIVE;
  [$("k").max, $("k").value] = [LIVE, usualCount];
  $("cut").textContent = `The top ${count(index.depth)} results of each system, with the texts of relevant passages and of `
    + `the ${count(index.texts)} that are ranked highest.`;
  listen();
  if (!judges()) await update();
}

start().catch((error) => {
  complain(error.message);
  $("loading").hidden = true;
});
