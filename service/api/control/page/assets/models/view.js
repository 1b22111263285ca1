// One version of a model: its title, and a tab for each thing to do with it.

import { json } from "../app/api.js";
import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { may } from "../app/live.js";
import { changeQuery, go, linkTo } from "../app/router.js";
import { useStore } from "../app/store.js";
import { described, isBuilt, isWantedBy, newestFirst } from "../builds/facts.js";
import { Failure, State, Tag, Title } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { aliasesOf, modelsOf, STATES } from "./facts.js";

// The tabs by their part of the address: the title, the scopes of which one is needed, the module, its component.
const TABS = {
  try: ["Try", ["predict"], "try/tab.js", () => import("../try/tab.js"), "TryTab"],
  rollout: ["Versions and rollout", ["read", "push"], "rollout/tab.js", () => import("../rollout/tab.js"), "RolloutTab"],
  accuracy: ["Accuracy and checks", ["read", "push"], "accuracy/tab.js", () => import("../accuracy/tab.js"), "AccuracyTab"],
  layers: ["Layers", ["read", "push"], "layers/tab.js", () => import("../layers/tab.js"), "LayersTab"],
  api: ["API", ["predict", "read", "push"], "try/api-tab.js", () => import("../try/api-tab.js"), "ApiTab"],
};

export function ModelView({ path: [name, version, tab], query }) {
  const state = useStore();
  const model = modelsOf(state).find((each) => each.name === name);
  const reads = may("read", "push");
  // The description changes when the model, one of its aliases, or the state of one of its builds changes.
  const builds = newestFirst(state.builds).filter((build) => build.models.some((each) => each.name === name));
  const about = useRequest(
    () => (model && reads ? json(`api/v1/models/${name}`) : Promise.resolve(null)),
    [name, reads, JSON.stringify(model ?? null), builds.map(({ id, state: of, artifact }) => [id, of, artifact])],
  );
  const known = useKept(name, about.value);
  if (!model) return html`<${Missing} name=${name} isConnected=${state.connection === "open" && state.index !== null} />`;
  const chosen = Number(version) || preferredVersion(model, state.index);
  const tabs = Object.entries(TABS).filter(([, [, scopes]]) => may(...scopes));
  const shown = TABS[tab] ? tab : tabs[0]?.[0];
  const own = builds.filter((build) => isWantedBy(build, name, chosen) && isBuilt(build));
  const host = state.targets.find((target) => target.host)?.name;
  const build = own.find(({ id }) => id === query.get("build")) ?? own.find(({ target }) => target === host) ?? own[0] ?? null;
  const described = known?.versions.find((each) => each.version === chosen) ?? null;
  const properties = { name, version: chosen, model, about: known, described, build, state };
  return html`
    <p class="crumbs"><a href=${linkTo(["models"])}>Models</a> › ${name}</p>
    <${Heading} name=${name} version=${chosen} tab=${shown} known=${known} described=${described} own=${own} build=${build} />
    <nav class="tabs" aria-label="Parts of the model">${tabs.map(([id, [title]]) => html`
      <a key=${id} href=${linkTo(["models", name, chosen, id], { build: query.get("build") })} aria-current=${id === shown ? "page" : null}>${title}</a>`)}
    </nav>
    <${Failure} error=${about.error?.status === 404 ? null : about.error} />
    ${shown && html`<${Lazy} key=${shown} module=${TABS[shown][2]} load=${TABS[shown][3]} component=${TABS[shown][4]} ...${properties} />`}
  `;
}

function Heading({ name, version, tab, known, described: of, own, build }) {
  const choose = ({ target }) => go(["models", name, target.value, tab]);
  const versions = known?.versions ?? [{ version }];
  const aliases = known ? aliasesOf(known.aliases, version) : [];
  return html`<${Title} actions=${html`
      <div class="choices">
        <label>Version <select id="version" onChange=${choose}>${versions.map((each) => html`<option key=${each.version} value=${each.version} selected=${each.version === version}>${each.version}</option>`)}</select></label>
        ${own.length > 1 && html`<label id="build-label">Build <select id="build" onChange=${({ target }) => changeQuery({ build: target.value })}>
          ${own.map((each) => html`<option key=${each.id} value=${each.id} selected=${each === build}>${described(each)}</option>`)}
        </select></label>`}
      </div>`}>
      <span id="model-title">${`${name} ${version}`}</span>
    </${Title}>
    ${of && html`<p class="line">
      <${State} kind=${STATES[of.state] ?? "queued"} word=${of.state.replaceAll("_", " ")} />
      ${aliases.map((alias) => html`<${Tag} key=${alias} kind="alias">${alias}</${Tag}>`)}
      ${of.reason && html`<span class="quiet">${of.reason}</span>`}
    </p>`}`;
}

function Missing({ name, isConnected }) {
  if (!isConnected) return html`<p class="quiet">Loading …</p>`;
  return html`<${Title}>${name}</${Title}><p>There is no model ${name}. <a href=${linkTo(["models"])}>Show all models.</a></p>`;
}

/** Keeps the last description of the same model while a newer one is requested. */
const kept = { name: null, value: null };

function useKept(name, value) {
  if (value !== null || kept.name !== name) Object.assign(kept, { name, value });
  return kept.value;
}

/** The version that requests without a version get: that of the alias "stable", else the newest that answers. */
function preferredVersion(model, index) {
  const stable = model.aliases.find((alias) => alias.name === "stable");
  if (stable) return stable.version;
  const ready = [...index.values()].filter((each) => each.name === model.name && each.state === "READY").map((each) => Number(each.version));
  return ready.length ? Math.max(...ready) : model.version;
}
