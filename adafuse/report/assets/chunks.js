"use strict";
// Loads the data. A page opened from a folder may not read files, but it may load scripts: each
// file of data is a script that calls `adafuse.receive` with gzipped JSON.

const adafuse = {};

(() => {
  const BUDGET = 6e6; // characters of packed data whose contents are kept
  const waiting = new Map(); // key -> what to do with the packed data
  const kept = new Map(); // key -> {value: promise, size}; the least recently used first

  adafuse.receive = (key, packed) => waiting.get(key)?.(packed);

  // Returns a promise of the value that lies in data/KEY.js.
  adafuse.load = (key) => {
    const entry = kept.get(key) ?? { value: read(key), size: 0 };
    kept.delete(key);
    kept.set(key, entry);
    return entry.value;
  };

  async function read(key) {
    try {
      const packed = await handedOver(key);
      const entry = kept.get(key);
      if (entry) entry.size = packed.length;
      forget();
      return await unpacked(packed);
    } catch (error) {
      kept.delete(key);
      throw error;
    }
  }

  function handedOver(key) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      const done = (settle, value) => {
        waiting.delete(key);
        script.remove();
        settle(value);
      };
      waiting.set(key, (packed) => done(resolve, packed));
      const reason = `data/${key}.js cannot be read; copy the whole folder of the report`;
      script.onerror = () => done(reject, new Error(reason));
      script.onload = () => waiting.has(key) && script.onerror(); // torn: it handed over nothing
      script.src = `data/${key.split("/").map(encodeURIComponent).join("/")}.js`;
      document.head.append(script);
    });
  }

  async function unpacked(packed) {
    const text = atob(packed);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).json();
  }

  function forget() {
    let size = 0;
    for (const entry of kept.values()) size += entry.size;
    for (const [key, entry] of kept) {
      if (size <= BUDGET || kept.size <= 1) return;
      if (!entry.size) continue; // still on its way
      size -= entry.size;
      kept.delete(key);
    }
  }
})();
