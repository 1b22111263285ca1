// The load of the server: figures, and charts over time.

import { count, duration, plural } from "../app/format.js";
import { quantile } from "../app/histogram.js";
import { recent, series } from "../app/history.js";
import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { isOver } from "../builds/facts.js";

const chart = { module: "charts/time.js", load: () => import("../charts/time.js"), component: "TimeChart" };

export function Load({ state }) {
  const points = series();
  const { counts, when } = recent();
  const load = Object.fromEntries(state.load);
  const builds = [...state.builds.values()].filter((build) => !isOver(build));
  const running = builds.filter((build) => build.state === "running").length;
  const invalid = load.invalid ? `, ${count(load.invalid)} with an invalid input` : "";
  return html`<section aria-labelledby="load-title">
    <h2 id="load-title">Load</h2>
    <div class="tiles" id="now">
      <${Tile} title="Answers per second" figure=${rate(points.rate.at(-1) ?? 0)} note=${`${count(load.answered ?? 0)} answered, ${count(load.refused ?? 0)} refused${invalid}`}>
        <${Lazy} ...${chart} points=${points} unit="per second" lines=${[["rate", "answers per second"]]} format=${rate} least=${1} />
      </${Tile}>
      <${Tile} title="Latency" figure=${duration(quantile(counts, 0.5))} note=${`p50; p99 ${duration(quantile(counts, 0.99))}, ${when}`}>
        <${Lazy} ...${chart} points=${points} unit="time" lines=${[["p50", "p50"], ["p99", "p99"]]} format=${duration} least=${0.001} />
      </${Tile}>
      <${Tile} title="Waiting requests" figure=${count(load.waiting ?? 0)} note=${`${count(load.running ?? 0)} being computed`}>
        <${Lazy} ...${chart} points=${points} unit="requests" lines=${[["waiting", "waiting"], ["running", "being computed"]]} format=${count} least=${4} whole=${true} />
      </${Tile}>
      <${Tile} title="Builds" figure=${count(running)} note=${`${plural(running, "build")} running, ${count(builds.length - running)} queued`} />
    </div>
  </section>`;
}

function Tile({ title, figure, note, children }) {
  return html`<div class="card tile"><h3>${title}</h3><p class="figure">${figure}</p>${children}<p class="quiet">${note}</p></div>`;
}

function rate(value) {
  return value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(1);
}
