// The page: polls the server every two seconds while visible, and shows its state.

import { ask, json, pages, Problem, Unreachable } from "./api.js";
import { Builds, isQuantization } from "./builds.js";
import { element, h, show } from "./dom.js";
import { History } from "./history.js";
import { askForKey, key } from "./key.js";
import { showMatrix } from "./matrix.js";
import { ModelView } from "./model.js";
import { showNow } from "./now.js";
import { installPush, showTargets } from "./push.js";
import { Quantizing } from "./quantize.js";
import { showBroken, showQuarantine } from "./quarantine.js";

const EVERY_MS = 2000;
const PATIENCE_MS = 15_000;

const known = { models: [], index: [], targets: [], machine: "", history: new History() };
const builds = new Builds(showBuilds, (build) => { quantizing.open(build); showBuilds(); });
const view = new ModelView(showModel, poll);
const quantizing = new Quantizing(takeBuild, (name, version) => view.choose(name, version, { focus: true }));
let attended = true; // false after the user has dismissed the prompt for a key

async function poll() {
  const options = { unattended: !attended, signal: AbortSignal.timeout(PATIENCE_MS) };
  try {
    const ready = await isReady(options);
    const [metrics, models, index, quarantine, listed] = await allowed([
      ask("metrics", options).then((response) => response.text()),
      all("api/v1/models?limit=200", "models", options),
      json("v2/repository/index", { method: "POST", ...options }),
      json("api/v1/quarantine", options),
      json("api/v1/models?limit=1", options),
      builds.update(options),
    ]);
    if (models === null && index === null) await json("v2/repository/index", { method: "POST", ...options }); // throws the reason
    if (metrics !== null) known.history.add(metrics);
    Object.assign(known, { models: models ?? modelsOf(index ?? []), index: index ?? [] });
    showQuarantine(quarantine?.artifacts ?? [], forgive);
    showBroken(listed?.broken_files ?? []);
    if (!known.targets.length && models !== null) await learnMachine(options);
    for (const id of ["builds-title", "push-title", "quantize-title"]) element(id).parentElement.hidden = models === null;
    say(ready ? "succeeded" : "running", ready ? "ready" : "not ready", models === null ? "This key allows predictions, but does not show builds." : known.machine);
    showNow(known.history);
    showBuilds();
    await showModel();
  } catch (error) {
    explain(error);
  }
}

/** Returns the responses that the key permits, and null for each of the others. Throws any other error. */
async function allowed(asked) {
  const settled = await Promise.allSettled(asked);
  const problem = settled.find(({ reason }) => reason !== undefined && reason.status !== 403);
  if (problem) throw problem.reason;
  return settled.map(({ value }) => value ?? null);
}

/** Converts the protocol's index to models in the API's form. */
function modelsOf(index) {
  return index.map(({ name, version }) => ({ name, version: Number(version), aliases: [] }));
}

async function forgive(artifact) {
  try {
    await ask(`api/v1/quarantine/${artifact}`, { method: "DELETE" });
  } catch (error) {
    explain(error);
  }
  await poll();
}

async function learnMachine(options) {
  const { cpu, targets } = await json("api/v1/targets", options);
  Object.assign(known, { targets, machine: cpu });
  showTargets(targets);
}

async function isReady(options) {
  try {
    await ask("v2/health/ready", options);
    return true;
  } catch (error) {
    if (error.status === 503) return false;
    throw error;
  }
}

async function all(path, member, options) {
  const found = [];
  for await (const page of pages(path, member, options)) found.push(...page);
  return found;
}

function showBuilds() {
  builds.show();
  quantizing.show(builds.list()).catch(explain);
  showMatrix({ ...known, builds: builds.list().filter((build) => !isQuantization(build)) }, (name, version) => view.choose(name, version, { focus: true }));
}

function showModel() {
  return view.show({ ...known, builds: builds.list() }).catch(explain);
}

function say(kind, word, more, ...others) {
  show(element("server"), h("span", { class: `state ${kind}` }, word), h("span", { class: "quiet" }, more), ...others);
}

function explain(error) {
  if (error.status === 401 || error.status === 403) {
    attended = false;
    say("failed", "no access", error.message, h("button", { type: "button", id: "enter-key", onclick: enterKey }, "Enter a key"));
  } else if (error instanceof Unreachable) {
    say("failed", "not reachable", "");
  } else {
    say("failed", "error", error.message);
    if (!(error instanceof Problem)) console.error(error);
  }
}

async function enterKey() {
  attended = await askForKey(key(), "A key with the scope read shows everything.");
  if (attended) await poll();
}

async function watch() {
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

/** Shows a build that was just requested. */
function takeBuild(build) {
  builds.add(build);
  view.choose(build.model, build.version);
}

installPush((build) => {
  takeBuild(build);
  element("builds-title").scrollIntoView({ behavior: "smooth", block: "nearest" });
});
watch();
