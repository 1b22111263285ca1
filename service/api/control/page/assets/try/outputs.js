// The outputs of a model without a task.

import { significant } from "../app/format.js";
import { html } from "../app/html.js";

const MOST_SHOWN = 16;

export function Outputs({ outputs }) {
  return html`<ul class="outputs">${outputs.map(({ name, shape, values }) => html`<li key=${name}><b>${name}</b> <span class="quiet">${`[${shape.join(", ")}]`}</span> ${described(values)}</li>`)}</ul>`;
}

/** The numbers of a small output; of a larger one, the range of its values. */
function described(values) {
  const flat = [values].flat(Infinity).filter((value) => typeof value === "number");
  if (flat.length <= MOST_SHOWN) return flat.map(significant).join(", ");
  const [low, high] = flat.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return `values from ${significant(low)} to ${significant(high)}`;
}
