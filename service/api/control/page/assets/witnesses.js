// Draws which runtimes an artifact's outputs were compared with, and how much of its arithmetic is in integers.

import { bar, h } from "./dom.js";
import { count } from "./format.js";

// By the report's outcome: the colour of a dot, and a word. Green means that another runtime ran, and that every
// difference is one that the numerics mode documents.
const VERDICTS = {
  equal: ["succeeded", "equal"],
  documented: ["succeeded", "within documented bounds"],
  different: ["different", "different"],
  own_only: ["running", "own form only"],
  not_checked: ["queued", "not checked"],
};

/**
 * Draws the numerics report: the runtimes that computed the same inputs, and the number of equal values; and the score, if
 * `octet evaluate --attach` has stored one.
 */
export function witnesses(numerics, coverage, score) {
  if (!numerics) return [h("p", { class: "quiet" }, "This artifact has no such report.")];
  return [
    verdict(numerics),
    h(
      "ul", { class: "bars wide" },
      (numerics.witnesses ?? []).map(({ title, ...said }) => compared(title, said, "good", "slow")),
      (numerics.other_sessions ?? []).map(({ name, note, ...said }) => compared(`For comparison: ${name}, ${note}`, said, "plain", "plain")),
      integers(coverage),
      scores(score),
    ),
    (coverage?.floating ?? []).map(({ op, reason }) => h("p", { class: "quiet" }, `${op} computes in float: ${reason}`)),
    numerics.reached?.text && h("p", { class: "quiet" }, `The inputs reached ${numerics.reached.text}.`),
    deviations(numerics.deviations ?? []),
    formulas(numerics.formulas ?? {}),
  ];
}

function verdict({ outcome, summary, accepted }) {
  const [kind, word] = accepted ? ["running", "different, accepted"] : VERDICTS[outcome] ?? ["queued", "unknown"];
  const text = summary ?? "The report comes from an older version of Octet, and does not list what was compared. Push the model again.";
  return h("p", { class: "verdict" }, h("span", { class: `state ${kind}` }, word), ` ${text}`);
}

function compared(name, said, equal, different) {
  return h(
    "li", {},
    h("span", { class: "name" }, name),
    said.ran && bar(said.equal / Math.max(said.values, 1), (said.agrees ?? said.equal === said.values) ? equal : different),
    said.ran && h("span", { class: "value" }, `${said.equal_percent} %`),
    h("span", { class: "quiet note" }, said.text),
  );
}

function integers(coverage) {
  if (coverage?.integer_percent === undefined) return null;
  if (coverage.computes) {
    return h("li", {}, h("span", { class: "name" }, "Class"), h("span", { class: "quiet note" }, coverage.computes));
  }
  return h(
    "li", {},
    h("span", { class: "name" }, "Computed in integers"),
    bar(coverage.integer_percent / 100, "good"),
    h("span", { class: "value" }, `${Math.floor(100 * coverage.integer_percent) / 100} %`),
    h("span", { class: "quiet note" }, `of ${count(coverage.macs)} multiply-accumulates`),
  );
}

/** Draws each metric of a stored score. The score is a statement, or a signed envelope with the statement as payload. */
function scores(stored) {
  if (!stored) return null;
  const signed = stored.payload === undefined ? "not signed" : "signed";
  try {
    const statement = stored.payload === undefined ? stored : JSON.parse(text(stored.payload));
    return lines(statement.predicate, signed);
  } catch { // a score that a registry delivered was not checked
    return h("li", {}, h("span", { class: "quiet note" }, "The stored score cannot be read."));
  }
}

function lines({ metrics, data, evaluator }, signed) {
  return Object.entries(metrics).map(([name, { value, low, high }]) => h(
    "li", {},
    h("span", { class: "name" }, name),
    value >= 0 && value <= 1 && bar(value, "plain"),
    h("span", { class: "value" }, rounded(value)),
    h("span", { class: "quiet note" }, `${rounded(low)} to ${rounded(high)}, on ${count(data.inputs)} inputs of ${data.name}; ${signed}, ${evaluator.id}`),
  ));
}

function text(base64) {
  return new TextDecoder().decode(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
}

function rounded(value) {
  return String(Number(value.toPrecision(3)));
}

/** Draws the mode's documented deviations: operators of this model that the reference runtime computes differently. */
function deviations(known) {
  return known.length > 0 && h("details", {}, h("summary", {}, "Documented deviations"), h("ul", {}, known.map(({ text }) => h("li", {}, text))));
}

function formulas(known) {
  const entries = Object.entries(known);
  return entries.length > 0 && h("details", {}, h("summary", {}, "Formulas"), h("dl", {}, entries.map(([name, formula]) => [h("dt", {}, name), h("dd", {}, h("code", {}, formula))])));
}
