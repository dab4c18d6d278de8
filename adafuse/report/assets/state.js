"use strict";
// What the page shows, as its address says: a link opens on exactly one example.

(() => {
  const TEXTS = ["benchmark", "run", "beside", "protocol", "id", "show", "stop", "search"];
  const NUMBERS = ["page", "round"]; // from 1 in the address

  adafuse.readState = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const state = {};
    for (const name of TEXTS) state[name] = given.get(name) ?? "";
    for (const name of NUMBERS) state[name] = Math.max(1, parseInt(given.get(name), 10) || 1) - 1;
    return state;
  };

  adafuse.address = (state) => {
    const texts = TEXTS.filter((name) => state[name]).map((name) => [name, state[name]]);
    const numbers = NUMBERS.filter((name) => state[name]).map((name) => [name, state[name] + 1]);
    return `#${new URLSearchParams([...texts, ...numbers])}`;
  };

  // A link to the example, without the filters.
  adafuse.exampleAddress = ({ benchmark, run, beside, protocol, id, round }) =>
    adafuse.address({ benchmark, run, beside, protocol, id, round });

  // Corrects what the report does not have: the first of each instead.
  adafuse.corrected = (state) => {
    const benchmark = adafuse.benchmark(state.benchmark) ?? adafuse.manifest.benchmarks[0];
    const fits = (name, names) => (names.includes(name) ? name : "");
    const run = fits(state.run, benchmark.runs) || benchmark.runs.find(isFused) || benchmark.runs[0];
    const beside = fits(state.beside, benchmark.runs.filter((name) => name !== run));
    const protocol = fits(state.protocol, adafuse.manifest.protocols) || adafuse.manifest.protocols[0];
    const shows = adafuse.shows(benchmark, Boolean(beside)).map(([value]) => value);
    const show = fits(state.show, shows);
    const stop = fits(state.stop, adafuse.stops().map(([value]) => value));
    return { ...state, benchmark: benchmark.name, run, beside, protocol: protocol ?? "", show, stop };
  };

  const isFused = (name) => adafuse.manifest.runs[name].models.length > 1;
})();
