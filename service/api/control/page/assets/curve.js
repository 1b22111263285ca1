// The mixtures of layers in integers, 16x8, bfloat16 and float, of which the user can choose one.

import { h, svg } from "./dom.js";
import { duration, percent } from "./format.js";

const [WIDTH, HEIGHT] = [240, 80];

/**
 * Draws the curve, and a row for each of its points.
 *
 * @param {Object} ranked the quantization that measured the mixtures, in the API's form.
 * @param {Object} result the quantization that is shown: the same, or one that was chosen from its mixtures.
 * @param {function(Object)} choose called with a mixture: the layers `kept` in float, `wide` (16x8) and in `bfloat16`.
 */
export function mixtures({ report, build }, result, choose) {
  const { curve, latency_budget: bound } = report.sensitivity;
  const { keep, wide = [], bfloat16 = [] } = build.options.quantize;
  const known = (mixture) => JSON.stringify(["kept", "wide", "bfloat16"].map((kind) => [...(mixture[kind] ?? [])].sort()));
  const narrow = curve.some((point) => narrowOf(point).length);
  return h(
    "div", { class: "mixtures" },
    h("h3", {}, bound ? "Accuracy by latency" : "Accuracy by the number of layers raised"),
    plot(curve),
    h("p", { class: "quiet" }, h("span", { class: "in-float" }, "● in float"), narrow ? h("span", { class: "in-bfloat16" }, " ● in bfloat16") : [h("span", { class: "of-16x8" }, " ● of 16x8"), " (8-bit weights, 16-bit activations)"]),
    bound && h("p", { class: "quiet" }, within(bound)),
    h("ol", {}, curve.map((point) => {
      const all = { kept: [...keep, ...point.kept], wide: [...wide, ...wideOf(point)], bfloat16: [...bfloat16, ...narrowOf(point)] };
      return h(
        "li", { "data-kept": point.kept.length, "data-wide": wideOf(point).length, "data-bfloat16": narrowOf(point).length },
        `${named(point)}: ${[percent(point.share), decibels(point.output_db), ...taken(point)].join(", ")} `,
        known(all) === known(result.report) ? h("span", { class: "tag" }, "chosen") : h("button", { type: "button", class: "plain", "data-curve": build.id, onclick: () => choose(all) }, `Choose ${named(point)}`),
      );
    })),
  );
}

/** Formats a signal-to-noise ratio of a report. */
export function decibels(value) {
  return value === null ? "no noise" : `${value.toFixed(1)} dB`;
}

function within({ asked, limit_ms: limit, met, budget_met: enough }) {
  const [bound, lost] = [`${asked} (${duration(limit / 1e3)})`, enough ? "" : " None of them meets the budget for accuracy."];
  return met ? `Mixtures within a latency of ${bound}.${lost}` : `No mixture has a latency within ${bound}.`;
}

function taken({ latency_ms: time }) {
  return time === undefined ? [] : [duration(time / 1e3)];
}

function wideOf(point) {
  return point.wide ?? []; // missing in reports of older versions
}

function narrowOf(point) {
  return point.bfloat16 ?? [];
}

function named(point) {
  const [floats, wide, narrow] = [point.kept.length, wideOf(point).length, narrowOf(point).length];
  const others = [...(wide ? [`${wide} of 16x8`] : []), ...(narrow ? [`${narrow} in bfloat16`] : [])];
  return [...(floats || !others.length ? [`${floats} in float`] : []), ...others].join(", ");
}

/**
 * Draws a line through the mixtures with float layers only, a line through those with 16x8 layers only, and dots for the
 * others. The horizontal axis is the latency if it was measured, else the number of layers that are not in int8.
 */
function plot(curve) {
  const count = (point) => point.latency_ms ?? point.kept.length + wideOf(point).length + narrowOf(point).length;
  const least = Math.min(...curve.map(count));
  const most = Math.max(...curve.map(count));
  const shares = curve.map(({ share }) => share);
  const [low, high] = [Math.min(...shares), Math.max(...shares)];
  const place = (point) => [10 + (WIDTH - 20) * (most > least ? (count(point) - least) / (most - least) : 0), HEIGHT - 10 - (HEIGHT - 20) * (high > low ? (point.share - low) / (high - low) : 1)];
  const line = (points, kind) => svg("polyline", { class: kind, points: [...points].sort((a, b) => count(a) - count(b)).map((point) => place(point).join(",")).join(" ") });
  const kindOf = (point) => (narrowOf(point).length ? "in-bfloat16" : wideOf(point).length ? "of-16x8" : "in-float");
  return svg(
    "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": `From ${percent(low)} to ${percent(high)}` },
    line(curve.filter((point) => !point.kept.length && !narrowOf(point).length), "of-16x8"),
    line(curve.filter((point) => kindOf(point) === "in-float"), "in-float"),
    curve.map((point) => {
      const [x, y] = place(point);
      return svg("circle", { class: kindOf(point), cx: x, cy: y, r: 3 }, svg("title", {}, `${named(point)}: ${[percent(point.share), ...taken(point)].join(", ")}`));
    }),
  );
}
