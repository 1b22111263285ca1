// The scores of an artifact on a data set, which `octet evaluate --attach` stored.

import { plural } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar } from "../parts/basics.js";

/** A line for each metric. The score is a statement, or a signed envelope with the statement as payload. */
export function Scores({ stored }) {
  if (!stored) return null;
  const signed = stored.payload === undefined ? "not signed" : "signed";
  try {
    const { metrics, data, evaluator } = (stored.payload === undefined ? stored : JSON.parse(text(stored.payload))).predicate;
    return Object.entries(metrics).map(([name, { value, low, high }]) => html`<li key=${name}>
      <span class="name">${name}</span>
      ${value >= 0 && value <= 1 && html`<${Bar} share=${value} kind="plain" />`}
      <span class="value">${rounded(value)}</span>
      <span class="quiet note">${`${rounded(low)} to ${rounded(high)}, on ${plural(data.inputs, "input")} of ${data.name}; ${signed}, ${evaluator.id}`}</span>
    </li>`);
  } catch { // a score that a registry delivered was not checked
    return html`<li><span class="quiet note">The stored score cannot be read.</span></li>`;
  }
}

function text(base64) {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
}

function rounded(value) {
  return String(Number(value.toPrecision(3)));
}
