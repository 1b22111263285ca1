// The checks of an artifact, its scores, and the values that live requests cause in it.

import { jsonIfAny } from "../app/api.js";
import { html } from "../app/html.js";
import { Card, Failure } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { Saturation } from "./saturation.js";
import { Witnesses } from "./witnesses.js";

const REPORTS = ["numerics", "coverage", "score"];

export function AccuracyTab({ name, version, build, state }) {
  const reports = useRequest(() => reportsOf(build), [build?.artifact]);
  const sampled = state.latency.get(`${name}/${version}`)?.counts.length ?? 0;
  const counts = useRequest(() => jsonIfAny(`api/v1/models/${name}/saturation?version=${version}`), [name, version, sampled]);
  return html`
    <${Card} id="witnesses-card" title="What it was checked against">
      <div id="witnesses">
        ${!build && html`<p class="quiet">This version has no successful build.</p>`}
        <${Failure} error=${reports.error} />
        ${build && reports.isLoading && html`<p class="quiet">Loading …</p>`}
        ${build && reports.value && html`<${Witnesses} ...${reports.value} />`}
      </div>
    </${Card}>
    <${Card} id="saturation-card" title="Values of live requests">
      <div id="saturation">
        <${Failure} error=${counts.error?.status === 403 ? null : counts.error} />
        ${!counts.isLoading && !counts.error && html`<${Saturation} found=${counts.value} />`}
      </div>
    </${Card}>
  `;
}

async function reportsOf(build) {
  if (!build) return null;
  const found = await Promise.all(REPORTS.map((report) => jsonIfAny(`api/v1/artifacts/${build.artifact}/${report}`)));
  return Object.fromEntries(REPORTS.map((report, place) => [report, found[place]]));
}
