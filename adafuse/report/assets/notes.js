"use strict";
// What the reader noted on rows, kept by the browser for the report in this folder.

(() => {
  const KEY = `adafuse-notes:${location.pathname.replace(/[^/]*$/, "")}`;
  let here = {}; // if the browser keeps nothing

  function all() {
    try {
      return JSON.parse(localStorage.getItem(KEY)) ?? here;
    } catch {
      return here;
    }
  }

  const name = (benchmark, id) => JSON.stringify([benchmark, id]);

  adafuse.noteOf = (benchmark, id) => all()[name(benchmark, id)] ?? "";

  // Returns the notes of a benchmark by id.
  adafuse.notes = (benchmark) => new Map(Object.entries(all())
    .map(([key, text]) => [...JSON.parse(key), text])
    .filter(([of]) => of === benchmark).map(([, id, text]) => [id, text]));

  // Keeps a note, or forgets an empty one; returns whether it outlasts the page.
  adafuse.setNote = (benchmark, id, text) => {
    here = all(); // another tab may have added some
    delete here[name(benchmark, id)];
    if (text.trim()) here[name(benchmark, id)] = text;
    try {
      localStorage.setItem(KEY, JSON.stringify(here));
      return true;
    } catch {
      return false;
    }
  };
})();
