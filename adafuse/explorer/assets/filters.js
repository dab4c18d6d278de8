"use strict";
// Which examples are listed: by right and wrong here and beside, by stop reason, by words in them.

(() => {
  const alone = (good, bad) => [["", "all"], ["right", good], ["wrong", bad]];
  const beside = (better, worse) => [
    ["better", better], ["worse", worse], ["both_wrong", "wrong in both"], ["differ", "other texts"],
  ];

  adafuse.shows = (accuracy, two) => {
    const first = accuracy ? alone("right", "wrong") : [["", "all"]];
    if (!two) return first;
    const pairs = accuracy
      ? beside("right here, wrong beside", "wrong here, right beside")
      : beside("better here than beside", "worse here than beside")
        .filter(([value]) => value !== "both_wrong");
    return [...first, ...pairs];
  };

  adafuse.stops = () => [["", "any reason"], ...Object.entries(adafuse.ENDS)];

  // Returns the numbers of the examples that a state of the page shows. `progress` is told how many
  // were searched; `stale` says whether nobody waits for the result any more.
  adafuse.matching = async (state, progress, stale) => {
    const here = await adafuse.index(state.benchmark, state.run);
    const there = state.beside ? await adafuse.index(state.benchmark, state.beside) : null;
    const [one, other] = [here, there].map((index) => index?.values[state.protocol] ?? []);
    let found = [...here.stops.keys()].filter((number) =>
      (!state.stop || here.stops[number] === state.stop)
      && passes(state.show, one[number], other[number]));
    if (state.show === "differ") found = await different(state, found, stale);
    return state.search ? searched(state, found, progress, stale) : found;
  };

  function passes(show, here, there) {
    switch (show) {
      case "right": return here === 1;
      case "wrong": return here === 0;
      case "better": return here != null && there != null && here > there;
      case "worse": return here != null && there != null && here < there;
      case "both_wrong": return here === 0 && there === 0;
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
