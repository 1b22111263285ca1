// The mixtures of layers in integers, 16x8, bfloat16 and float, of which the user can choose one.

import { duration, percent } from "../app/format.js";
import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { Tag } from "../parts/basics.js";

/**
 * @param {Object} ranked the quantization that measured the mixtures, in the API's form.
 * @param {Object} result the quantization that is shown: the same, or one that was chosen from its mixtures.
 * @param {function(Object)} onChoose called with a mixture: the layers `kept` in float, `wide` (16x8) and in `bfloat16`.
 */
export function Mixtures({ ranked: { report, build }, result, onChoose }) {
  const { curve, latency_budget: bound } = report.sensitivity;
  const { keep, wide = [], bfloat16 = [] } = build.options.quantize;
  const known = (mixture) => JSON.stringify(["kept", "wide", "bfloat16"].map((type) => [...(mixture[type] ?? [])].sort()));
  return html`<div class="mixtures">
    <h3>${bound ? "Accuracy by latency" : "Accuracy by the number of layers raised"}</h3>
    <${Lazy} module="quantize/curve.js" load=${() => import("./curve.js")} component="Curve" curve=${curve} inputs=${report.inputs} />
    ${bound && html`<p class="quiet">${within(bound)}</p>`}
    <ol>${curve.map((point) => {
      const all = { kept: [...keep, ...point.kept], wide: [...wide, ...wideOf(point)], bfloat16: [...bfloat16, ...narrowOf(point)] };
      return html`<li key=${known(all)} data-kept=${point.kept.length} data-wide=${wideOf(point).length} data-bfloat16=${narrowOf(point).length}>
        ${`${titleOf(point)}: ${[`${percent(point.share)}`, decibels(point.output_db), ...timeOf(point)].join(", ")} `}
        ${known(all) === known(result.report) ? html`<${Tag}>chosen</${Tag}>` : html`<button type="button" class="plain small" onClick=${() => onChoose(all)}>${`Choose ${titleOf(point)}`}</button>`}
      </li>`;
    })}</ol>
  </div>`;
}

/** Formats a signal-to-noise ratio of a report. */
export function decibels(value) {
  return value === null ? "no noise" : `${value.toFixed(1)} dB`;
}

export function wideOf(point) {
  return point.wide ?? []; // missing in reports of older versions
}

export function narrowOf(point) {
  return point.bfloat16 ?? [];
}

export function titleOf(point) {
  const [floats, wide, narrow] = [point.kept.length, wideOf(point).length, narrowOf(point).length];
  const others = [...(wide ? [`${wide} of 16x8`] : []), ...(narrow ? [`${narrow} in bfloat16`] : [])];
  return [...(floats || !others.length ? [`${floats} in float`] : []), ...others].join(", ");
}

function within({ asked, limit_ms: limit, met, budget_met: enough }) {
  const [bound, lost] = [`${asked} (${duration(limit / 1e3)})`, enough ? "" : " None of them meets the budget for accuracy."];
  return met ? `Mixtures within a latency of ${bound}.${lost}` : `No mixture has a latency within ${bound}.`;
}

function timeOf({ latency_ms: time }) {
  return time === undefined ? [] : [duration(time / 1e3)];
}
