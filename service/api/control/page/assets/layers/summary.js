// The time of the whole model, and its division by the type of code.

import { count, duration, plural } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar } from "../parts/basics.js";

const TYPES = { integer: "integer kernels", float: "float kernels", layout: "layout changes", generated: "generated code" };

export function Summary({ explanation: { profile }, artifact }) {
  if (!profile) return html`<p class="quiet">Bars show multiply-accumulates, not times: the machine that built the model could not measure it. <code>${`octet explain DATA_DIR/store --artifact ${artifact} --attach`}</code> measures it, on a machine that runs it.</p>`;
  const { machine, threads, model_seconds: seconds, peak_macs_per_s: peak } = profile;
  const top = peak ? `, which computes at most ${count(peak)} multiply-accumulates per second: the dark part of a bar is the time at that rate` : "";
  return html`<p><b>${duration(seconds)}</b>${` on ${machine || "its machine"}, ${plural(threads, "thread")}${top}`}</p>`;
}

/** The share of time of each type of code, and a warning if operators spend much time in generated code. */
export function Shares({ explanation: { kinds, seconds, macs, warning } }) {
  if (!seconds) return null;
  return html`
    <ul class="bars kinds">${Object.entries(kinds).map(([type, total]) => html`<li key=${type}>
      <span class="name">${TYPES[type] ?? type}</span>
      <span class="quiet kernel">${macs ? `${(100 * total.macs / macs).toFixed(1)} % of MAC` : ""}</span>
      <${Bar} share=${total.seconds / seconds} kind=${type === "generated" ? "slow" : "good"} />
      <span class="value">${`${(100 * total.seconds / seconds).toFixed(1)} %`}</span>
    </li>`)}</ul>
    ${warning && html`<p class="warning">${warning}</p>`}
  `;
}
