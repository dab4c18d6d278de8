"use strict";
// The switch between dark and light; without a choice the system's setting holds.

(() => {
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("adafuse-theme");
    } catch {
      return null; // a browser may forbid storage to pages of a folder
    }
  };
  const use = (theme) => {
    root.dataset.theme = theme;
    dispatchEvent(new CustomEvent("themechange", { detail: theme }));
  };

  if (stored()) use(stored());
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    use(dark ? "light" : "dark");
    try {
      localStorage.setItem("adafuse-theme", root.dataset.theme);
    } catch {
      // then it lasts as long as the page
    }
  });
})();
