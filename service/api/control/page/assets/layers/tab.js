// The layers of a build: the graph and the table, coloured by time and linked with each other.

import { jsonIfAny } from "../app/api.js";
import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { changeQuery, useRoute } from "../app/router.js";
import { Card, Failure } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { namesOf } from "./names.js";
import { Shares, Summary } from "./summary.js";
import { LayerTable } from "./table.js";

const MOST_DRAWN = 600; // laying out a larger graph would take seconds

export function LayersTab({ build }) {
  const { value, error, isLoading } = useRequest(() => (build ? jsonIfAny(`api/v1/artifacts/${build.artifact}/layers`) : Promise.resolve(null)), [build?.artifact]);
  const { query } = useRoute();
  const chosen = query.has("layer") ? Number(query.get("layer")) : null;
  const choose = (index) => changeQuery({ layer: index === chosen ? null : index }, { replace: true });
  if (!build) return html`<p class="quiet">This version has no successful build.</p>`;
  if (error) return html`<${Failure} error=${error} />`;
  if (isLoading) return html`<p class="quiet">Loading …</p>`;
  if (!value) return html`<p class="quiet">This artifact has no such report.</p>`;
  const names = namesOf(value.layers);
  return html`
    <${Card} id="layers-summary" title="Time">
      <${Summary} explanation=${value} artifact=${build.artifact} />
      <${Shares} explanation=${value} />
    </${Card}>
    <div class="graph-and-table">
      <${Card} id="graph-card" title="Graph">
        ${value.layers.length > 1 && !value.edges?.length ? html`<p class="quiet">The build comes from an older version of Octet, which did not record how the layers are connected. Push the model again.</p>`
    : value.layers.length > MOST_DRAWN ? html`<p class="quiet">${`A graph of ${value.layers.length} layers is not drawn; the table lists them.`}</p>`
      : html`<${Lazy} module="layers/graph.js" load=${() => import("./graph.js")} component="Graph" explanation=${value} names=${names} chosen=${chosen} onChoose=${choose} />`}
      </${Card}>
      <${Card} id="layers-card" title="Layers">
        <${LayerTable} explanation=${value} names=${names} chosen=${chosen} onChoose=${choose} />
      </${Card}>
    </div>
  `;
}
