// The list of builds, and the progress of running builds.

import { events, json, pages } from "./api.js";
import { bar, element, failure, h, show } from "./dom.js";
import { takesInputs, wayOf } from "./flavours.js";
import { ago, duration } from "./format.js";

const STAGES = ["fetch", "import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"];
const QUANTIZING = ["fetch", "calibrate", "rank", "measure", "publish"];
const QUANTIZING_WITHOUT_INPUTS = ["fetch", "import", "publish"];
const BUILT = ["succeeded", "different"];
const FINAL = [...BUILT, "failed", "canceled"];
// how many builds are followed at once: a browser opens at most six connections, and other requests need some of them
const FOLLOWED = 2;
const SHOWN = 8;
const PAGE = 100;

export function isOver(build) {
  return FINAL.includes(build.state);
}

/** Returns true if the build has an artifact that can be inspected; one that is "different" is not served. */
export function isBuilt(build) {
  return BUILT.includes(build.state) && !build.invalidated && build.artifact !== null;
}

/** Returns true if the build has an artifact that can be served. */
export function isServable(build) {
  return isBuilt(build) && build.state === "succeeded";
}

/** Returns true if the build quantizes a model. */
export function isQuantization(build) {
  return build.options.quantize !== undefined;
}

/** Returns true if the version of a model requested the build; versions with the same file share a build. */
export function isWantedBy({ models }, name, version) {
  return models.some((each) => each.name === name && each.version === version);
}

/** Returns what distinguishes the builds of a version: "x86-64-v3, batch 8". */
export function described(build) {
  const options = Object.entries(build.options).map(([name, value]) => (
    name === "quantize" ? wayOf(value) : `${name.replaceAll("_", " ")} ${JSON.stringify(value)}`
  ));
  return [build.target, ...options].join(", ");
}

export class Builds {
  #all = new Map();
  #courses = new Map(); // by id: the stages of a build that is or was followed
  #following = new Set();
  #onChange;
  #onCost;

  /**
   * @param {function()} onChange called when a running build has progressed.
   * @param {function(Object)} onCost called with a build that quantized, when the user wants to see its result.
   */
  constructor(onChange, onCost) {
    this.#onChange = onChange;
    this.#onCost = onCost;
  }

  /** Returns the builds, newest first. */
  list() {
    return [...this.#all.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  }

  /** Fetches new builds page by page, until a page contains only known builds that have ended. Removes builds of deleted models. */
  async update(options) {
    const open = new Set(this.list().filter((build) => !isOver(build)).map((build) => build.id));
    const before = this.list();
    const seen = new Set();
    let oldest = null; // the oldest of the builds that were shown; null if all were shown
    for await (const page of pages(`api/v1/builds?limit=${PAGE}`, "builds", options)) {
      const news = page.filter((build) => !isOver(build) || !this.#all.has(build.id) || open.has(build.id));
      page.forEach((build) => { this.#all.set(build.id, build); open.delete(build.id); seen.add(build.id); });
      oldest = page.length < PAGE ? null : page.at(-1).created_at;
      if (!news.length && !open.size) break;
    }
    before.filter(({ id, created_at: at }) => !seen.has(id) && (oldest === null || at > oldest)).forEach(({ id }) => this.#all.delete(id));
    this.list().filter((build) => build.state === "running").forEach((build) => this.#follow(build));
  }

  /** Adds a build that was just requested. */
  add(build) {
    this.#all.set(build.id, build);
    if (!isOver(build)) this.#follow(build);
    this.#onChange();
  }

  /** Draws the running and queued builds, and the most recent of those that have ended. */
  show() {
    const [open, over] = [this.list().filter((build) => !isOver(build)), this.list().filter(isOver)];
    const shown = [...open, ...over].slice(0, Math.max(SHOWN, open.length));
    show(element("builds"), shown.length ? h("ul", { class: "builds" }, shown.map((build) => this.#row(build))) : h("p", { class: "quiet" }, "None yet."));
  }

  async #follow(build) {
    if (this.#following.has(build.id) || this.#following.size >= FOLLOWED) return;
    this.#following.add(build.id);
    try {
      for await (const event of events(`api/v1/builds/${build.id}/events`)) {
        this.#take(build.id, event);
        this.#onChange();
      }
      this.#all.set(build.id, await json(`api/v1/builds/${build.id}`));
    } catch {
      // the next update tries again
    } finally {
      this.#following.delete(build.id);
    }
    this.#onChange();
  }

  #take(id, { kind, data }) {
    const course = this.#courses.get(id) ?? { stages: new Map(), fraction: 0 };
    this.#courses.set(id, course);
    if (kind === "state" && data.state === "running") course.stages.clear(); // another attempt
    if (kind === "stage" || kind === "progress") {
      if (!course.stages.has(data.stage)) course.stages.set(data.stage, data.at);
      course.fraction = data.fraction;
      this.#all.set(id, { ...this.#all.get(id), stage: data.stage, progress: data.fraction });
    }
    if (kind === "state") {
      course.ended = FINAL.includes(data.state) ? data.at : undefined;
      this.#all.set(id, { ...this.#all.get(id), state: data.state });
    }
  }

  #row(build) {
    const course = this.#courses.get(build.id);
    return h(
      "li", { "data-build": build.id },
      h("div", { class: "line" },
        h("b", {}, build.models.map(({ name, version }) => `${name} ${version}`).join(", ")), h("span", { class: "quiet" }, described(build)),
        h("span", { class: `state ${build.state}` }, build.state),
        h("span", { class: "quiet end" }, isOver(build) ? `${took(build)}${ago(build.created_at)}` : ""),
      ),
      course?.stages.size ? strip(course, stagesOf(build)) : null,
      isQuantization(build) && build.state === "succeeded" && h("button", { type: "button", class: "plain", "data-build": build.id, onclick: () => this.#onCost(build) }, "Show the result"),
      build.error && failure({ message: build.error.message + placeOf(build.error), hint: build.error.hint }),
    );
  }
}

function stagesOf(build) {
  if (!isQuantization(build)) return STAGES;
  return takesInputs(build.options.quantize) ? QUANTIZING : QUANTIZING_WITHOUT_INPUTS;
}

function placeOf({ stage, op, tensor }) {
  const known = [stage, op, tensor].filter(Boolean).join(", ");
  return known && ` (${known})`;
}

function took({ started_at: started, finished_at: finished }) {
  return started && finished ? `${duration((new Date(finished) - new Date(started)) / 1000)}, ` : "";
}

/** Draws the `known` stages in order, with the times of those that are done and the progress of the current one. */
function strip({ stages, fraction, ended }, known) {
  const begun = [...stages.keys()];
  const names = [...known, ...begun.filter((name) => !known.includes(name))];
  return h("ol", { class: "stages" }, names.map((name) => {
    const index = begun.indexOf(name);
    const next = stages.get(begun[index + 1]) ?? ended;
    if (index < 0) return h("li", {}, name, bar(0));
    if (next) return h("li", { class: "done" }, name, bar(1), h("span", { class: "quiet" }, duration((new Date(next) - new Date(stages.get(name))) / 1000)));
    return h("li", { class: "current", "aria-current": "step" }, name, bar(Math.max(fraction, 0.05), "moving"), h("span", { class: "quiet" }, "…"));
  }));
}
