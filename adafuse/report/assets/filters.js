"use strict";
// Which examples are listed: by their values in one run or two, by stop reason, by words in them.

(() => {
  adafuse.shows = ({ binary }, two) => {
    const all = [["", "all"]];
    const differ = ["differ", "different texts"];
    if (!binary) {
      return two ? [...all, ["better", "better than the other run"], ["worse", "worse than the other run"], differ] : all;
    }
    const one = [...all, ["right", "right"], ["wrong", "wrong"]];
    return two ? [...one, ["better", "right, other run wrong"], ["worse", "wrong, other run right"],
      ["both_wrong", "both wrong"], differ] : one;
  };

  adafuse.stops = () => [["", "any"], ...Object.entries(adafuse.STOPS)];

  // Returns the numbers of the examples that a state of the page shows. `progress` is called with
  // how many were searched; `stale` says whether the result is not needed any more.
  adafuse.matching = async (state, progress, stale) => {
    const benchmark = adafuse.benchmark(state.benchmark);
    const here = await adafuse.index(state.benchmark, state.run);
    const there = state.beside ? await adafuse.index(state.benchmark, state.beside) : null;
    const [one, other] = [here, there].map((index) => index?.values[state.protocol] ?? []);
    let found = [...here.stops.keys()].filter((number) =>
      (!state.stop || here.stops[number] === state.stop)
      && passes(state.show, one[number], other[number], benchmark));
    if (state.show === "differ") found = await different(state, found, stale);
    return state.search ? searched(state, found, progress, stale) : found;
  };

  function passes(show, here, there, benchmark) {
    const right = (value) => value != null && adafuse.isRight(value, benchmark);
    const wrong = (value) => value != null && !right(value);
    const lead = here != null && there != null && benchmark.merit * (here - there);
    switch (show) {
      case "right": return right(here);
      case "wrong": return wrong(here);
      case "better": return lead > 0;
      case "worse": return lead < 0;
      case "both_wrong": return wrong(here) && wrong(there);
      default: return true;
    }
  }

  async function different(state, numbers, stale) {
    const found = [];
    for (const number of numbers) {
      if (stale()) return found;
      const texts = [state.run, state.beside].map((run) => adafuse.text(state.benchmark, run, number));
      const [one, other] = await Promise.all(texts);
      if (one.trim() !== other.trim()) found.push(number);
    }
    return found;
  }

  async function searched(state, numbers, progress, stale) {
    const words = state.search.toLowerCase();
    const ids = await adafuse.ids(state.benchmark);
    const found = [];
    let done = 0;
    await adafuse.scan(state.benchmark, state.run, numbers, (number, question, text) => {
      const all = [ids[number], question.text, ...question.answers, text];
      if (all.some((each) => each.toLowerCase().includes(words))) found.push(number);
      if (++done % 5000 === 0) progress(done, numbers.length);
      return !stale();
    });
    return found;
  }
})();
