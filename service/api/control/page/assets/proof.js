// What was found out about an artifact before it was served: its numerics and its coverage.

import { bar, h } from "./dom.js";
import { count } from "./format.js";

/** The numerics report: with what the outputs were compared, and how many values were equal. */
export function proof(numerics, coverage) {
  if (!numerics) return [h("p", { class: "quiet" }, "There is no report.")];
  const verdict = numerics.verified
    ? h("p", { class: "verdict" }, h("span", { class: "state succeeded" }, "proved"), ` equal to ${numerics.reference ?? numerics.mode}`)
    : h("p", { class: "verdict" }, h("span", { class: "state failed" }, "not proved"), ` ${numerics.reason ?? "the outputs are not the expected ones"}`);
  return [
    verdict,
    h("ul", { class: "bars wide" }, (numerics.checks ?? []).map(compared), integers(coverage)),
    (coverage?.floating ?? []).map(({ op, reason }) => h("p", { class: "quiet" }, `${op} computes in float: ${reason}`)),
    formulas(numerics.formulas ?? {}),
  ];
}

function compared(check) {
  const equal = check.equal_percent === 100;
  const off = check.largest_difference === null ? "another shape or type" : `off by at most ${check.largest_difference}`;
  return h(
    "li", {},
    h("span", { class: "name" }, check.against),
    bar(check.equal_percent / 100, equal ? "good" : "bad"),
    h("span", { class: "value" }, `${check.equal_percent} %`),
    h("span", { class: "quiet note" }, `${check.elements.toLocaleString("en")} values from ${check.samples} inputs, ${equal ? "bit for bit" : off}`),
  );
}

function integers(coverage) {
  if (coverage?.integer_percent === undefined) return null;
  return h(
    "li", {},
    h("span", { class: "name" }, "Computed in integers"),
    bar(coverage.integer_percent / 100, "good"),
    h("span", { class: "value" }, `${Number(coverage.integer_percent.toPrecision(4))} %`),
    h("span", { class: "quiet note" }, `of ${count(coverage.macs)} multiply-accumulates`),
  );
}

function formulas(known) {
  const entries = Object.entries(known);
  return entries.length > 0 && h("details", {}, h("summary", {}, "Formulas"), h("dl", {}, entries.map(([name, formula]) => [h("dt", {}, name), h("dd", {}, h("code", {}, formula))])));
}
