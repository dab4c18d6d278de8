"use strict";
// Elements, colours and marks. Text of models only ever becomes a text node.

(() => {
  adafuse.make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  adafuse.colour = (model) => {
    const place = adafuse.manifest.models.indexOf(model);
    return place < 0 ? "var(--quiet)" : `var(--model-${place % 7})`;
  };

  adafuse.chip = (model) => {
    const chip = adafuse.make("span", { class: "model" }, model);
    chip.style.setProperty("--tint", adafuse.colour(model));
    return chip;
  };

  adafuse.count = (number, noun, plural = `${noun}s`) => `${number} ${number === 1 ? noun : plural}`;

  // Shows line breaks, tabs, and spaces at the ends.
  adafuse.visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥")
    .replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));

  // Whether a value is right; of a metric that is not binary, whether it is the full score.
  adafuse.isRight = (value, { binary, merit }) => merit * value >= Math.max(0, merit * (binary ? 1 : 100));

  // Says what an example's value means on a benchmark: right or wrong, or its metric.
  adafuse.mark = (value, benchmark) => {
    if (value == null) return "not scored";
    if (!benchmark.binary) return `${benchmark.label} ${value.toFixed(1)}`;
    return adafuse.isRight(value, benchmark) ? "✓ right" : "✗ wrong";
  };

  adafuse.options = (select, pairs, chosen) => {
    select.replaceChildren(...pairs.map(([value, label]) => adafuse.make("option", { value }, label)));
    select.value = pairs.some(([value]) => value === chosen) ? chosen : (pairs[0]?.[0] ?? "");
    return select.value;
  };
})();
