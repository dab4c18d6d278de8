"use strict";
// The list of examples, a page at a time.

(() => {
  const PER_PAGE = 20;

  adafuse.pages = (count) => Math.max(1, Math.ceil(count / PER_PAGE));
  adafuse.firstOf = (page) => page * PER_PAGE;
  adafuse.pageOf = (place) => Math.floor(place / PER_PAGE);

  // Fills the list with a page of `numbers`; `choose` is called with the number of an example.
  adafuse.fillList = async (list, state, numbers, chosen, choose, stale) => {
    const first = adafuse.firstOf(state.page);
    const shown = numbers.slice(first, first + PER_PAGE);
    const [ids, index] = await Promise.all([
      adafuse.ids(state.benchmark), adafuse.index(state.benchmark, state.run),
    ]);
    const benchmark = adafuse.benchmark(state.benchmark);
    const entries = await Promise.all(shown.map(async (number) => {
      const [question, text] = await Promise.all([
        adafuse.question(state.benchmark, number), adafuse.text(state.benchmark, state.run, number),
      ]);
      const value = index.values[state.protocol]?.[number];
      const stop = index.stops[number];
      const mark = stop === "error" ? "⚠ error" : value === undefined ? "" : adafuse.mark(value, benchmark);
      const answer = text.slice(adafuse.thoughts(index, text, number));
      return entry({ number, id: ids[number], mark, question: question.text, answer }, chosen, choose);
    }));
    if (stale()) return;
    const none = adafuse.make("li", { class: "quiet" }, "No example passes these filters.");
    list.replaceChildren(...(entries.length ? entries : [none]));
  };

  function entry({ number, id, mark, question, answer }, chosen, choose) {
    const button = adafuse.make("button", { type: "button", "data-number": number },
      adafuse.make("span", { class: "id" }, id),
      adafuse.make("span", { class: "mark" }, mark),
      adafuse.make("span", { class: "snippet" }, lastLines(question)),
      adafuse.make("span", { class: "snippet answer" }, adafuse.visible(answer.trim())));
    if (number === chosen) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => choose(number));
    return adafuse.make("li", {}, button);
  }

  // Prompts end with the question.
  function lastLines(question) {
    return question.trim().split("\n").slice(-2).join(" ").slice(-160);
  }
})();
