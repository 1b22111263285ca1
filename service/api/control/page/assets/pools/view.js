// The pools: the workers of a cluster, and a model version on each pool.

import { html } from "../app/html.js";
import { json } from "../app/api.js";
import { plural } from "../app/format.js";
import { go } from "../app/router.js";
import { useStore } from "../app/store.js";
import { modelsOf, versionsOf } from "../models/facts.js";
import { Card, Failure, State, Title } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { PoolTable } from "./table.js";

export function PoolsView({ path: [name, version] }) {
  const state = useStore();
  const models = modelsOf(state);
  const model = models.find((each) => each.name === name) ?? models.find(({ name: each }) => [...state.index.values()].some((served) => served.name === each && served.state === "READY")) ?? models[0];
  const workers = useRequest(() => json("api/v1/workers"), []);
  const versions = model ? versionsOf(model, state.index) : [];
  const chosen = Number(version) || versions[0];
  return html`
    <${Title}>Pools</${Title}>
    <${Card} id="pools-card" title="A model on each pool">
      ${!model ? html`<p class="quiet">There is no model yet.</p>` : html`
        <div class="choices">
          <label>Model <select id="pools-model" onChange=${({ target }) => go(["pools", target.value])}>${models.map((each) => html`<option key=${each.name} selected=${each === model}>${each.name}</option>`)}</select></label>
          <label>Version <select id="pools-version" onChange=${({ target }) => go(["pools", model.name, target.value])}>${[...new Set([...versions, chosen])].map((each) => html`<option key=${each} selected=${each === chosen}>${each}</option>`)}</select></label>
        </div>
        <${PoolTable} key=${`${model.name}/${chosen}`} name=${model.name} version=${chosen} />`}
    </${Card}>
    <${Card} id="workers-card" title="Workers">
      <${Failure} error=${workers.error} />
      <ul>${(workers.value?.workers ?? []).map((worker) => html`<li key=${worker.id} class="line">
        <${State} kind=${worker.refused ? "failed" : "succeeded"} word=${worker.refused ?? worker.state} />
        <b>${worker.host}</b> <span class="quiet">${[worker.kind, worker.pool, worker.target, plural(worker.loaded.length, "model in memory", "models in memory")].filter(Boolean).join(", ")}</span>
      </li>`)}</ul>
      ${workers.value && !workers.value.workers.length && html`<p class="quiet">No worker has reported. A server by itself computes without workers.</p>`}
    </${Card}>
  `;
}
