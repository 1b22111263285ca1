// A text that a button copies.

import { html } from "../app/html.js";
import { useState } from "../vendor/hooks.js";

const SHOWN_MS = 2000;

export function Copyable({ text, label }) {
  const [word, setWord] = useState("Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      setWord("Copied");
    } catch { // without HTTPS, browsers allow no access to the clipboard
      setWord("Select the text to copy it");
    }
    setTimeout(() => setWord("Copy"), SHOWN_MS);
  }
  return html`<div class="copyable">
    <pre tabindex="0" role="region" aria-label=${label}>${text}</pre>
    <button type="button" class="plain small" onClick=${copy}>${word}</button>
  </div>`;
}
