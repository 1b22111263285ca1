// The chart of accuracy by the layers in larger types, or by the latency, with error bars.

import { axis, Plot } from "../charts/plot.js";
import { percent } from "../app/format.js";
import { html } from "../app/html.js";
import { narrowOf, titleOf, wideOf } from "./mixtures.js";
import { BFLOAT16, ERROR_TITLE, FLOAT, LATENCY_TITLE, LAYERS_TITLE, MIXED, SERIES, WIDE } from "./series.js";

const HEIGHT = 200;

/**
 * @param {Object[]} curve the mixtures, in the API's form.
 * @param {number} inputs the number of inputs on which they were measured.
 */
export function Curve({ curve, inputs }) {
  const isTimed = curve.every(({ latency_ms: time }) => time !== undefined);
  const across = (point) => (isTimed ? point.latency_ms : point.kept.length + wideOf(point).length + narrowOf(point).length);
  const points = [...curve].sort((a, b) => across(a) - across(b));
  const names = Object.keys(SERIES).filter((name) => points.some((point) => typesOf(point).includes(name)));
  const data = [points.map(across), ...names.map((name) => points.map((point) => (typesOf(point).includes(name) ? point.share : null)))];
  const label = `Accuracy of ${points.length} mixtures: ${points.map((point) => `${titleOf(point)} ${percent(point.share)} ± ${(100 * errorOf(point.share, inputs)).toFixed(1)}`).join("; ")}`;
  const options = (colour) => ({
    scales: { x: { time: false, range: (_, low, high) => padded(low, high) }, y: { range: (_, low, high) => padded(Math.max(0, low - errorOf(low, inputs)), Math.min(1, high + errorOf(high, inputs))) } },
    axes: [
      axis(colour, { label: isTimed ? LATENCY_TITLE : LAYERS_TITLE, labelSize: 18, size: 26, ...(isTimed ? {} : { incrs: [1, 2, 5, 10, 20, 50, 100] }), values: (_, ticks) => ticks.map((tick) => (isTimed ? `${Number(tick.toPrecision(3))} ms` : Number.isInteger(tick) ? tick : "")) }),
      axis(colour, { size: 58, values: (_, ticks) => ticks.map((tick) => `${Number((100 * tick).toPrecision(4))} %`) }),
    ],
    series: [{}, ...names.map((name) => {
      const [variable, isLine] = SERIES[name];
      return { label: name, stroke: colour(variable), width: 2, spanGaps: true, ...(isLine ? {} : { paths: () => null }), points: { show: true, size: 7, fill: colour(variable) } };
    })],
    hooks: { draw: [(plot) => drawErrors(plot, points.map((point) => [across(point), point.share, errorOf(point.share, inputs)]), colour("--quiet"))] },
  });
  return html`
    <${Plot} options=${options} data=${data} label=${label} height=${HEIGHT} shape=${label} />
    <p class="legend">${names.map((name) => html`<span key=${name} class=${`series-${Object.keys(SERIES).indexOf(name)}`}>${name}</span>`)} <span class="quiet">${ERROR_TITLE}</span></p>
  `;
}

/** The series of a point; the mixture without larger types is on both lines. */
function typesOf(point) {
  const [floats, wide, narrow] = [point.kept.length, wideOf(point).length, narrowOf(point).length];
  if (narrow) return [BFLOAT16];
  if (floats && wide) return [MIXED];
  if (wide) return [WIDE];
  return floats ? [FLOAT] : [FLOAT, WIDE];
}

/** The standard error of a share of `inputs`. */
function errorOf(share, inputs) {
  return inputs ? Math.sqrt((share * (1 - share)) / inputs) : 0;
}

function padded(low, high) {
  const margin = (high - low || 1e-2) * 0.08;
  return [low - margin, high + margin];
}

function drawErrors(plot, points, colour) {
  const context = plot.ctx;
  context.save();
  context.strokeStyle = colour;
  context.lineWidth = devicePixelRatio;
  for (const [x, share, error] of points) {
    const [left, top, bottom] = [plot.valToPos(x, "x", true), plot.valToPos(share + error, "y", true), plot.valToPos(share - error, "y", true)];
    const cap = 4 * devicePixelRatio;
    context.beginPath();
    for (const [fromX, fromY, toX, toY] of [[left, top, left, bottom], [left - cap, top, left + cap, top], [left - cap, bottom, left + cap, bottom]]) {
      context.moveTo(fromX, fromY);
      context.lineTo(toX, toY);
    }
    context.stroke();
  }
  context.restore();
}
