// The request as code: curl, Python and JavaScript, with this server's address.

import { ROOT } from "../app/api.js";
import { html } from "../app/html.js";
import { useStore } from "../app/store.js";
import { Card } from "../parts/basics.js";
import { Copyable } from "../parts/copyable.js";
import { useState } from "../vendor/hooks.js";

const EXAMPLES = {
  picture: { type: "image/jpeg", file: "picture.jpg" },
  sound: { type: "audio/wav", file: "sound.wav" },
  text: { type: "application/json", body: '{"text": "a text"}' },
  table: { type: "text/csv", file: "rows.csv" },
  json: { type: "application/json", file: "input.json" },
};
const LONGEST = 600; // longer bodies come from a file

/** @param {?Object} request the request that was sent; null for an example of this `kind` of input. */
export function Snippets({ name, version, request, kind }) {
  const { hello } = useStore();
  const [language, setLanguage] = useState("curl");
  const shown = request ?? { path: `api/v1/models/${name}/predict?version=${version}`, ...EXAMPLES[kind] };
  const isLong = typeof shown.body === "string" && shown.body.length > LONGEST;
  const facts = { url: new URL(shown.path, ROOT).href, type: shown.type, hasKey: hello?.requires_key ?? false, file: shown.file ?? (isLong ? EXAMPLES[kind].file ?? "input.json" : null), body: typeof shown.body === "string" ? shown.body : "" };
  return html`<${Card} id="code" title="The request as code">
    <div class="switch" role="group" aria-label="Language">${Object.keys(LANGUAGES).map((each) => html`
      <button key=${each} type="button" aria-pressed=${String(each === language)} onClick=${() => setLanguage(each)}>${each}</button>`)}</div>
    <${Copyable} text=${LANGUAGES[language](facts)} label=${`The request in ${language}`} />
    ${facts.hasKey && html`<p class="quiet">Put your key in the environment variable OCTET_KEY.</p>`}
  </${Card}>`;
}

const LANGUAGES = {
  curl({ url, type, hasKey, file, body }) {
    const key = hasKey ? ' -H "Authorization: Bearer $OCTET_KEY"' : "";
    const data = file ? `--data-binary @${quoted(file)}` : `-d ${quoted(body)}`;
    return `curl${key} -H 'Content-Type: ${type}' ${data} ${quoted(url)}`;
  },
  Python({ url, type, hasKey, file, body }) {
    return [
      ...(hasKey ? ["import os"] : []),
      "import httpx",
      "",
      `headers = {"Content-Type": ${JSON.stringify(type)}${hasKey ? ', "Authorization": "Bearer " + os.environ["OCTET_KEY"]' : ""}}`,
      file ? `body = open(${JSON.stringify(file)}, "rb").read()` : `body = ${JSON.stringify(body)}`,
      `response = httpx.post(${JSON.stringify(url)}, content=body, headers=headers, timeout=60)`,
      "response.raise_for_status()",
      "print(response.json())",
    ].join("\n");
  },
  JavaScript({ url, type, hasKey, file, body }) {
    return [
      ...(file ? ['import { readFile } from "node:fs/promises";', ""] : []),
      `const response = await fetch(${JSON.stringify(url)}, {`,
      '  method: "POST",',
      `  headers: { "Content-Type": ${JSON.stringify(type)}${hasKey ? ', Authorization: `Bearer ${process.env.OCTET_KEY}`' : ""} },`,
      file ? `  body: await readFile(${JSON.stringify(file)}),` : `  body: ${JSON.stringify(body)},`,
      "});",
      "console.log(await response.json());",
    ].join("\n");
  },
};

/** Quotes a text for a shell. */
function quoted(text) {
  return /^[\w@./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
