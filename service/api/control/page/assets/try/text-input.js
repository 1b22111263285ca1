// Texts as the input: one text, or one for each line; for a reranker, a query and its documents.

import { html } from "../app/html.js";
import { useState } from "../vendor/hooks.js";
import { request } from "./predict.js";

const JSON_TYPE = "application/json";
const EXAMPLES = {
  embed: "The cat sits on the mat.\nA kitten rests on a rug.\nInterest rates rose again.",
};

export function TextInput({ name, version, about, onSend }) {
  const { task } = about.parameters;
  if (task === "rerank") return html`<${RerankInput} name=${name} onSend=${onSend} />`;
  return html`<${Texts} name=${name} version=${version} isEmbedding=${task === "embed"} onSend=${onSend} />`;
}

function Texts({ name, version, isEmbedding, onSend }) {
  const [text, setText] = useState(isEmbedding ? EXAMPLES.embed : "");
  const [isByLine, setByLine] = useState(isEmbedding);
  function send(event) {
    event.preventDefault();
    const texts = isByLine ? text.split(/\r?\n/).filter((line) => line.trim()) : [text];
    const body = JSON.stringify({ text: isByLine ? texts : text });
    onSend({ request: request(name, version, { body, type: JSON_TYPE }), texts });
  }
  return html`<form id="text-form" onSubmit=${send}>
    <label>${isByLine ? "Texts, one per line" : "Text"} <textarea id="text" rows="6" required value=${text} onInput=${({ target }) => setText(target.value)} onKeyDown=${submitOnControlEnter}></textarea></label>
    <label class="check"><input type="checkbox" id="by-line" checked=${isByLine} onChange=${({ target }) => setByLine(target.checked)} /> Each line is a text of its own</label>
    <button type="submit">${isEmbedding && isByLine ? "Compare" : "Predict"}</button>
  </form>`;
}

function RerankInput({ name, onSend }) {
  const [query, setQuery] = useState("");
  const [documents, setDocuments] = useState("");
  function send(event) {
    event.preventDefault();
    const texts = documents.split(/\r?\n/).filter((line) => line.trim());
    const body = JSON.stringify({ model: name, query, documents: texts });
    onSend({ request: request(name, null, { body, type: JSON_TYPE, path: "v1/rerank" }), texts });
  }
  return html`<form id="text-form" onSubmit=${send}>
    <label>Query <input id="query" required value=${query} onInput=${({ target }) => setQuery(target.value)} /></label>
    <label>Documents, one per line <textarea id="documents" rows="6" required value=${documents} onInput=${({ target }) => setDocuments(target.value)} onKeyDown=${submitOnControlEnter}></textarea></label>
    <button type="submit">Rank</button>
  </form>`;
}

function submitOnControlEnter(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
}
