"use strict";
// Rows that some run gets wrong, with the answers of all runs that are shown.

(() => {
  const $ = (id) => document.getElementById(id);
  const SHOWN = 6; // runs at first
  const STATES = { "": "hidden", any: "shown", right: "right", wrong: "wrong" };
  let state = {};
  let numbers = []; // of the rows that pass the filters
  let turn = 0; // counts renderings; an older one that comes late is dropped

  const shown = () => Object.keys(state.runs);

  function readState() {
    const given = new URLSearchParams(location.hash.slice(1));
    const benchmarks = adafuse.manifest.benchmarks;
    const benchmark = adafuse.benchmark(given.get("benchmark")) ?? benchmarks[0];
    const runs = {};
    for (const run of benchmark.runs) {
      const found = ["any", "right", "wrong"].find((kind) => given.getAll(kind).includes(run));
      if (found) runs[run] = benchmark.binary ? found : "any";
    }
    if (!Object.keys(runs).length) for (const run of benchmark.runs.slice(0, SHOWN)) runs[run] = "any";
    const protocols = adafuse.manifest.protocols;
    state = {
      benchmark: benchmark.name, runs, search: given.get("search") ?? "", noted: given.get("noted") ?? "",
      protocol: protocols.includes(given.get("protocol")) ? given.get("protocol") : protocols[0],
      page: Math.max(1, parseInt(given.get("page"), 10) || 1) - 1,
    };
  }

  function address() {
    const texts = ["benchmark", "protocol", "search", "noted"].filter((name) => state[name]);
    const runs = Object.entries(state.runs).map(([run, kind]) => [kind, run]);
    const all = [...texts.map((name) => [name, state[name]]), ...runs, ...(state.page ? [["page", state.page + 1]] : [])];
    return `#${new URLSearchParams(all)}`;
  }

  async function render() {
    const mine = ++turn;
    const stale = () => mine !== turn;
    $("count").textContent = "searching …";
    try {
      fillControls();
      history.replaceState(null, "", address());
      const found = await matching(stale);
      if (stale()) return;
      numbers = found;
      state.page = Math.min(state.page, adafuse.pages(numbers.length) - 1);
      await showPage(stale);
    } catch (error) {
      if (!stale()) tell(error.message);
    }
  }

  function tell(text) {
    $("notice").textContent = text;
    $("notice").hidden = !text;
  }

  function fillControls() {
    const benchmark = adafuse.benchmark(state.benchmark);
    const named = (names) => names.map((name) => [name, name]);
    adafuse.options($("benchmark"), named(adafuse.manifest.benchmarks.map((each) => each.name)), state.benchmark);
    adafuse.options($("protocol"), named(adafuse.manifest.protocols), state.protocol);
    adafuse.options($("noted"), [["", "all rows"], ["1", "rows with a note"]], state.noted);
    $("protocol").parentElement.hidden = adafuse.manifest.protocols.length < 2;
    if ($("search").value !== state.search) $("search").value = state.search;
    const kinds = Object.entries(STATES).filter(([kind]) => benchmark.binary || kind === "" || kind === "any");
    const legend = $("runs").firstElementChild;
    legend.textContent = benchmark.binary ? "Runs: those that are shown, and which must be right or wrong" : "Runs that are shown";
    $("runs").replaceChildren(legend, ...benchmark.runs.map((run) => runControl(run, kinds)));
  }

  function runControl(run, kinds) {
    const select = adafuse.make("select", { "data-run": run });
    adafuse.options(select, kinds, state.runs[run] ?? "");
    select.addEventListener("change", () => {
      const runs = {};
      for (const name of adafuse.benchmark(state.benchmark).runs) {
        const kind = name === run ? select.value : state.runs[name];
        if (kind) runs[name] = kind;
      }
      change({ runs }).then(() => document.querySelector(`[data-run="${CSS.escape(run)}"]`)?.focus());
    });
    return adafuse.make("label", {}, `${run} `, select);
  }

  async function matching(stale) {
    const benchmark = adafuse.benchmark(state.benchmark);
    const [ids, ...values] = await Promise.all([adafuse.ids(benchmark.name), ...shown().map(valuesOf)]);
    const kinds = Object.values(state.runs);
    const right = (value) => adafuse.isRight(value, benchmark);
    let found = [...ids.keys()].filter((number) => {
      const row = values.map((each) => each[number]);
      return row.some((value) => value != null && !right(value)) && kinds.every((kind, at) =>
        kind === "any" || (row[at] != null && right(row[at]) === (kind === "right")));
    });
    const notes = adafuse.notes(benchmark.name);
    if (state.noted) found = found.filter((number) => notes.has(ids[number]));
    if (!benchmark.binary) {
      const spread = (number) => {
        const row = values.map((each) => each[number]).filter((value) => value != null);
        return Math.max(...row) - Math.min(...row);
      };
      found.sort((one, other) => spread(other) - spread(one));
    }
    return state.search ? searched(found, ids, notes, stale) : found;
  }

  const valuesOf = async (run) => (await adafuse.index(state.benchmark, run)).values[state.protocol] ?? [];

  async function searched(found, ids, notes, stale) {
    const words = state.search.toLowerCase();
    const kept = [];
    for (const number of found) {
      if (stale()) return kept;
      const [question, ...given] = await row(number);
      const all = [ids[number], question.text, ...question.answers, notes.get(ids[number]) ?? "", ...given.map((each) => each.text)];
      if (all.some((each) => each.toLowerCase().includes(words))) kept.push(number);
    }
    return kept;
  }

  // Returns a question, and what each run that is shown answered.
  const row = (number) => Promise.all([
    adafuse.question(state.benchmark, number),
    ...shown().map((run) => adafuse.given(state.benchmark, run, state.protocol, number)),
  ]);

  async function showPage(stale) {
    const first = adafuse.firstOf(state.page);
    const ids = await adafuse.ids(state.benchmark);
    const cards = await Promise.all(numbers.slice(first, adafuse.firstOf(state.page + 1))
      .map(async (number) => card(number, ids[number], await row(number))));
    if (stale()) return;
    const none = adafuse.make("p", { class: "quiet" }, "No row passes these filters.");
    $("rows").replaceChildren(...(cards.length ? cards : [none]));
    $("page").textContent = `page ${state.page + 1} of ${adafuse.pages(numbers.length)}`;
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page + 1 >= adafuse.pages(numbers.length);
    $("csv").disabled = !numbers.length;
    const { n, binary } = adafuse.benchmark(state.benchmark);
    const order = binary ? "" : "; those on which runs differ most come first";
    $("count").textContent = `${numbers.length} of ${n} rows${order}`;
  }

  function card(number, id, [question, ...given]) {
    const gold = question.answers.length ? question.answers.join(" | ") : "not known";
    return adafuse.make("article", { class: "run", "data-row": number },
      adafuse.make("h3", {}, `Row ${number + 1}`), adafuse.make("span", { class: "quiet id" }, id),
      adafuse.make("div", { class: "question" },
        adafuse.make("div", { class: "prompt" }, "Question", adafuse.make("pre", {}, question.text.trim())),
        adafuse.make("div", {}, "Gold answer", adafuse.make("pre", {}, gold))),
      adafuse.make("div", { class: "given" }, ...given.map((each, at) => answer(shown()[at], id, each))), note(id));
  }

  function answer(run, id, { text, scored, value, stop }) {
    const benchmark = adafuse.benchmark(state.benchmark);
    const here = { benchmark: state.benchmark, run, protocol: state.protocol, id, round: 0 };
    const link = adafuse.make("a", { href: `explorer.html${adafuse.exampleAddress(here)}` }, run);
    const good = value != null && adafuse.isRight(value, benchmark);
    const extracted = scored != null && scored.trim() !== text.trim()
      ? [adafuse.make("p", { class: "quiet" }, `scored: ${adafuse.visible(scored)}`)] : [];
    const mark = `${adafuse.mark(value, benchmark)}${stop === "error" ? ", error" : stop === "length" ? ", cut" : ""}`;
    return adafuse.make("section", {}, adafuse.make("h4", {}, link),
      adafuse.make("span", { class: good ? "verdict good" : "verdict bad" }, mark),
      adafuse.make("pre", {}, text.trim() || "(no answer)"), ...extracted);
  }

  function note(id) {
    const area = adafuse.make("textarea", { rows: 1, placeholder: "why it fails, what to do" });
    area.value = adafuse.noteOf(state.benchmark, id);
    area.addEventListener("input", () => {
      const kept = adafuse.setNote(state.benchmark, id, area.value);
      tell(kept ? "" : "This browser keeps no notes after the page is closed; save them as CSV.");
    });
    return adafuse.make("label", {}, "Note", area);
  }

  // All rows that pass the filters, in the columns of `adafuse show --wrong --csv`, and the notes.
  async function csv() {
    const ids = await adafuse.ids(state.benchmark);
    const benchmark = adafuse.benchmark(state.benchmark);
    const parts = ["", "_scored", "_value", "_right"];
    const heads = shown().flatMap((run) => parts.map((part) => run + part));
    const lines = [["benchmark", "protocol", "row", "id", "question", "gold", ...heads, "note"]];
    for (const number of numbers) {
      const [question, ...given] = await row(number);
      const cells = given.flatMap(({ text, scored, value }) => (value == null ? ["", "", "", ""]
        : [text, scored ?? "", value, benchmark.binary ? adafuse.isRight(value, benchmark) : ""]));
      lines.push([state.benchmark, state.protocol, number + 1, ids[number], question.text,
        question.answers.join(" | "), ...cells, adafuse.noteOf(state.benchmark, ids[number])]);
    }
    const quoted = (cell) => (/[",\r\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
    const text = lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
    const link = adafuse.make("a", { download: `failures-${state.benchmark}.csv` });
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function change(values) {
    state = { ...state, page: 0, ...values };
    return render();
  }

  function turnPage(by) {
    change({ page: state.page + by }).then(() => $("filters").scrollIntoView());
  }

  function start() {
    if (!adafuse.manifest.protocols.length) return tell("Nothing here is scored.");
    $("benchmark").addEventListener("change", (event) => {
      location.hash = `#${new URLSearchParams({ benchmark: event.target.value, protocol: state.protocol })}`;
    });
    for (const name of ["protocol", "noted"]) {
      $(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
    }
    let typed;
    $("search").addEventListener("input", (event) => {
      clearTimeout(typed);
      typed = setTimeout(() => change({ search: event.target.value.trim() }), 300);
    });
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("previous").addEventListener("click", () => turnPage(-1));
    $("next").addEventListener("click", () => turnPage(1));
    $("csv").addEventListener("click", csv);
    addEventListener("hashchange", show);
    $("note").textContent = adafuse.manifest.note ?? "";
    $("note").hidden = !adafuse.manifest.note;
    show();
  }

  function show() {
    readState();
    render();
  }

  start();
})();
