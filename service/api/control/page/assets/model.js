// The view of one model: its versions, and the reports of one build.

import { json, jsonIfAny } from "./api.js";
import { described, isBuilt, isServable, isWantedBy } from "./builds.js";
import { element, h, show } from "./dom.js";
import { ago, bytes, count } from "./format.js";
import { layers } from "./layers.js";
import { aliasesOf } from "./matrix.js";
import { latency } from "./now.js";
import { Pools } from "./pools.js";
import { actions, button } from "./promote.js";
import { remove } from "./remove.js";
import { saturation, saturationOf } from "./saturation.js";
import { TryIt } from "./tryit.js";
import { witnesses } from "./witnesses.js";

const KINDS = { ready: "succeeded", building: "running", failed: "failed", different: "failed", quarantined: "failed" };

export class ModelView {
  #chosen = null; // The name and version of the model.
  #build = null; // The id of the build that is shown.
  #reports = new Map(); // The reports by artifact.
  #tryIt = new TryIt();
  #pools = new Pools();
  #onChosen;
  #onSwitched;

  /**
   * @param {function()} onChosen called when another build is to be shown.
   * @param {function()} onSwitched called when another version is served.
   */
  constructor(onChosen, onSwitched) {
    this.#onChosen = onChosen;
    this.#onSwitched = onSwitched;
    element("build").addEventListener("change", ({ target }) => {
      this.#build = target.value;
      this.#onChosen();
    });
    element("delete-model").addEventListener("click", () => remove(this.#chosen.name, null, () => this.#forget()));
  }

  /** Shows another model; with `focus`, moves the focus to it. */
  choose(name, version, { focus = false } = {}) {
    this.#chosen = { name, version };
    this.#build = null;
    this.#reports.clear(); // the build may have been measured since
    this.#onChosen();
    if (focus) {
      element("model").scrollIntoView({ behavior: "smooth" });
      element("model-title").focus({ preventScroll: true });
    }
  }

  /**
   * Draws everything about the chosen model.
   *
   * @param {Object} known models, index, builds, targets and history.
   */
  async show({ models, index, builds, targets, history }) {
    const host = targets.find((target) => target.host)?.name;
    this.#chosen ??= bestOf(index, builds, models, host);
    const isKnown = models.some((model) => model.name === this.#chosen?.name);
    element("model").hidden = !isKnown;
    if (!isKnown) return;
    const { name, version } = this.#chosen;
    const own = builds.filter((build) => isWantedBy(build, name, version) && isBuilt(build));
    const build = own.find(({ id }) => id === this.#build) ?? own.find(({ target }) => target === host) ?? own[0];
    element("model-title").textContent = `${name} ${version}`;
    element("build-label").hidden = own.length < 2;
    show(element("build"), own.map((each) => h("option", { value: each.id, selected: each === build }, described(each))));
    this.#tryIt.choose(name, version);
    show(element("latency"), latency(history.durations({ model: name, version: String(version) })));
    const pools = this.#pools.show(name, version);
    const [about, { numerics, coverage, explanation, score }, counts] = await Promise.all([aboutOf(name), this.#reportsOf(build), saturationOf(name, version), pools]);
    if (element("model-title").textContent !== `${name} ${version}`) return; // another model has been chosen
    for (const id of ["versions-title", "witnesses-title", "layers-title", "saturation-title", "delete-model"]) (element(id).closest("article") ?? element(id)).hidden = about === null;
    const isOffered = (number) => builds.some((each) => isWantedBy(each, name, number) && isServable(each));
    if (about !== null) show(element("versions"), versions(about, isOffered, {
      onChosen: (chosen) => this.choose(name, chosen, { focus: true }),
      onSwitched: this.#onSwitched,
      onDeleted: () => this.#forget(),
    }));
    show(element("witnesses"), build ? witnesses(numerics, coverage, score) : notBuilt());
    show(element("saturation"), saturation(counts));
    show(element("layers"), build ? layers(explanation, build.artifact) : notBuilt());
  }

  /** Shows another model or version after the chosen one, or one of its versions, was deleted. */
  #forget() {
    this.#chosen = null;
    this.#build = null;
    return this.#onSwitched();
  }

  async #reportsOf(build) {
    if (!build) return {};
    const { artifact } = build;
    if (!this.#reports.has(artifact)) {
      const reports = ["numerics", "coverage", "layers", "score"].map((report) => jsonIfAny(`api/v1/artifacts/${artifact}/${report}`));
      const [numerics, coverage, explanation, score] = await Promise.all(reports);
      this.#reports.set(artifact, { numerics, coverage, explanation, score });
    }
    return this.#reports.get(artifact);
  }
}

/** Returns the API's description of a model; null if the key allows only predictions. */
async function aboutOf(name) {
  try {
    return await json(`api/v1/models/${name}`);
  } catch (error) {
    if (error.status === 403) return null;
    throw error;
  }
}

/** Chooses the version to show first: one that is served, else one that is built (preferably for this machine), else any. */
function bestOf(index, builds, models, host) {
  const ready = index.find(({ state }) => state === "READY");
  if (ready) return { name: ready.name, version: Number(ready.version) };
  const built = builds.filter(isBuilt);
  const build = built.find(({ target }) => target === host) ?? built[0];
  return build ? { name: build.model, version: build.version } : models[0] ?? null;
}

function versions({ name, versions: all, aliases }, isOffered, { onChosen, onSwitched, onDeleted }) {
  return h("ul", { class: "versions" }, all.map(({ version, state, reason, format, size_bytes: size, created_at: created, facts }) => h(
    "li", {},
    h("button", { type: "button", class: "link", id: `version-${version}`, "data-model": name, onclick: () => onChosen(version) }, `version ${version}`),
    aliasesOf(aliases, version).map((alias) => h("span", { class: "tag alias" }, alias)),
    h("span", { class: `state ${KINDS[state] ?? "queued"}` }, state.replaceAll("_", " ")),
    reason && h("div", { class: "quiet" }, reason),
    h("div", { class: "quiet" }, `${format}, ${bytes(size)}, ${ago(created)}`),
    facts && h("div", { class: "quiet" }, `${count(facts.parameters)} parameters, ${count(facts.macs)} multiply-accumulates; ${signature(facts.signature)}`),
    (facts?.floating ?? []).length > 0 && h("div", { class: "quiet" }, inFloat(facts)),
    (facts?.notices ?? []).map((notice) => h("div", { class: "quiet" }, notice)),
    actions(name, version, aliases, isOffered(version), onSwitched),
    all.length > 1 && button(`delete-${version}`, name, `Delete version ${version}`, () => remove(name, version, onDeleted)),
  )));
}

/** The operators that compute in float, by type: the first few, and the share of the multiply-accumulates. */
function inFloat({ floating, macs, integer_macs: integers }) {
  const named = floating.slice(0, 3).map(({ operator, count: times }) => (times > 1 ? `${times} ${operator}` : operator));
  const share = macs ? `, ${(100 * (macs - integers) / macs).toFixed(1)} % of the multiply-accumulates` : "";
  return `in float: ${named.join(", ")}${floating.length > 3 ? ` and ${floating.length - 3} other types` : ""}${share}`;
}

function signature({ inputs, outputs }) {
  const tensors = (all) => all.map(({ name, datatype, shape }) => `${name} ${datatype} [${shape.join(", ")}]`).join(", ");
  return `${tensors(inputs)} → ${tensors(outputs)}`;
}

function notBuilt() {
  return h("p", { class: "quiet" }, "This version has no successful build.");
}
