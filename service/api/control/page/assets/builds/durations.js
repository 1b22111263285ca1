// The chart of how long builds took.

import { duration } from "../app/format.js";
import { html } from "../app/html.js";
import { axis, Plot } from "../charts/plot.js";

// The series: the states of their builds, and their colours.
const SERIES = { succeeded: "--accent", different: "--second", failed: "--bad", canceled: "--quiet" };

/** @param {Object[]} builds builds that have ended. */
export function Durations({ builds }) {
  const points = builds.filter(({ started_at: started, finished_at: finished }) => started && finished)
    .map((build) => ({ state: build.state, at: Date.parse(build.finished_at) / 1000, took: (Date.parse(build.finished_at) - Date.parse(build.started_at)) / 1000 }))
    .sort((a, b) => a.at - b.at);
  if (points.length < 2) return null;
  const states = Object.keys(SERIES).filter((state) => points.some((point) => point.state === state));
  const data = [points.map(({ at }) => at), ...states.map((state) => points.map((point) => (point.state === state ? point.took : null)))];
  const longest = Math.max(...points.map(({ took }) => took));
  const spread = Math.max(points.at(-1).at - points[0].at, 60);
  const options = (colour) => ({
    scales: { x: { range: (_, low, high) => [low - 0.04 * spread, high + 0.04 * spread] }, y: { range: () => [0, longest * 1.1] } },
    axes: [
      axis(colour, { space: 110, size: 24, values: (_, ticks) => ticks.map((tick) => moment(tick, spread)) }),
      axis(colour, { space: 28, size: 58, values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : duration(tick))) }),
    ],
    series: [{}, ...states.map((state) => ({ label: state, stroke: colour(SERIES[state]), width: 0, paths: () => null, points: { show: true, size: 7, fill: colour(SERIES[state]) } }))],
  });
  return html`
    <${Plot} options=${options} data=${data} label=${`Durations of ${points.length} builds; the longest took ${duration(longest)}`} height=${150} shape=${states.join()} />
    <p class="legend">${states.map((state) => html`<span key=${state} class=${`build-${state}`}>${state}</span>`)}</p>
  `;
}

/** Formats a time: "14:05" within a day, or else "28 Nov, 14:05". */
function moment(at, spread) {
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(1000 * at).toLocaleString("en-GB", spread < 86400 ? time : { day: "numeric", month: "short", ...time });
}
