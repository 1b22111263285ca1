// Draws which runtimes an artifact's outputs were compared with, and how much of its arithmetic is in integers.

import { count, plural } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar, State } from "../parts/basics.js";
import { Scores } from "./scores.js";

// By the report's outcome: the colour of a dot, and a word. Green means that another runtime ran, and that every
// difference is one that the numerics mode documents.
const VERDICTS = {
  equal: ["succeeded", "equal"],
  documented: ["succeeded", "within documented bounds"],
  different: ["different", "different"],
  own_only: ["running", "own form only"],
  not_checked: ["queued", "not checked"],
};

export function Witnesses({ numerics, coverage, score }) {
  if (!numerics) return html`<p class="quiet">This artifact has no such report.</p>`;
  return html`
    <${Verdict} numerics=${numerics} />
    <ul class="bars wide">
      ${(numerics.witnesses ?? []).map(({ title, ...result }) => html`<${Compared} key=${title} name=${title} result=${result} equal="good" different="slow" />`)}
      ${(numerics.other_sessions ?? []).map(({ name, note, ...result }) => html`<${Compared} key=${name} name=${`For comparison: ${name}, ${note}`} result=${result} equal="plain" different="plain" />`)}
      <${Integers} coverage=${coverage} />
      <${Scores} stored=${score} />
    </ul>
    ${(coverage?.floating ?? []).map(({ op, reason }) => html`<p class="quiet" key=${op}>${`${op} computes in float: ${reason}`}</p>`)}
    ${numerics.reached?.text && html`<p class="quiet">${`The inputs reached ${numerics.reached.text}.`}</p>`}
    <${Deviations} known=${numerics.deviations ?? []} />
    <${Formulas} known=${numerics.formulas ?? {}} />
  `;
}

function Verdict({ numerics: { outcome, summary, accepted } }) {
  const [kind, word] = accepted ? ["running", "different, accepted"] : VERDICTS[outcome] ?? ["queued", "unknown"];
  const text = summary ?? "The report comes from an older version of Octet, and does not list what was compared. Push the model again.";
  return html`<p class="verdict"><${State} kind=${kind} word=${word} /> ${text}</p>`;
}

function Compared({ name, result, equal, different }) {
  const isEqual = result.agrees ?? result.equal === result.values;
  return html`<li>
    <span class="name">${name}</span>
    ${result.ran && html`<${Bar} share=${result.equal / Math.max(result.values, 1)} kind=${isEqual ? equal : different} />`}
    ${result.ran && html`<span class="value">${`${result.equal_percent} %`}</span>`}
    <span class="quiet note">${result.text}</span>
  </li>`;
}

function Integers({ coverage }) {
  if (coverage?.integer_percent === undefined) return null;
  if (coverage.computes) return html`<li><span class="name">Class</span><span class="quiet note">${coverage.computes}</span></li>`;
  return html`<li>
    <span class="name">Computed in integers</span>
    <${Bar} share=${coverage.integer_percent / 100} kind="good" />
    <span class="value">${`${Math.floor(100 * coverage.integer_percent) / 100} %`}</span>
    <span class="quiet note">${`of ${count(coverage.macs)} multiply-accumulates`}</span>
  </li>`;
}

/** The mode's documented deviations: operators of this model that the reference runtime computes differently. */
function Deviations({ known }) {
  return known.length > 0 && html`<details><summary>${plural(known.length, "documented deviation")}</summary><ul>${known.map(({ text }) => html`<li key=${text}>${text}</li>`)}</ul></details>`;
}

function Formulas({ known }) {
  const entries = Object.entries(known);
  return entries.length > 0 && html`<details><summary>Formulas</summary><dl>${entries.map(([name, formula]) => html`<dt key=${name}>${name}</dt><dd><code>${formula}</code></dd>`)}</dl></details>`;
}
