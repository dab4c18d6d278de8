"use strict";
// A text as the spans that rounds committed, each in the colours of the models that proposed it.

(() => {
  // Splits a text: [{round, shown, cut}], in which `cut` is what a stop string took away, and the
  // numbers of rounds that added nothing to it. Null if the rounds do not make up the text.
  adafuse.split = ({ text, rounds }) => {
    const last = rounds.at(-1);
    const chosen = (each) => each.candidates[each.selected]?.text ?? "";
    const whole = joined(text, rounds.map(chosen));
    if (whole) return { spans: whole, others: [] };
    // A last round may rank whole answers: it adds nothing where the fused text stands.
    const before = rounds.length > 1 && chosen(last).startsWith(text)
      && joined(text, rounds.slice(0, -1).map(chosen));
    if (before) return { spans: before, others: [rounds.length - 1] };
    return { spans: null, others: rounds.map((_, number) => number) };
  };

  function joined(text, pieces) {
    const spans = [];
    let place = 0;
    for (const [round, piece] of pieces.entries()) {
      const left = text.slice(place);
      const shown = left.startsWith(piece) ? piece : left;
      if (!piece.startsWith(shown)) return null;
      spans.push({ round, shown, cut: piece.slice(shown.length) });
      place += shown.length;
    }
    return place === text.length ? spans : null;
  }

  // Returns the text of an example; `choose` is called with a round that somebody points at.
  adafuse.textView = (example, choose) => {
    const { spans, others } = adafuse.split(example);
    const [before, after] = parts(example, spans ?? [{ shown: example.text }]);
    const answer = paragraph(example, after, "text by rounds");
    if (!answer.hasChildNodes()) answer.append(before.length ? "(no answer)" : "(nothing)");
    const chips = others.map((number) => chipView(example, number));
    const thoughts = before.length ? [folded(example, before)] : [];
    const view = adafuse.make("div", {}, ...thoughts, answer);
    const all = [...view.querySelectorAll("[data-round]"), ...chips];
    const first = [all[0], answer.querySelector("[data-round]")]; // thoughts are folded
    for (const [place, each] of all.entries()) {
      const number = Number(each.dataset.round);
      each.addEventListener("click", () => choose(number, true));
      each.addEventListener("pointerenter", () => choose(number, false));
      each.addEventListener("focus", () => choose(number, true));
      each.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        all[place + step]?.focus();
      });
      each.tabIndex = first.includes(each) ? 0 : -1;
    }
    view.addEventListener("pointerleave", () => choose(null, false));
    return chips.length ? [view, adafuse.make("p", { class: "chips" }, ...chips)] : [view];
  };

  // The spans of the thoughts and those of the answer; one that holds both is in both.
  function parts({ thoughts }, spans) {
    const before = [], after = [];
    let place = 0;
    for (const span of spans) {
      const border = Math.min(Math.max(thoughts - place, 0), span.shown.length);
      const rest = { ...span, shown: span.shown.slice(border) };
      const goesOn = !border || rest.shown || rest.cut;
      if (border) before.push({ ...span, shown: span.shown.slice(0, border), cut: "", goesOn });
      if (goesOn) after.push(rest);
      place += span.shown.length;
    }
    return [before, after];
  }

  function folded(example, spans) {
    const words = (text) => text.split(/\s+/).filter(Boolean).length;
    const rounds = new Set(spans.map(({ round }) => round).filter((round) => round !== undefined));
    const counts = [`${words(example.text.slice(0, example.thoughts))} of ${words(example.text)} words`];
    if (rounds.size) counts.push(`${rounds.size} of ${adafuse.count(example.rounds.length, "round")}`);
    return adafuse.make("details", { class: "thoughts" },
      adafuse.make("summary", {}, `Thoughts: ${counts.join(", ")}; not scored`),
      paragraph(example, spans, "thoughts by rounds"));
  }

  function paragraph(example, spans, label) {
    const views = spans.map((span) => (span.round === undefined ? span.shown : spanView(example, span)));
    return adafuse.make("p", { class: "fused", role: "group", "aria-label": label },
      ...views.filter((view) => view !== ""));
  }

  function spanView(example, { round, shown, cut, goesOn }) {
    const taken = example.rounds[round];
    const chosen = taken.candidates[taken.selected];
    const names = chosen?.proposers.map((model) => example.models[model]) ?? [];
    const nobody = taken.margins.length ? "all together" : "nobody";
    const span = adafuse.make("span", {
      class: "span", role: "button", "data-round": round,
      "aria-label": `${JSON.stringify(shown)}, round ${round + 1}, by ${names.join(" and ") || (taken.written ? "you" : nobody)}`,
    }, shown);
    if (cut) span.append(adafuse.make("s", { title: "cut: not in the text" }, adafuse.visible(cut)));
    if (chosen?.ends && !goesOn) span.append(adafuse.make("b", { class: "end", title: "end of text" }, "■"));
    span.style.setProperty("--by", stripes(names));
    span.style.setProperty("--tint", adafuse.colour(names.length === 1 ? names[0] : null));
    return span;
  }

  function chipView(example, number) {
    return adafuse.make("button", { type: "button", class: "chip", "data-round": number },
      `round ${number + 1}`);
  }

  function stripes(names) {
    const parts = names.map((name, at) => {
      const [from, to] = [at, at + 1].map((each) => `${(100 * each) / names.length}%`);
      return `${adafuse.colour(name)} ${from} ${to}`;
    });
    return `linear-gradient(to right, ${parts.join(", ") || "transparent 0 100%"})`;
  }
})();
