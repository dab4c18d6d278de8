"use strict";
// One round: all candidates, each model's NLL as a bar, the margins, and the winner's lead.

(() => {
  const shown = (value) => (Number.isFinite(value) ? value.toFixed(3) : "none");
  const quoted = (candidate) => `“${adafuse.visible(candidate.text)}${candidate.ends ? " ■" : ""}”`;

  adafuse.roundView = (example, number) => {
    const round = example.rounds[number];
    if (!round) return adafuse.make("p", { class: "quiet" }, "No round was committed.");
    return adafuse.make("section", { class: "round", "aria-live": "polite" },
      adafuse.make("h4", {}, `Round ${number + 1} of ${example.rounds.length}`),
      adafuse.make("p", {}, verdict(example, round)),
      ...(round.written ? [] : [adafuse.make("div", { class: "scroll" }, table(example, round, number))]),
      ...weights(example, round),
      ...margins(example, round));
  };

  function verdict(example, round) {
    const chosen = round.candidates[round.selected];
    if (!chosen) return "No candidate had a finite score, so decoding ended here.";
    if (round.written) return "You wrote this.";
    const names = chosen.proposers.map((model) => example.models[model]).join(" and ");
    const together = round.margins.length ? ", written by all models together" : "";
    const by = names ? `, proposed by ${names}` : together;
    if (round.byHand) return `Chosen by you${by}; F ${shown(chosen.fused)}.`;
    const words = `${adafuse.count(round.words, "word")} committed`;
    const others = round.candidates.filter((each) => each !== chosen && Number.isFinite(each.fused));
    if (!others.length) {
      return `${words}${by}; ${round.candidates.length > 1 ? "the others were not scored" : "the only candidate"}.`;
    }
    const second = others.reduce((best, each) => (each.fused < best.fused ? each : best));
    if (!(chosen.fused <= second.fused)) {
      return `${words}${by}; F ${shown(chosen.fused)}; that of ${quoted(second)} is ${shown(second.fused)}.`;
    }
    const ahead = (second.fused - chosen.fused).toFixed(3);
    return `${words}${by}; F ${shown(chosen.fused)}, ahead of ${quoted(second)} by ${ahead}.`;
  }

  function table(example, round, number) {
    const scored = Math.max(0, ...round.candidates.map((each) => each.nll.length));
    const most = scale(example);
    const models = example.models.slice(0, scored);
    const heads = ["candidate", "proposed by", "F", ...models.map((name) => `NLL ${name}`)];
    const order = [...round.candidates.keys()].sort((a, b) =>
      round.candidates[a].fused - round.candidates[b].fused || a - b);
    return adafuse.make("table", { class: "candidates" },
      adafuse.make("caption", {}, `${rule(round)}NLL in nats per token; the bars of all rounds have one scale.`),
      adafuse.make("thead", {}, adafuse.make("tr", {}, ...heads.map((text) =>
        adafuse.make("th", { scope: "col" }, text)))),
      adafuse.make("tbody", {}, ...order.map((at) =>
        row(example, round.candidates[at], at === round.selected, models, most, round.margins.length,
          example.goOn?.(number, at)))));
  }

  // A word that all models wrote together may be committed whatever its F.
  function rule({ candidates, selected }) {
    const least = candidates.every(({ fused }) => !(fused < candidates[selected]?.fused));
    return least && candidates.every(({ fused }) => Number.isFinite(fused)) ? "The smallest F wins. " : "";
  }

  // The longest bar of a text stands for its largest NLL, but for no less than 1.
  function scale({ rounds }) {
    const values = rounds.flatMap((round) => round.candidates.flatMap((each) => each.nll));
    return Math.max(1, ...values.filter(Number.isFinite));
  }

  // `goOn`, if there is one, decodes on after this candidate.
  function row(example, candidate, won, models, most, read, goOn) {
    const label = `go on with ${quoted(candidate)}`;
    const button = adafuse.make("button", { type: "button", class: "go", "aria-label": label }, "go on");
    button.addEventListener("click", goOn);
    const together = read && !candidate.proposers.length;
    return adafuse.make("tr", won ? { class: "won" } : {},
      adafuse.make("td", { class: "text" }, adafuse.visible(candidate.text),
        candidate.ends ? adafuse.make("b", { class: "end", title: "end of text" }, "■") : "",
        won ? adafuse.make("span", { class: "mark" }, " ✓ selected") : "",
        goOn ? button : ""),
      adafuse.make("td", {}, ...candidate.proposers.map((model) => adafuse.chip(example.models[model])),
        won && together ? "all together" : ""),
      adafuse.make("td", { class: "number" }, shown(candidate.fused)),
      ...models.map((name, model) => bar(name, candidate.nll[model], most)));
  }

  function bar(name, value, most) {
    const cell = adafuse.make("td", { class: "number bar" }, value === undefined ? "" : shown(value));
    if (value === undefined) return cell;
    cell.style.setProperty("--size", `${Number.isFinite(value) ? (100 * value) / most : 100}%`);
    cell.style.setProperty("--tint", adafuse.colour(name));
    return cell;
  }

  function weights(example, round) {
    if (!round.weights.length) return [];
    const parts = round.weights.map((value, model) =>
      adafuse.make("li", {}, adafuse.chip(example.models[model]), ` ${value.toFixed(2)}`));
    return [
      adafuse.make("p", { class: "quiet" }, "Weights of the models in this round:"),
      adafuse.make("ul", { class: "margins" }, ...parts),
    ];
  }

  function margins(example, round) {
    if (!round.margins.some((values) => values.length)) return [];
    const rows = round.margins.map((values, model) =>
      adafuse.make("li", {}, adafuse.chip(example.models[model]), " ",
        values.map((value) => judged(value, example.tau)).join(", ") || "none read"));
    const tau = example.tau == null ? "" : `; confident if at least τ = ${example.tau}`;
    return [
      adafuse.make("p", { class: "quiet" }, `Margins at starts of words, p(1) − p(2)${tau}:`),
      adafuse.make("ul", { class: "margins" }, ...rows),
    ];
  }

  function judged(value, tau) {
    if (tau == null || !Number.isFinite(value)) return String(value);
    return `${value.toFixed(2)} ${value >= tau ? "(sure)" : "(unsure)"}`;
  }
})();
