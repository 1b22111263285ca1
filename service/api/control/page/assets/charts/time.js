// A chart over the last minutes.

import { KEPT_S } from "../app/history.js";
import { html } from "../app/html.js";
import { axis, Plot } from "./plot.js";

const COLOURS = ["--accent", "--second", "--good", "--bad"];
const AXIS_PX = 58;
const SHOWN_S = KEPT_S / 2;

/**
 * A chart over the last five minutes.
 *
 * @param {Object} points the series of `history.series`.
 * @param {[string, string][]} lines the members of `points` to draw, each with its name.
 * @param {string} unit the unit of the vertical axis.
 * @param {function(number): string} format formats a value of the vertical axis.
 * @param {number} least the least value at the top of the vertical axis.
 * @param {boolean} whole true if only whole numbers make sense.
 */
export function TimeChart({ points, lines, unit, format, least, whole = false }) {
  const now = Date.now() / 1000;
  const data = [points.at.map((at) => at - now), ...lines.map(([member]) => points[member])];
  const latest = lines.map(([member, name]) => `${name} ${format(points[member].findLast((value) => value !== null) ?? 0)}`).join(", ");
  const options = (colour) => ({
    cursor: { y: false, points: { size: 5 } },
    scales: {
      x: { time: false, range: () => [-SHOWN_S, 0] },
      y: { range: (_, low, high) => [0, Math.max(high ?? 0, least) * 1.1] },
    },
    axes: [
      axis(colour, { space: 45, size: 24, incrs: [60, 120, 300], values: (_, ticks) => ticks.map((tick) => (tick === -SHOWN_S ? "" : ago(tick))) }),
      axis(colour, { space: 28, size: AXIS_PX, ...(whole ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] } : {}), values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : format(tick))) }),
    ],
    series: [{}, ...lines.map(([, name], index) => ({ label: name, stroke: colour(COLOURS[index]), width: 2, spanGaps: true, points: { show: points.at.length < 3 } }))],
  });
  const legend = lines.length > 1 && html`<p class="legend">${lines.map(([member, name], index) => html`<span key=${member} class=${`line-${index}`}>${name}</span>`)}</p>`;
  return html`<${Plot} options=${options} data=${data} label=${`${unit} over the last ${SHOWN_S / 60} minutes; now ${latest}`} shape=${JSON.stringify(lines)} />${legend}`;
}

function ago(seconds) {
  return seconds === 0 ? "now" : `−${-seconds / 60} min`;
}
