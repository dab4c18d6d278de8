"use strict";
// The live page: asks the server for a text, and draws its rounds as they come.

(() => {
  const $ = (id) => document.getElementById(id);
  const PAUSE = 50; // milliseconds between two drawings, or longer if they take long
  let setup; // what the server offers
  let example; // what is drawn, as adafuse.example returns it
  let running; // the AbortController of the request
  let pinned = null; // the round that somebody chose; otherwise the last one is shown
  let due = 0, took = 0, held = false;

  // ---- the server

  async function ask(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
    const init = body ? { method: "POST", body: JSON.stringify(body), headers, signal } : { headers };
    const answer = await fetch(path, { ...init, cache: "no-store" });
    if (answer.ok) return answer;
    if (answer.status === 401) $("locked").hidden = false;
    const said = await answer.json().catch(() => null);
    throw new Error(said?.error?.message ?? `the server answered with status ${answer.status}`);
  }

  // Yields the events of a stream as they come.
  async function* events(answer) {
    let text = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) if (part !== "data: [DONE]") yield JSON.parse(part.slice(6));
    }
  }

  async function load() {
    setup = await (await ask("live/setup")).json();
    $("error").hidden = true;
    adafuse.options($("method"), Object.keys(setup.methods).map((name) => [name, name]), setup.method);
    $("max_tokens").placeholder = setup.max_tokens;
    showOptions();
    const trace = new URLSearchParams(location.hash.slice(1)).get("trace");
    if (trace) await open(trace);
  }

  // ---- the form

  function showOptions(values = {}) {
    const { options } = setup.methods[$("method").value];
    $("more").hidden = !Object.keys(options).length;
    $("options").replaceChildren(...Object.entries(options).map(([name, { value, choices, description }]) => {
      const control = adafuse.make(choices ? "select" : "input", { name, placeholder: value });
      if (choices) adafuse.options(control, [["", `${value} (default)`], ...choices.map((each) => [each, each])], "");
      if (name in values && values[name] !== value) control.value = values[name];
      return adafuse.make("label", {}, name, control,
        adafuse.make("small", {}, description.replaceAll("`", "")));
    }));
  }

  // The options that were changed; numbers and truth values are JSON, others text.
  function options() {
    const changed = [...$("options").querySelectorAll("[name]")].filter((each) => each.value.trim());
    return Object.fromEntries(changed.map(({ name, value }) => {
      try {
        return [name, JSON.parse(value)];
      } catch {
        return [name, value];
      }
    }));
  }

  function request(begun) {
    const prompt = $("prompt").value;
    const body = { method: $("method").value, options: options(), stream: true, rounds: true };
    body.stream_options = { include_usage: true };
    if ($("max_tokens").value) body.max_tokens = Number($("max_tokens").value);
    if ($("stop").value) body.stop = $("stop").value.replaceAll("\\n", "\n").replaceAll("\\t", "\t");
    if (!$("chat").checked) return ["v1/completions", { ...body, prompt: prompt + begun }];
    const answer = begun ? [{ role: "assistant", content: begun }] : [];
    return ["v1/chat/completions", { ...body, messages: [{ role: "user", content: prompt }, ...answer] }];
  }

  // ---- a text, its rounds, and going on from one of them

  const chosen = (round) => round.candidates[round.selected];
  const joined = (rounds) => rounds.map((round) => chosen(round)?.text ?? "").join("");
  const size = (value) => value ?? Infinity; // JSON has no infinity

  const read = (round) => ({ ...round, candidates: round.candidates.map((each) =>
    ({ ...each, nll: each.nll.map(size), fused: size(each.fused) })) });

  const written = (text) => ({
    candidates: [{ text, ends: false, proposers: [], nll: [], fused: Infinity }],
    selected: 0, margins: [], weights: [], written: true,
  });

  function begin(method, models, rounds, values) {
    const { threshold, options: kinds } = setup.methods[method] ?? {};
    pinned = null;
    adafuse.manifest = { models };
    example = {
      run: method, models, rounds, text: joined(rounds), thoughts: 0, begun: rounds.length, goOn,
      tau: values[threshold] ?? kinds?.[threshold]?.value,
    };
    $("trace").hidden = $("error").hidden = true;
  }

  // Takes over what an event of the stream says.
  function take({ error, id, choices: [choice] = [], adafuse: costs }) {
    if (error) throw new Error(error.message);
    if (costs) Object.assign(example, costs[0], { rounds: example.rounds });
    if (!choice?.adafuse) return;
    example.rounds.push(...choice.adafuse.rounds.map(read));
    example.text = joined(example.rounds);
    if (choice.finish_reason) end(choice.adafuse, `${id}-0`);
  }

  function end({ text, thoughts, stop_reason }, trace) {
    const begun = joined(example.rounds.slice(0, example.begun));
    const points = [...text].slice(0, thoughts ?? 0); // Python counts characters, not UTF-16 units
    example.text = begun + text;
    example.thoughts = thoughts ? begun.length + points.join("").length : 0;
    example.stop = stop_reason;
    $("trace").hidden = !setup.traces;
    $("trace").firstElementChild.href = `#trace=${trace}`;
  }

  // Returns what decodes on after a candidate of a round; null where that cannot be.
  function goOn(number, at) {
    const round = example.rounds[number], { text, ends } = round.candidates[at];
    const { spans, others } = adafuse.split(example);
    const before = others.includes(number) ? [] : example.rounds.slice(0, number);
    if (ends || !spans || (joined(before) + text).includes("\ufffd")) return null; // half a character
    const byHand = round.byHand || at !== round.selected;
    return () => start([...before, { ...round, selected: at, byHand }]);
  }

  // Returns the rounds that an edited text begins with, and the rest of it as one of your own.
  function edited(rest) {
    const kept = [];
    for (const round of example.rounds) {
      const { text, ends } = chosen(round) ?? { ends: true };
      if (ends || !rest.startsWith(text)) break;
      kept.push(round);
      rest = rest.slice(text.length);
    }
    return rest ? [...kept, written(rest)] : kept;
  }

  async function start(rounds) {
    running?.abort();
    const mine = running = new AbortController();
    $("end").disabled = false;
    $("status").textContent = "Decoding …";
    try {
      if (!setup) await load();
      begin($("method").value, setup.models, rounds, options());
      draw();
      const answer = await ask(...request(example.text), mine.signal);
      for await (const event of events(answer)) {
        if (mine !== running) return;
        take(event);
        later();
      }
      $("status").textContent = `Finished: ${adafuse.STOPS[example.stop]}.`;
    } catch (error) {
      if (mine === running) fail(error);
    } finally {
      if (mine === running) settle();
    }
  }

  // Shows a trace that the server kept.
  async function open(name) {
    const row = await (await ask(`live/traces/${encodeURIComponent(name)}`)).json();
    const values = JSON.parse(row.options), chat = name.startsWith("chat");
    const [user, answer, ...more] = chat ? JSON.parse(row.prompt) : [{ role: "user", content: row.prompt }];
    const ours = user.role === "user" && (answer?.role ?? "assistant") === "assistant" && !more.length;
    $("prompt").value = ours ? user.content : row.prompt;
    $("chat").checked = chat;
    $("max_tokens").value = values.max_new_tokens;
    $("stop").value = (values.stop[0] ?? "").replaceAll("\n", "\\n").replaceAll("\t", "\\t");
    if (setup.methods[row.method]) $("method").value = row.method;
    showOptions(values);
    const begun = ours && answer ? [written(answer.content)] : [];
    begin(row.method, row.models, [...begun, ...row.rounds.map(read)], values);
    Object.assign(example, { ...row, rounds: example.rounds, begun: begun.length });
    if (!ours || `${row.models}` !== `${setup.models}`) delete example.goOn;
    end(row, name);
    $("status").textContent = `Trace ${name}.`;
    if (row.error) fail(new Error(row.error));
    settle();
  }

  // ---- the page

  function draw() {
    const began = performance.now(), last = example.rounds.length - 1;
    const key = (each) => each.dataset.round ?? each.getAttribute("aria-label") ?? each.textContent;
    const kept = $("result").contains(document.activeElement) && key(document.activeElement);
    const counted = example.stop && example.seconds !== undefined;
    const column = adafuse.runView(example, pinned ?? last, (round) => { pinned = round; }, [],
      counted ? [adafuse.facts(example)] : []);
    $("result").replaceChildren(...(last < 0 && !counted ? [] : [adafuse.legend([example]), column]));
    if (kept) [...column.querySelectorAll("[data-round], button")].find((each) => key(each) === kept)?.focus();
    took = performance.now() - began;
  }

  // Draws soon, but not while somebody presses something in the text.
  function later() {
    due ||= setTimeout(() => {
      due = 0;
      if (held) later();
      else draw();
    }, Math.max(PAUSE, 4 * took));
  }

  function settle() {
    running = null;
    $("end").disabled = true;
    if (!example) return;
    $("text").value = example.text;
    $("edit").hidden = $("note").hidden = !example.goOn;
    draw();
  }

  function fail(error) {
    const stopped = error.name === "AbortError";
    $("status").textContent = stopped ? "Stopped." : "";
    $("error").textContent = error.message;
    $("error").hidden = stopped;
  }

  const step = (by) => $("result").querySelector(".run")?.stepRound(by);
  const KEYS = { "]": () => step(1), "[": () => step(-1) };

  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    start([]);
  });
  $("end").addEventListener("click", () => running?.abort());
  $("resume").addEventListener("click", () => start(edited($("text").value)));
  $("method").addEventListener("change", () => showOptions());
  $("key").addEventListener("change", () => load().catch(fail));
  $("result").addEventListener("pointerdown", () => { held = true; });
  for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { held = false; });
  addEventListener("hashchange", () => load().catch(fail));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit();
    const typing = event.target.matches("input, select, textarea");
    if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) KEYS[event.key]?.();
  });
  load().catch(fail);
})();
