// One build: its state, its error, its options and its log.

import { ask, json, send } from "../app/api.js";
import { html } from "../app/html.js";
import { may } from "../app/live.js";
import { changeQuery } from "../app/router.js";
import { Card, Failure, Title } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { useState } from "../vendor/hooks.js";
import { isOver } from "./facts.js";
import { Row } from "./row.js";

export function Build({ id, listed }) {
  const { value, error } = useRequest(() => json(`api/v1/builds/${id}`), [id, listed?.state]);
  const [problem, setProblem] = useState(null);
  const build = listed ?? (value && { course: null, ...value });
  const log = useRequest(() => ask(`api/v1/builds/${id}/log`).then((response) => response.text()), [id, listed?.state, listed?.stage]);
  if (!build) return error ? html`<${Title}>Build</${Title}><${Failure} error=${error} />` : html`<p class="quiet">Loading …</p>`;
  const cancel = () => send("POST", `api/v1/builds/${id}/cancel`, {}).catch(setProblem);
  return html`
    <${Title} actions=${!isOver(build) && may("push") && html`<button type="button" class="plain small" onClick=${cancel}>Cancel</button>`}>${`Build of ${build.model} ${build.version}`}</${Title}>
    <${Failure} error=${problem} />
    <div class="card"><ul class="builds"><${Row} build=${build} isAlone=${true} /></ul>
      ${build.state === "failed" && may("push") && html`<p><button type="button" class="small" onClick=${() => changeQuery({ push: "1", name: build.model })}>Push a repaired file</button></p>`}
    </div>
    <${Card} id="build-facts" title="Options">
      <dl class="facts">
        <div><dt>Numerics</dt><dd>${build.numerics}</dd></div>
        <div><dt>Target</dt><dd>${build.target}</dd></div>
        ${Object.entries(build.options).map(([name, option]) => html`<div key=${name}><dt>${name.replaceAll("_", " ")}</dt><dd><code>${JSON.stringify(option)}</code></dd></div>`)}
        <div><dt>Source</dt><dd><code>${build.source}</code></dd></div>
        ${build.artifact && html`<div><dt>Artifact</dt><dd><code>${build.artifact}</code></dd></div>`}
      </dl>
    </${Card}>
    <${Card} id="log-card" title="Log">
      ${log.value ? html`<pre class="scroll" tabindex="0" id="log" role="region" aria-label="Log">${log.value}</pre>` : html`<p class="quiet">${log.isLoading ? "Loading …" : "The build has logged nothing."}</p>`}
    </${Card}>
  `;
}
