"use strict";
// Draws the charts in the colours of the page; `charts` comes from charts.js.

(() => {
  // What files have in print colours, in those of the page's theme.
  const THEMED = { "#0072B2": "model-0", "#D55E00": "model-1" };

  function colour(name) {
    const probe = document.createElement("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  function themed(spec) {
    const text = Object.entries(THEMED).reduce(
      (all, [print, name]) => all.replaceAll(print, colour(name)), JSON.stringify(spec));
    return JSON.parse(text);
  }

  function config() {
    const style = getComputedStyle(document.documentElement);
    const [ink, line, quiet] = ["ink", "line", "quiet"].map(colour);
    const text = { labelColor: ink, titleColor: ink };
    return {
      background: "transparent", font: style.fontFamily || "sans-serif",
      axis: { ...text, gridColor: line, domainColor: quiet, tickColor: quiet },
      legend: { ...text, orient: "top", title: null }, title: { color: ink, fontSize: 12 },
      text: { color: ink }, view: { stroke: null },
    };
  }

  async function draw() {
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById(`chart-${name}`);
      if (!place) continue;
      const columns = place.clientWidth < 900 ? 1 : 2;
      const drawn = async (width) => {
        const concat = spec.concat.map((panel) => ({ ...panel, width }));
        const options = { config: config(), actions: false, renderer: "svg" };
        await vegaEmbed(place, { ...themed({ ...spec, concat }), columns }, options);
        return place.querySelector("svg").clientWidth;
      };
      // How wide the labels are is known once they are drawn: then the panels take what is left.
      const width = 140;
      const left = place.clientWidth - await drawn(width);
      await drawn(Math.max(width, width + Math.floor(left / columns)));
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", `chart of ${name}; its numbers stand in the tables`);
    }
  }

  addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
