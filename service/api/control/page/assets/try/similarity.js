// Embeddings: the cosine of the angle between the vectors of each two texts.

import { html } from "../app/html.js";
import { significant } from "../app/format.js";

export function Similarity({ vectors, texts }) {
  if (vectors.length === 1) return html`<p>${`A vector of ${vectors[0].length} numbers: ${vectors[0].slice(0, 4).map(significant).join(", ")}, …`}</p><p class="quiet">Type several lines to compare them.</p>`;
  const cosines = vectors.map((one) => vectors.map((other) => cosine(one, other)));
  return html`
    <div class="sideways" tabindex="0" role="region" aria-label="Similarities">
      <table class="similarity" id="similarity">
        <caption class="quiet">${`Cosine similarity of ${vectors.length} texts, vectors of ${vectors[0].length} numbers`}</caption>
        <thead><tr><td></td>${vectors.map((_, column) => html`<th key=${column} scope="col" title=${texts[column]}>${column + 1}</th>`)}</tr></thead>
        <tbody>${cosines.map((row, place) => html`<tr key=${place}>
          <th scope="row"><b>${place + 1}</b> ${texts[place]}</th>
          ${row.map((value, column) => html`<td key=${column} style=${{ "--share": Math.max(0, value) }}>${(Math.abs(value) < 0.005 ? 0 : value).toFixed(2)}</td>`)}
        </tr>`)}</tbody>
      </table>
    </div>
  `;
}

function cosine(one, other) {
  const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
  return dot(one, other) / (Math.sqrt(dot(one, one) * dot(other, other)) || 1);
}
