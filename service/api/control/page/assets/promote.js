// Which version answers: promoted, in all requests or in some, and taken back. Each is asked about first.

import { json } from "./api.js";
import { element, failure, h, show } from "./dom.js";

const ALIAS = "stable";
const ALL = 100;

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
function button(id, model, text, onclick) {
  return h("button", { type: "button", class: "plain", id, "data-model": model, onclick }, text);
}

async function promote(model, version, onDone) {
  const stable = await current(model);
  const isCanary = stable?.canary?.version === version;
  ask({
    title: `Let version ${version} of ${model} answer?`,
    text: stable
      ? `Version ${stable.version} answers now${isCanary ? `, and version ${version} ${stable.canary.percent} % of the requests` : ""}. Requests under way end where they began.`
      : `From then on "${ALIAS}" answers whoever names no version, whatever is pushed.`,
    share: stable && stable.version !== version,
    action: "Promote",
    send: (percent) => [`api/v1/models/${model}/promote`, { version, percent }],
    onDone,
  });
}

async function rollback(model, onDone) {
  const stable = await current(model);
  ask({
    title: `Take version ${newest(stable)} of ${model} back?`,
    text: `Version ${before(stable)} answers${stable.canary ? " all requests" : ""} again.`,
    share: false,
    action: "Roll back",
    send: () => [`api/v1/models/${model}/rollback`, { alias: ALIAS, away_from: newest(stable) }],
    onDone,
  });
}

/** The dialog, which stays until it is done or dismissed; what the server refuses, it says there. */
function ask({ title, text, share, action, send, onDone }) {
  const dialog = element("promote-dialog");
  const percent = element("promote-percent");
  element("promote-title").textContent = title;
  element("promote-text").textContent = text;
  element("promote-share").hidden = !share;
  percent.disabled = !share;
  percent.value = ALL;
  show(element("promote-problem"));
  const confirm = element("promote-confirm");
  confirm.textContent = action;
  confirm.disabled = false;
  element("promote-form").onsubmit = async (event) => {
    if (event.submitter !== confirm) return;
    event.preventDefault();
    confirm.disabled = true;
    try {
      const [path, body] = send(share ? Number(percent.value) : ALL);
      await json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      dialog.close();
      await onDone();
    } catch (error) {
      show(element("promote-problem"), failure(error));
      confirm.disabled = false;
    }
  };
  dialog.showModal();
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
