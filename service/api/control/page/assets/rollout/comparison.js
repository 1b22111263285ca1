// The versions that answer, side by side: their shares of the requests, latencies and errors.

import { count, duration, percent, plural } from "../app/format.js";
import { quantile, sum } from "../app/histogram.js";
import { recent, series } from "../app/history.js";
import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { newestReady } from "./stable.js";

const chart = { module: "charts/time.js", load: () => import("../charts/time.js"), component: "TimeChart" };

export function Comparison({ name, alias, versions, index }) {
  const answering = answers(name, alias, index).filter(({ version }) => versions.some((each) => each.version === version));
  if (!answering.length) return html`<p class="quiet">No version answers yet.</p>`;
  return html`<div class="tiles" id="comparison">${answering.map(({ version, role, share }) => html`<${Side} key=${version} name=${name} version=${version} role=${role} share=${share} />`)}</div>`;
}

/** The versions that get requests which name none, with their shares in percent. */
function answers(name, alias, index) {
  if (!alias) {
    const newest = newestReady(index, name);
    return newest === null ? [] : [{ version: newest, role: "the newest version that is ready", share: 100 }];
  }
  const { version, canary } = alias;
  if (!canary) return [{ version, role: "stable", share: 100 }];
  return [{ version, role: "stable", share: 100 - canary.percent }, { version: canary.version, role: "canary", share: canary.percent }];
}

function Side({ name, version, role, share }) {
  const key = `${name}/${version}`;
  const { counts, failed, when } = recent(key);
  const all = sum(counts);
  const points = series(key);
  return html`<div class="side" data-version=${version}>
    <h3>${`Version ${version}: ${share} % of the requests`}</h3>
    <p class="quiet">${role}</p>
    ${all === 0 ? html`<p class="quiet">There have been no requests since the server started.</p>` : html`
      <dl class="figures">
        <div><dt>p50</dt><dd>${duration(quantile(counts, 0.5))}</dd></div>
        <div><dt>p99</dt><dd>${duration(quantile(counts, 0.99))}</dd></div>
        <div><dt>errors</dt><dd>${percent(failed / all)}</dd></div>
      </dl>
      <p class="quiet">${`of ${plural(all, "request")}, ${when}; ${count(failed)} failed`}</p>`}
    <h4>Latency</h4>
    <${Lazy} ...${chart} points=${points} unit="latency" lines=${[["p50", "p50"], ["p99", "p99"]]} format=${duration} least=${0.001} />
    <h4>Answers per second</h4>
    <${Lazy} ...${chart} points=${points} unit="answers per second" lines=${[["rate", "per second"]]} format=${count} least=${1} />
  </div>`;
}
