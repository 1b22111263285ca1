// The values that requests caused in a model, beside the ranges that calibration chose.

import { count, percent, plural, significant } from "../app/format.js";
import { html } from "../app/html.js";
import { State } from "../parts/basics.js";

const WIDTH = 192; // one unit for each bin of a histogram
const HEIGHT = 24;
const COLOURS = { off: "queued", waiting: "queued", within: "succeeded", outside: "failed" };

/** Draws the state of a version, and a histogram of each tensor, the most clipped first. */
export function Saturation({ found }) {
  if (!found) return html`<p class="quiet">This server has no counts of this version.</p>`;
  const { state, reason, samples, dropped, days, tensors } = found;
  const dot = html`<${State} kind=${COLOURS[state]} word=${state} />`;
  if (!tensors.length) return html`<p class="quiet">${dot}${` ${reason}`}</p>`;
  const outside = tensors.filter((each) => each.state === "outside");
  const worst = [...tensors].sort((a, b) => b.clipped - a.clipped);
  return html`
    <p>${dot}${` ${plural(samples, "request")} of ${plural(days, "day")}`}${dropped > 0 && `, ${count(dropped)} dropped`}</p>
    ${outside.map(({ tensor, clipped }) => html`<p class="warning" key=${tensor}>${`Live data leaves the calibrated range of ${tensor}: ${percent(clipped)} of its values are clipped.`}</p>`)}
    <ul class="bars ranges">${worst.map((each) => html`<${Row} key=${each.tensor} ...${each} />`)}</ul>
  `;
}

function Row({ tensor, stored, live, clipped, activation, histogram, state }) {
  const ends = activation.length ? ` · ${activation.map((end) => `its ${end} end is an activation's`).join(", ")}` : "";
  return html`<li class=${state}>
    <span class="name" title=${tensor}>${tensor}</span>
    <span class="value">${percent(clipped)} clipped</span>
    <${Histogram} values=${histogram} label=${`calibrated ${range(stored)}, live ${range(live)}`} />
    <span class="quiet note">${`calibrated ${range(stored)} · live ${range(live)}${ends}`}</span>
  </li>`;
}

/** A histogram on a logarithmic scale. The calibrated range is the middle third, with a background. */
function Histogram({ values, label }) {
  const most = Math.log1p(Math.max(...values, 1));
  return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect x=${WIDTH / 3} y="0" width=${WIDTH / 3} height=${HEIGHT} class="calibrated" />
    ${values.map((value, index) => {
      const height = (HEIGHT * Math.log1p(value)) / most;
      const isClipped = index < WIDTH / 3 || index >= (2 * WIDTH) / 3;
      return value > 0 && html`<rect key=${index} x=${index} y=${HEIGHT - height} width="1" height=${height} class=${isClipped ? "beyond" : "inside"} />`;
    })}
  </svg>`;
}

function range({ low, high }) {
  return `${significant(low)} to ${significant(high)}`;
}
