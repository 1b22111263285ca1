// Draws the result of a prediction in the form of its task.

import { duration, plural } from "../app/format.js";
import { html } from "../app/html.js";
import { Boxes, Mask, MaskLegend, maskOf, Picture } from "./picture-result.js";
import { Classes, classesOf } from "./classes.js";
import { labelsOf, relabelled } from "./labels.js";
import { Outputs } from "./outputs.js";
import { Similarity } from "./similarity.js";
import { Ranking, Spans } from "./text-result.js";

export function Result({ result, took_s: took, about, sample }) {
  const results = result.results ?? [result];
  const labels = about.parameters?.labels ?? [];
  return html`
    <${Form} result=${result} results=${results} about=${about} sample=${sample} labels=${labels} />
    ${results.some((each) => each.truncated) && html`<p class="warning">${`${plural(results.filter((each) => each.truncated).length, "text")} longer than the model's maximum was cut off.`}</p>`}
    <p class="quiet">${`${about.name} in ${duration(took)}, including the network`}</p>
    <details><summary>The response as JSON</summary><pre class="scroll" tabindex="0" role="region" aria-label="The response">${shortened(result)}</pre></details>
  `;
}

function Form({ result, results, about, sample, labels }) {
  const [first] = results;
  if (result.data || (Array.isArray(result.results) && result.results.some((each) => each.relevance_score !== undefined))) {
    return html`<${Ranking} results=${result.results} texts=${sample.texts} />`;
  }
  if (first?.embedding) return html`<${Similarity} vectors=${results.map((each) => each.embedding)} texts=${sample.texts ?? []} />`;
  if (sample.picture) return html`<${OfPicture} result=${first} about=${about} sample=${sample} labels=${labels} />`;
  if (results.length === 1) return html`<${One} result=${first} text=${sample.texts?.[0]} about=${about} />`;
  return html`<ol class="results">${results.map((each, place) => html`<li key=${place}><p class="quiet">${sample.texts?.[place] ?? sample.rows?.[place] ?? `Row ${place + 1}`}</p><${One} result=${each} text=${sample.texts?.[place]} about=${about} /></li>`)}</ol>`;
}

function OfPicture({ result, about, sample, labels }) {
  const mask = result.outputs && maskOf(result.outputs);
  const classes = result.classes ?? (mask ? null : classesOf(result.outputs));
  return html`
    <${Picture} url=${sample.picture}>
      ${result.boxes && html`<${Boxes} boxes=${result.boxes} />`}
      ${mask && html`<${Mask} mask=${mask} />`}
    </${Picture}>
    ${result.boxes && html`<p>${result.boxes.length ? plural(result.boxes.length, "object") : "No object was found."}</p>`}
    ${mask && html`<${MaskLegend} mask=${mask} labels=${labelsOf(about.name) ?? labels} />`}
    ${classes && html`<${Classes} classes=${relabelled(classes, about.name, labels)} />`}
    ${result.boxes?.length > 0 && html`<${Classes} classes=${result.boxes} />`}
    ${result.outputs && !classes && html`<${Outputs} outputs=${result.outputs} />`}
  `;
}

function One({ result, text, about }) {
  const classes = result.classes ?? classesOf(result.outputs);
  if (classes) return html`<${Classes} classes=${relabelled(classes, about.name, about.parameters?.labels ?? [])} />`;
  if (result.spans) return html`<${Spans} spans=${result.spans} text=${text ?? ""} />`;
  if (result.score !== undefined) return html`<p>Score: <b>${result.score.toPrecision(4)}</b></p>`;
  return result.outputs ? html`<${Outputs} outputs=${result.outputs} />` : null;
}

/** The JSON of a result, without most of the numbers of long lists. */
function shortened(result) {
  const shorten = (value) => {
    if (Array.isArray(value) && value.length > 8 && typeof value[0] === "number") return [...value.slice(0, 8), `… ${value.length - 8} more`];
    if (Array.isArray(value)) return value.slice(0, 100).map(shorten);
    if (value !== null && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, shorten(member)]));
    return value;
  };
  return JSON.stringify(shorten(result), null, 2);
}
