"use strict";
// The meaning of the data: examples of runs on benchmarks, by number. The order of the fields is that
// of adafuse/report/explorer.py.

(() => {
  const manifest = () => adafuse.manifest;

  adafuse.benchmark = (name) => manifest().benchmarks.find((each) => each.name === name);

  // Stop reasons in words.
  adafuse.STOPS = { eos: "end of text", stop: "stop string", length: "length limit", error: "error" };

  adafuse.ids = (benchmark) => adafuse.load(`${benchmark}/index`);

  // {stops: [stop reason of each example], values: {protocol: [value of each example or null]},
  // thoughts: [how many characters of each text come before the answer], if a model thinks}
  adafuse.index = (benchmark, run) => adafuse.load(`${benchmark}/runs/${run}/index`);

  adafuse.question = async (benchmark, number) => {
    const [text, answers] = await piece(`${benchmark}/questions`, manifest().sizes.questions, number);
    return { text, answers };
  };

  // Where the answer begins in a text; Python counts characters, JavaScript UTF-16 units.
  adafuse.thoughts = (index, text, number) =>
    [...text].slice(0, index.thoughts?.[number] ?? 0).join("").length;

  adafuse.text = async (benchmark, run, number) =>
    (await piece(`${benchmark}/runs/${run}/texts`, manifest().sizes.texts, number)) ?? "";

  // What a run answered, without thoughts, and what of it was scored under a protocol.
  adafuse.given = async (benchmark, run, protocol, number) => {
    const index = await adafuse.index(benchmark, run);
    const values = index.values[protocol];
    const scores = `${benchmark}/runs/${run}/scored-${protocol}`;
    const [text, scored] = await Promise.all([
      adafuse.text(benchmark, run, number), values && piece(scores, manifest().sizes.texts, number),
    ]);
    const answer = text.slice(adafuse.thoughts(index, text, number));
    return { text: answer, scored, value: values?.[number], stop: index.stops[number] };
  };

  adafuse.example = async (benchmark, run, number) => {
    const [row, text, index] = await Promise.all([
      piece(`${benchmark}/runs/${run}/rounds`, manifest().sizes.rounds, number),
      adafuse.text(benchmark, run, number),
      adafuse.index(benchmark, run),
    ]);
    const [rounds, tokens, promptTokens, forwards, seconds, error, traceback, takenFrom] = row;
    const { models, tau } = manifest().runs[takenFrom ?? run];
    const values = Object.entries(index.values).map(([protocol, all]) => [protocol, all[number]]);
    return {
      run, text, tokens, promptTokens, forwards, seconds, error, traceback, takenFrom, models,
      rounds: rounds.map(round), stop: index.stops[number], values: new Map(values),
      tau, thoughts: adafuse.thoughts(index, text, number),
    };
  };

  function round([candidates, selected, words, margins, weights = []]) {
    return { candidates: candidates.map(candidate), selected, words, margins, weights };
  }

  function candidate([text, ends, proposers, nll, fused]) {
    const size = (value) => (typeof value === "string" ? Infinity : value); // "inf" and "nan"
    return { text, ends: Boolean(ends), proposers, nll: nll.map(size), fused: size(fused) };
  }

  async function piece(key, size, number) {
    return (await adafuse.load(`${key}-${Math.floor(number / size)}`))[number % size];
  }

  // Calls visit(number, question and text) for each of the examples, piece by piece.
  adafuse.scan = async (benchmark, run, numbers, visit) => {
    for (const number of numbers) {
      const [question, text] = await Promise.all([
        adafuse.question(benchmark, number),
        adafuse.text(benchmark, run, number),
      ]);
      if (visit(number, question, text) === false) return;
    }
  };
})();
