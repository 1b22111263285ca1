// Artifacts that are no longer run, because the server crashed while running them, and files that cannot be served.

import { element, h, show } from "./dom.js";

/**
 * Draws a paragraph for each artifact.
 *
 * @param {Object[]} held the artifacts, in the API's form.
 * @param {function(string)} onForgiven called with the artifact that is to be released.
 */
export function showQuarantine(held, onForgiven) {
  show(element("quarantine"), held.map(({ artifact, crashes, how, models }) => h(
    "p", {},
    h("span", { class: "state failed" }, "in quarantine"),
    ` ${names(models)}: the server crashed ${crashes.length === 1 ? "once" : `${crashes.length} times`} while it ran (${how}). `,
    h("button", { type: "button", class: "link", id: `forgive-${artifact}`, onclick: () => onForgiven(artifact) }, "Let it run again"),
  )));
}

/** Draws a paragraph for each file of `octet serve --models` that is not served. */
export function showBroken(files) {
  show(element("broken-files"), files.map(({ file, reason }) => h("p", {}, h("span", { class: "state failed" }, "not served"), ` ${file}: ${reason}`)));
}

function names(models) {
  return models.map(({ name, version, target }) => `${name} version ${version} for ${target}`).join(", ") || "an artifact that no model uses";
}
