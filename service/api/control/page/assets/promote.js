// Which version answers: promoted, in all requests or in some, and taken back. Each is asked about first.

import { json } from "./api.js";
import { h } from "./dom.js";
import { question } from "./question.js";

const ALIAS = "stable";

/**
 * What can be done about who answers for a model, beside the version that it is done to.
 *
 * @param {string} model
 * @param {number} version
 * @param {Object[]} aliases of the model.
 * @param {boolean} isBuilt whether the version has a build that succeeded.
 * @param {function()} onDone called when somebody else answers.
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

/** It names its model: one that looks the same and belongs to another would be kept in its place. */
export function button(id, model, text, onclick) {
  return h("button", { type: "button", class: "plain", id, "data-model": model, onclick }, text);
}

async function promote(model, version, onDone) {
  const stable = await current(model);
  const isCanary = stable?.canary?.version === version;
  question({
    title: `Let version ${version} of ${model} answer?`,
    text: stable
      ? `Version ${stable.version} answers now${isCanary ? `, and version ${version} ${stable.canary.percent} % of the requests` : ""}. Requests under way end where they began.`
      : `From then on "${ALIAS}" answers whoever names no version, whatever is pushed.`,
    share: stable && stable.version !== version,
    action: "Promote",
    send: (percent) => post(`api/v1/models/${model}/promote`, { version, percent }),
    onDone,
  });
}

async function rollback(model, onDone) {
  const stable = await current(model);
  question({
    title: `Take version ${newest(stable)} of ${model} back?`,
    text: `Version ${before(stable)} answers${stable.canary ? " all requests" : ""} again.`,
    share: false,
    action: "Roll back",
    send: () => post(`api/v1/models/${model}/rollback`, { alias: ALIAS, away_from: newest(stable) }),
    onDone,
  });
}

function post(path, body) {
  return json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** What is so when the dialog opens, which may be other than what the page has shown. */
async function current(model) {
  return stableOf((await json(`api/v1/models/${model}/aliases`)).aliases);
}

function stableOf(aliases) {
  return aliases.find(({ name }) => name === ALIAS);
}

/** What was promoted last, and would be taken back. */
function newest({ version, canary }) {
  return canary?.version ?? version;
}

/** Who would answer then; nothing if there is nobody. */
function before({ version, canary, previous }) {
  return canary ? version : previous[0];
}
