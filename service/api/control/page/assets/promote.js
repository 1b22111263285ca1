// Promotes a version for all requests or for a share of the requests, and rolls back. The user confirms each action
// first.

import { json } from "./api.js";
import { h } from "./dom.js";
import { question } from "./question.js";

const ALIAS = "stable";

/**
 * Draws the buttons that promote a version, or roll it back.
 *
 * @param {string} model
 * @param {number} version
 * @param {Object[]} aliases the model's aliases.
 * @param {boolean} isBuilt true if the version has a successful build.
 * @param {function()} onDone called when another version is served.
 */
export function actions(model, version, aliases, isBuilt, onDone) {
  const stable = stableOf(aliases);
  const answers = stable?.version === version && !stable.canary;
  return h(
    "div", { class: "actions" },
    isBuilt && !answers && button(`promote-${version}`, model, `Promote version ${version}`, () => promote(model, version, onDone)),
    stable && newest(stable) === version && before(stable) && button("rollback", model, "Roll back", () => rollback(model, onDone)),
  );
}

/** Draws a button that carries its model's name, so that `show` replaces an equal button of another model. */
export function button(id, model, text, onclick) {
  return h("button", { type: "button", class: "plain", id, "data-model": model, onclick }, text);
}

async function promote(model, version, onDone) {
  const stable = await current(model);
  const isCanary = stable?.canary?.version === version;
  question({
    title: `Promote version ${version} of ${model}?`,
    text: stable
      ? `Version ${stable.version} answers ${isCanary ? `${100 - stable.canary.percent} % of the requests now, and version ${version} the others` : "now"}. Requests that are running are completed by the version that they started with.`
      : `From then on, requests that name no version go to the alias "${ALIAS}", and later pushes do not change that.`,
    share: stable && stable.version !== version,
    action: "Promote",
    send: (percent) => post(`api/v1/models/${model}/promote`, { version, percent }),
    onDone,
  });
}

async function rollback(model, onDone) {
  const stable = await current(model);
  question({
    title: `Roll back version ${newest(stable)} of ${model}?`,
    text: `Version ${before(stable)} will answer${stable.canary ? " all requests" : ""} again.`,
    share: false,
    action: "Roll back",
    send: () => post(`api/v1/models/${model}/rollback`, { alias: ALIAS, away_from: newest(stable) }),
    onDone,
  });
}

function post(path, body) {
  return json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** Returns the alias as it is when the dialog opens; the page may show an older state. */
async function current(model) {
  return stableOf((await json(`api/v1/models/${model}/aliases`)).aliases);
}

function stableOf(aliases) {
  return aliases.find(({ name }) => name === ALIAS);
}

/** Returns the version that was promoted last, which a rollback reverts. */
function newest({ version, canary }) {
  return canary?.version ?? version;
}

/** Returns the version to which a rollback would return; undefined if there is none. */
function before({ version, canary, previous }) {
  return canary ? version : previous[0];
}
