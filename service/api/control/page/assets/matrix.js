// A table of models by targets: the builds for each target, and the versions that are served.

import { described, isOver, isServable, isWantedBy } from "./builds.js";
import { element, h, show } from "./dom.js";

const WORDS = { succeeded: "built", different: "different", failed: "failed", canceled: "canceled", queued: "queued", running: "building" };

/**
 * Draws a row for the newest version of each model, and for each other version that is served or has an alias.
 *
 * @param {Object} known models, index, targets and builds, as the server lists them.
 * @param {function(string, number)} onChosen called with a model and a version.
 */
export function showMatrix({ models, index, targets, builds }, onChosen) {
  if (!models.length) {
    show(element("matrix"), h("p", {}, "There is no model yet. ", h("a", { href: "#push-title" }, "Push one.")));
    return;
  }
  const wanted = new Set([...builds.map((build) => build.target), ...targets.filter((target) => target.host).map((target) => target.name)]);
  const columns = targets.filter((target) => wanted.has(target.name));
  const rows = models.flatMap((model) => versionsOf(model, index).map((version) => row(model, version, { index, columns, builds, onChosen })));
  const head = h("tr", {}, h("th", { scope: "col" }, "Model"), h("th", { scope: "col" }, "Served"), columns.map((target) => (
    h("th", { scope: "col" }, target.name, target.host && h("span", { class: "tag" }, "this machine"))
  )));
  show(element("matrix"), h("table", { class: "matrix" }, h("thead", {}, head), h("tbody", {}, rows)));
}

/** Returns the aliases that refer to a version, such as "stable" or "stable 10 %". */
export function aliasesOf(aliases, version) {
  return aliases.flatMap(({ name, version: stable, canary }) => [
    ...(stable === version ? [canary ? `${name} ${100 - canary.percent} %` : name] : []),
    ...(canary?.version === version ? [`${name} ${canary.percent} %`] : []),
  ]);
}

function versionsOf(model, index) {
  const answering = index.filter((each) => each.name === model.name && each.state === "READY").map((each) => Number(each.version));
  const aliased = model.aliases.flatMap(({ version, canary }) => [version, canary?.version ?? version]);
  return [...new Set([model.version, ...answering, ...aliased])].sort((a, b) => b - a);
}

function row(model, version, { index, columns, builds, onChosen }) {
  const { name } = model;
  const choose = h("button", { type: "button", class: "link", id: `choose-${name}-${version}`, onclick: () => onChosen(name, version) }, name);
  const own = builds.filter((build) => isWantedBy(build, name, version));
  return h(
    "tr", {},
    h("th", { scope: "row" }, choose, h("span", { class: "tag" }, `version ${version}`), aliasesOf(model.aliases, version).map((alias) => h("span", { class: "tag alias" }, alias))),
    h("td", { "data-column": "Served" }, served(index.find((each) => each.name === name && Number(each.version) === version))),
    columns.map(({ name: target }) => cell(target, own.filter((build) => build.target === target))),
  );
}

function served(entry) {
  if (!entry) return h("span", { class: "quiet" }, "–");
  const kinds = { READY: ["ready", "succeeded"], LOADING: ["loading", "running"] };
  const [word, kind] = kinds[entry.state] ?? ["not loaded", "queued"];
  return h("span", { class: `state ${kind}`, title: entry.reason }, word);
}

/** Draws the build of a version for a target: a running one, else a usable one, else the most recent. */
function cell(target, builds) {
  const build = builds.find((each) => !isOver(each)) ?? builds.find(isServable) ?? builds[0];
  if (!build) return h("td", { class: "none quiet" }, "–");
  const more = builds.filter(isServable).length - 1;
  const word = build.invalidated ? "lost" : WORDS[build.state];
  return h(
    "td", { "data-column": target },
    h("span", { class: `state ${build.invalidated ? "failed" : build.state}`, title: described(build) }, word),
    more > 0 && h("span", { class: "quiet" }, ` and ${more} more`),
  );
}
