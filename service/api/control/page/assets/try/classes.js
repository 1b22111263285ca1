// Classes with their scores, as bars.

import { percent } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar } from "../parts/basics.js";

const TOP = 5;

/** Draws bars: shares if all values are between 0 and 1; otherwise from the lowest shown value to the highest. */
export function Classes({ classes }) {
  const best = [...classes].sort((a, b) => b.score - a.score).slice(0, TOP);
  const scores = best.map(({ score }) => score);
  const areShares = scores.at(-1) >= 0 && scores[0] <= 1;
  const [low, high] = areShares ? [0, 1] : [scores.at(-1), scores[0]];
  return html`<ol class="bars classes">${best.map(({ label, score }, place) => html`<li key=${place}>
    <span class="name">${label}</span>
    <${Bar} share=${(score - low) / (high - low || 1)} />
    <span class="value">${areShares ? percent(score) : score.toPrecision(3)}</span>
  </li>`)}</ol>`;
}

/** Returns the classes of the only output of a model without a task, `[1, classes]`; null for any other output. */
export function classesOf(outputs) {
  if (outputs?.length !== 1) return null;
  const [{ shape, values }] = outputs;
  const flat = values.flat(Infinity);
  if (flat.length < 2 || flat.length !== shape.at(-1)) return null;
  return flat.map((score, index) => ({ label: `class ${index}`, score }));
}
