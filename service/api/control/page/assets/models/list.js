// The list of models: the load of the server, and a table of models by targets.

import { html } from "../app/html.js";
import { may } from "../app/live.js";
import { changeQuery, linkTo } from "../app/router.js";
import { useStore } from "../app/store.js";
import { described, isOver, isQuantization, isServable, isWantedBy, newestFirst } from "../builds/facts.js";
import { State, Tag, Title } from "../parts/basics.js";
import { aliasesOf, modelsOf, versionsOf } from "./facts.js";
import { Load } from "./load.js";
import { BrokenFiles, Quarantine } from "./quarantine.js";

const WORDS = { succeeded: "built", different: "different", failed: "failed", canceled: "canceled", queued: "queued", running: "building" };

export function ModelsView() {
  const state = useStore();
  return html`
    <${Title}>Models</${Title}>
    <${Quarantine} held=${[...state.quarantine.values()]} />
    <div id="matrix" class="card"><${Matrix} state=${state} /></div>
    <${BrokenFiles} files=${[...state.broken]} />
    ${may("read", "push") && html`<${Load} state=${state} />`}
  `;
}

/** A row for the newest version of each model, and for each other version that is served or has an alias. */
function Matrix({ state }) {
  const models = modelsOf(state);
  if (!models.length && state.connection !== "open") return html`<p class="quiet">Loading …</p>`;
  if (!models.length) return html`<p>There is no model yet. ${may("push") && html`<button type="button" class="link" onClick=${() => changeQuery({ push: "1" })}>Push one.</button>`}</p>`;
  const builds = newestFirst(state.builds).filter((build) => !isQuantization(build));
  const columns = columnsOf(state.targets, builds);
  return html`<table class="matrix">
    <thead><tr>
      <th scope="col">Model</th><th scope="col">Served</th>
      ${columns.map(({ name, host }) => html`<th key=${name} scope="col">${name}${host && html`<${Tag}>this machine</${Tag}>`}</th>`)}
    </tr></thead>
    <tbody>${models.flatMap((model) => versionsOf(model, state.index).map((version) => html`
      <${Row} key=${`${model.name}/${version}`} model=${model} version=${version} index=${state.index} columns=${columns} builds=${builds} />`))}
    </tbody>
  </table>`;
}

/** The targets that have builds, and this machine's. Before the targets are known, those of the builds. */
function columnsOf(targets, builds) {
  const used = new Set(builds.map((build) => build.target));
  if (!targets.length) return [...used].sort().map((name) => ({ name, host: false }));
  return targets.filter(({ name, host }) => used.has(name) || host);
}

function Row({ model, version, index, columns, builds }) {
  const { name } = model;
  const own = builds.filter((build) => isWantedBy(build, name, version));
  return html`<tr>
    <th scope="row">
      <a id=${`choose-${name}-${version}`} href=${linkTo(["models", name, version])}>${name}</a>
      <${Tag}>version ${version}</${Tag}>
      ${aliasesOf(model.aliases, version).map((alias) => html`<${Tag} key=${alias} kind="alias">${alias}</${Tag}>`)}
    </th>
    <td data-column="Served"><${Served} entry=${index.get(`${name}/${version}`)} /></td>
    ${columns.map(({ name: target }) => html`<${Cell} key=${target} target=${target} builds=${own.filter((build) => build.target === target)} />`)}
  </tr>`;
}

function Served({ entry }) {
  if (!entry) return html`<span class="quiet">–</span>`;
  const kinds = { READY: ["ready", "succeeded"], LOADING: ["loading", "running"] };
  const [word, kind] = kinds[entry.state] ?? ["not loaded", "queued"];
  return html`<${State} kind=${kind} word=${word} title=${entry.reason} />`;
}

/** The build of a version for a target: a running one, else a usable one, else the most recent. */
function Cell({ target, builds }) {
  const build = builds.find((each) => !isOver(each)) ?? builds.find(isServable) ?? builds[0];
  if (!build) return html`<td class="none quiet">–</td>`;
  const more = builds.filter(isServable).length - 1;
  return html`<td data-column=${target}>
    <${State} kind=${build.invalidated ? "failed" : build.state} word=${build.invalidated ? "lost" : WORDS[build.state]} title=${described(build)} />
    ${more > 0 && html`<span class="quiet"> and ${more} more</span>`}
  </td>`;
}
