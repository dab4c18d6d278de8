"use strict";
// One example: the question, and the texts of one run or two.

(() => {
  const MOST_ANSWERS = 20;

  // Returns the elements of an example; `onRound` is called with a round that is chosen in the first run.
  adafuse.exampleView = async (state, number, onRound) => {
    const runs = [state.run, state.beside].filter(Boolean);
    const [question, ...examples] = await Promise.all([
      adafuse.question(state.benchmark, number),
      ...runs.map((run) => adafuse.example(state.benchmark, run, number)),
    ]);
    const benchmark = adafuse.benchmark(state.benchmark);
    const columns = examples.map((example, at) =>
      adafuse.runView(example, at ? 0 : state.round, at ? () => {} : onRound,
        [verdicts(example, benchmark), ...failure(example)], [adafuse.facts(example)]));
    return [
      questionView(question, state.id),
      adafuse.legend(examples),
      adafuse.make("div", { class: "runs" }, ...columns),
    ];
  };

  function questionView({ text, answers }, id) {
    const parts = [];
    if (text) {
      parts.push(adafuse.make("details", { class: "prompt", open: "" },
        adafuse.make("summary", {}, "Prompt"), adafuse.make("pre", {}, text)));
    }
    if (answers.length) {
      const items = answers.slice(0, MOST_ANSWERS).map((each) => adafuse.make("li", {}, each));
      const more = answers.length - items.length;
      if (more > 0) items.push(adafuse.make("li", { class: "quiet" }, `and ${more} more`));
      parts.push(adafuse.make("div", {}, "Accepted answers", adafuse.make("ul", { class: "answers" }, ...items)));
    }
    return adafuse.make("section", {}, adafuse.make("h2", {}, `Example ${id}`),
      adafuse.make("div", { class: "question" }, ...parts));
  }

  adafuse.legend = (examples) => {
    const names = [...new Set(examples.flatMap((example) => example.models))];
    return adafuse.make("p", { class: "legend" }, "Proposed by ", ...names.map(adafuse.chip),
      " · several colours: by all of these models · no colour: by no single model · ■ end of the text");
  };

  // A run's text and one of its rounds, after a `head` and before a `foot`.
  adafuse.runView = (example, round, onRound, head, foot) => {
    const panel = adafuse.make("div", { class: "panel" });
    let pinned = Math.min(round, Math.max(0, example.rounds.length - 1));
    const show = (number) => {
      panel.replaceChildren(adafuse.roundView(example, number), steps(number));
      for (const each of column.querySelectorAll("[data-round]")) {
        each.toggleAttribute("data-shown", Number(each.dataset.round) === number);
      }
    };
    const choose = (number, pin) => {
      if (pin) pinned = number;
      if (pin) onRound(number);
      show(number ?? pinned);
    };
    const steps = (number) => adafuse.make("p", { class: "steps" },
      step("← round", number - 1), step("round →", number + 1));
    const step = (label, number) => {
      const button = adafuse.make("button", { type: "button" }, label);
      button.disabled = number < 0 || number >= example.rounds.length;
      button.addEventListener("click", () => choose(number, true));
      return button;
    };
    const column = adafuse.make("article", { class: "run", "data-run": example.run },
      adafuse.make("h3", {}, example.run), ...head,
      ...adafuse.textView(example, choose), panel, ...foot);
    column.stepRound = (by) => {
      const next = pinned + by;
      if (next >= 0 && next < example.rounds.length) choose(next, true);
    };
    show(pinned);
    return column;
  };

  function verdicts(example, benchmark) {
    const marks = Map.groupBy(example.values, ([, value]) => adafuse.mark(value, benchmark));
    const said = [...marks].map(([mark, all]) =>
      adafuse.make("span", { class: "verdict" }, `${mark} (${all.map(([name]) => name).join(", ")})`));
    return adafuse.make("p", {}, ...said);
  }

  function failure({ error, traceback }) {
    if (!error) return [];
    const parts = [adafuse.make("p", { class: "error", role: "alert" }, `Error: ${error}`)];
    if (traceback) {
      parts.push(adafuse.make("details", {}, adafuse.make("summary", {}, "Traceback"),
        adafuse.make("pre", {}, traceback)));
    }
    return parts;
  }

  adafuse.facts = (example) => {
    const counts = example.models.map((name, at) =>
      `${name} ${adafuse.count(example.tokens[at] ?? 0, "token")}, `
      + adafuse.count(example.forwards[at] ?? 0, "forward pass", "forward passes"));
    const from = example.takenFrom ? `taken from run ${example.takenFrom}; ` : "";
    return adafuse.make("p", { class: "quiet" },
      `${from}stop reason: ${adafuse.STOPS[example.stop]}; `
      + `${adafuse.count(example.rounds.length, "round")}, ${example.seconds?.toFixed(2)} s; `
      + `${counts.join("; ")}.`);
  };
})();
