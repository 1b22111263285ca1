// JSON as the input: the real values of each input, by name, or any other form that the API takes.

import { html } from "../app/html.js";
import { FileField, useTextFile } from "../parts/files.js";
import { request } from "./predict.js";

const MOST_SHOWN = 256; // larger inputs have no example with all of their numbers

export function JsonInput({ name, version, about, onSend }) {
  const { text, setText, file, load } = useTextFile(() => exampleOf(about));
  function send(event) {
    event.preventDefault();
    onSend({ request: request(name, version, { body: text, type: "application/json", file: file?.name ?? null }) });
  }
  return html`<form id="json-form" onSubmit=${send}>
    <p class="quiet">${about.inputs.map(({ name: input, datatype, shape }) => `${input} ${datatype} [${shape.join(", ")}]`).join(", ")}. Numbers are real values.</p>
    <label>JSON with text, values, inputs or rows <textarea id="json" rows="10" class="code" required value=${text} onInput=${({ target }) => setText(target.value)}></textarea></label>
    <${FileField} id="json-file" label="From a file" accept=".json,application/json" file=${file} onFile=${load} />
    <button type="submit">Predict</button>
  </form>`;
}

function exampleOf({ inputs, parameters }) {
  if (parameters?.text?.tokenizer) return JSON.stringify({ text: "a text" }, null, 2);
  const sizes = inputs.map(({ shape }) => shape.map((size) => Math.max(size, 1)));
  const isSmall = sizes.every((shape) => shape.reduce((product, size) => product * size, 1) <= MOST_SHOWN);
  if (!isSmall) return '{"values": []}';
  const values = sizes.map(zeros);
  if (inputs.length === 1) return JSON.stringify({ values: values[0] });
  return JSON.stringify({ inputs: Object.fromEntries(inputs.map(({ name }, place) => [name, values[place]])) });
}

function zeros([size, ...others]) {
  return Array.from({ length: size }, () => (others.length ? zeros(others) : 0));
}
