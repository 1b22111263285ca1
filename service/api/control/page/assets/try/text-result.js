// Results of texts: spans in the text, and documents in the order of their relevance.

import { html } from "../app/html.js";
import { percent } from "../app/format.js";
import { Bar } from "../parts/basics.js";

/** The text with its spans marked, each with its label. Positions count characters (code points). */
export function Spans({ spans, text }) {
  const characters = [...text];
  const parts = [];
  let end = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start)) {
    if (span.start < end) continue; // spans that overlap an earlier one are only in the list
    parts.push(characters.slice(end, span.start).join(""), html`<mark>${characters.slice(span.start, span.end).join("")}<span class="span-label">${span.label}</span></mark>`);
    end = span.end;
  }
  parts.push(characters.slice(end).join(""));
  return html`<p class="spans" id="spans">${parts}</p>
    ${spans.length ? html`<ul>${spans.map((span, place) => html`<li key=${place}>${`${span.label}: ${span.text ?? characters.slice(span.start, span.end).join("")}, ${percent(span.score)}`}</li>`)}</ul>` : html`<p class="quiet">No span was found.</p>`}`;
}

export function Ranking({ results, texts }) {
  const scores = results.map((each) => each.relevance_score);
  const [low, high] = [Math.min(0, ...scores), Math.max(1, ...scores)];
  return html`<ol class="bars wide" id="ranking">${results.map(({ index, relevance_score: score }) => html`<li key=${index}>
    <span class="name">${texts[index]}</span><${Bar} share=${(score - low) / (high - low)} /><span class="value">${score.toPrecision(3)}</span>
  </li>`)}</ol>`;
}
