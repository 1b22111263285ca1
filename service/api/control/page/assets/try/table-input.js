// A table as the input: CSV with a header, one row of real numbers for each sample.

import { html } from "../app/html.js";
import { FileField, useTextFile } from "../parts/files.js";
import { request } from "./predict.js";
import { columnsOf } from "./tasks.js";

export function TableInput({ name, version, about, onSend }) {
  const [input] = about.inputs;
  const columns = columnsOf(input);
  const { text, setText, file, load } = useTextFile(() => exampleOf(columns, about.parameters?.columns));
  function send(event) {
    event.preventDefault();
    onSend({ request: request(name, version, { body: text, type: "text/csv", file: file?.name ?? null }), rows: text.trim().split(/\r?\n/).slice(1) });
  }
  return html`<form id="table-form" onSubmit=${send}>
    <label>${`Comma-separated values: a header, then rows of ${columns} real ${columns === 1 ? "number" : "numbers"} for "${input.name}"`}
      <textarea id="table" rows="7" class="code" required value=${text} onInput=${({ target }) => setText(target.value)}></textarea>
    </label>
    <${FileField} id="table-file" label="From a file" accept=".csv,text/csv" file=${file} onFile=${load} />
    <button type="submit">Predict</button>
  </form>`;
}

/** Returns a header, with the names of the model's features if they are known, and a row of zeros. */
function exampleOf(columns, names) {
  const header = names?.length === columns ? names : Array.from({ length: columns }, (_, index) => `x${index}`);
  return `${header.join(",")}\n${header.map(() => 0).join(",")}\n`;
}
