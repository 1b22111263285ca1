// How programs use the model version: its inputs and outputs, its addresses, and requests as code.

import { json, ROOT } from "../app/api.js";
import { html } from "../app/html.js";
import { silenceOf } from "../models/facts.js";
import { Card, Failure } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { Snippets } from "./snippets.js";
import { inputsOf } from "./tasks.js";

export function ApiTab({ name, version, described, state }) {
  const silence = silenceOf(state, name, version);
  const { value: about, error } = useRequest(() => (silence === null ? json(`v2/models/${name}/versions/${version}`) : Promise.resolve(null)), [name, version, silence]);
  const task = about?.parameters?.task ?? null;
  return html`
    <${Failure} error=${error} />
    ${about && html`
      <${Snippets} name=${name} version=${version} request=${null} kind=${inputsOf(about)[0]} />
      <${Card} id="signature" title="Inputs and outputs">
        <table class="matrix"><thead><tr><th scope="col">Tensor</th><th scope="col">Type</th><th scope="col">Shape</th><th scope="col">Real value</th></tr></thead>
          <tbody>${[["input", about.inputs], ["output", about.outputs]].flatMap(([side, tensors]) => tensors.map((tensor) => html`<tr key=${`${side}/${tensor.name}`}>
            <th scope="row"><b>${tensor.name}</b> <span class="quiet">${side}</span></th>
            <td data-column="Type">${tensor.datatype}</td>
            <td data-column="Shape">${`[${tensor.shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]`}</td>
            <td data-column="Real value">${tensor.parameters?.scale === undefined ? "as stored" : `${Number(tensor.parameters.scale.toPrecision(4))} × (stored − ${tensor.parameters.zero_point})`}</td>
          </tr>`))}</tbody>
        </table>
        ${task && html`<p>Task: <b>${task}</b></p>`}
        ${described?.metadata?.labels?.length > 0 && html`<p class="quiet">${`${described.metadata.labels.length} labels: ${described.metadata.labels.slice(0, 5).join(", ")}${described.metadata.labels.length > 5 ? ", …" : ""}`}</p>`}
      </${Card}>`}
    <${Card} id="addresses" title="Addresses">
      <dl class="facts">
        <div><dt>By task, in real values</dt><dd><code>${`POST ${at(`api/v1/models/${name}/predict`)}`}</code></dd></div>
        <div><dt>Open Inference Protocol (Triton, KServe)</dt><dd><code>${`POST ${at(`v2/models/${name}/infer`)}`}</code></dd></div>
        ${task === "embed" && html`<div><dt>OpenAI's form</dt><dd><code>${`POST ${at("v1/embeddings")}`}</code></dd></div>`}
        <div><dt>This version</dt><dd><code>${at(`v2/models/${name}/versions/${version}`)}</code></dd></div>
        ${described && html`<div><dt>Model file</dt><dd><code>${described.source}</code></dd></div>`}
        ${described?.artifact && html`<div><dt>Artifact</dt><dd><code>${described.artifact}</code></dd></div>`}
      </dl>
      <p><a href="docs">Reference of the API</a></p>
    </${Card}>
  `;
}

function at(path) {
  return new URL(path, ROOT).href;
}
