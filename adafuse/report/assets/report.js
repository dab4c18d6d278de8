"use strict";
// Draws the charts in the colours of the page; `charts` comes from charts.js.

(() => {
  function config() {
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("span");
    document.body.append(probe);
    const colour = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const [ink, line, quiet] = ["ink", "line", "quiet"].map(colour);
    const category = [0, 1, 2, 3, 4, 5, 6].map((number) => colour(`model-${number}`));
    probe.remove();
    const text = { labelColor: ink, titleColor: ink };
    return {
      background: "transparent", font: style.fontFamily || "sans-serif",
      axis: { ...text, gridColor: line, domainColor: quiet, tickColor: quiet, labelLimit: 170 },
      legend: text, header: text, title: { color: ink }, view: { stroke: line },
      range: { category }, mark: { color: category[0] },
    };
  }

  async function draw() {
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById(`chart-${name}`);
      if (!place) continue;
      const columns = place.clientWidth < 900 ? 1 : 2;
      const width = Math.min(spec.spec.width, Math.max(140, place.clientWidth - 210));
      await vegaEmbed(place, { ...spec, columns, spec: { ...spec.spec, width } }, { config: config(), actions: false, renderer: "svg" });
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", `chart of ${name}; its numbers stand in the tables`);
    }
  }

  addEventListener("themechange", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
