"use strict";
// The page: controls, list and example, kept in step with the address.

(() => {
  const $ = (id) => document.getElementById(id);
  const NAMES = { benchmark: "benchmark", run: "run", beside: "run" };
  const CONTROLS = ["benchmark", "run", "beside", "protocol", "show", "stop", "search"];
  let state = {};
  let numbers = []; // of the examples that pass the filters
  let listed = ""; // what `numbers` was found for
  let turn = 0; // counts renderings; an older one that comes late is dropped

  async function render() {
    const mine = ++turn;
    const stale = () => mine !== turn;
    try {
      state = adafuse.corrected(state);
      fillControls();
      await findExamples(stale);
      if (stale()) return;
      const ids = await adafuse.ids(state.benchmark);
      const chosen = choose(ids);
      if (stale()) return;
      history.replaceState(null, "", adafuse.address(state));
      await Promise.all([showList(chosen, stale), showExample(chosen, stale)]);
    } catch (error) {
      if (stale()) return;
      tell("something is missing");
      const said = adafuse.make("p", { class: "error", role: "alert" }, error.message);
      $("example").replaceChildren(said);
    }
  }

  function fillControls() {
    const benchmark = adafuse.benchmark(state.benchmark);
    const named = (names) => names.map((name) => [name, name]);
    adafuse.options($("benchmark"), named(adafuse.manifest.benchmarks.map((each) => each.name)), state.benchmark);
    adafuse.options($("run"), named(benchmark.runs), state.run);
    const others = benchmark.runs.filter((name) => name !== state.run);
    adafuse.options($("beside"), [["", "no other run"], ...named(others)], state.beside);
    adafuse.options($("protocol"), named(adafuse.manifest.protocols), state.protocol);
    adafuse.options($("show"), adafuse.shows(benchmark, Boolean(state.beside)), state.show);
    adafuse.options($("stop"), adafuse.stops(), state.stop);
    $("protocol").parentElement.hidden = adafuse.manifest.protocols.length < 2;
    if ($("search").value !== state.search) $("search").value = state.search;
  }

  async function findExamples(stale) {
    const wanted = JSON.stringify(CONTROLS.map((name) => state[name]));
    if (wanted === listed) return;
    tell("searching …");
    const progress = (done, all) => stale() || tell(`searched ${done} of ${all} …`);
    const found = await adafuse.matching(state, progress, stale);
    if (stale()) return;
    [numbers, listed] = [found, wanted];
  }

  // Returns the number of the example to show: the one of the address, or the first of the list.
  // One that was open stays open if it passes changed filters.
  function choose(ids) {
    const kept = numbers.includes(ids.indexOf(state.kept)) ? state.kept : "";
    const first = numbers[adafuse.firstOf(state.page)] ?? numbers[0];
    if (!state.id) state.id = kept || (first === undefined ? "" : ids[first]);
    if (state.kept && state.id !== state.kept) state.round = 0;
    state.kept = "";
    const number = ids.indexOf(state.id);
    const place = numbers.indexOf(number);
    if (place >= 0) state.page = adafuse.pageOf(place);
    state.page = Math.min(state.page, adafuse.pages(numbers.length) - 1);
    return number;
  }

  async function showList(chosen, stale) {
    await adafuse.fillList($("list"), state, numbers, chosen, (number) => open(number), stale);
    if (stale()) return;
    const all = adafuse.benchmark(state.benchmark).n;
    tell(`${numbers.length} of ${all} examples`);
    $("page").textContent = `page ${state.page + 1} of ${adafuse.pages(numbers.length)}`;
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page + 1 >= adafuse.pages(numbers.length);
  }

  async function showExample(number, stale) {
    if (number < 0) {
      const said = state.id ? `There is no example ${state.id} in ${state.benchmark}.` : "";
      $("example").replaceChildren(adafuse.make("p", { class: "quiet" }, said));
      return;
    }
    const parts = await adafuse.exampleView(state, number, (round) => {
      state.round = round;
      history.replaceState(null, "", adafuse.address(state));
      link();
    });
    if (stale()) return;
    $("example").replaceChildren(...parts);
    link();
    document.title = `${state.id} · ${state.run} · ${state.benchmark} · AdaFuse traces`;
  }

  function link() {
    $("link").href = adafuse.exampleAddress(state);
  }

  async function open(number) {
    const id = (await adafuse.ids(state.benchmark))[number];
    state = { ...state, id, round: 0 };
    history.pushState(null, "", adafuse.address(state));
    await render();
    if (matchMedia("(max-width: 50rem)").matches) $("example").scrollIntoView();
  }

  async function move(by) {
    const number = (await adafuse.ids(state.benchmark)).indexOf(state.id);
    const place = numbers.indexOf(number);
    const next = numbers[place < 0 ? 0 : place + by];
    if (next !== undefined) await open(next);
  }

  function turnPage(by) {
    const first = numbers[adafuse.firstOf(state.page + by)];
    if (first !== undefined) open(first);
  }

  function change(name, value) {
    const stays = ["run", "beside", "protocol"].includes(name);
    if (stays || name === "benchmark") history.pushState(null, "", adafuse.address(state));
    const kept = name === "benchmark" ? "" : state.id;
    state = { ...state, [name]: value, page: 0, kept, id: stays ? state.id : "" };
    if (name === "run" || name === "benchmark") state.round = 0;
    render();
  }

  // Says what an address asks for that is not here.
  function notice() {
    const asked = adafuse.readState();
    const found = adafuse.corrected(asked);
    const gone = ["benchmark", "run", "beside"].filter((name) => asked[name] && asked[name] !== found[name]);
    $("notice").textContent = gone.map((name) => `There is no ${NAMES[name]} ${asked[name]} here.`).join(" ");
    $("notice").hidden = !gone.length;
  }

  function tell(text) {
    $("count").textContent = text;
  }

  function stepRounds(by) {
    for (const run of document.querySelectorAll(".run")) run.stepRound(by);
  }

  const KEYS = {
    j: () => move(1), k: () => move(-1), n: () => turnPage(1), p: () => turnPage(-1),
    "]": () => stepRounds(1), "[": () => stepRounds(-1),
    "/": () => $("search").focus(), "?": () => $("keys").showModal(),
  };

  function start() {
    for (const name of CONTROLS.filter((each) => each !== "search")) {
      $(name).addEventListener("change", (event) => change(name, event.target.value));
    }
    let typed;
    $("search").addEventListener("input", (event) => {
      clearTimeout(typed);
      typed = setTimeout(() => change("search", event.target.value.trim()), 300);
    });
    $("search").addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.target.value = "";
      event.target.dispatchEvent(new Event("input"));
      event.target.blur();
    });
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("previous").addEventListener("click", () => turnPage(-1));
    $("next").addEventListener("click", () => turnPage(1));
    $("help").addEventListener("click", () => $("keys").showModal());
    document.addEventListener("keydown", (event) => {
      const typing = event.target.matches("input, select, textarea, dialog *");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
      event.preventDefault();
      KEYS[event.key]();
    });
    const show = () => {
      state = adafuse.readState();
      notice();
      render();
    };
    addEventListener("popstate", show);
    $("note").textContent = adafuse.manifest.note ?? "";
    $("note").hidden = !adafuse.manifest.note;
    show();
  }

  start();
})();
