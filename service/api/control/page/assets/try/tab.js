// Tries a model version: a picture, a text, a table or JSON goes in, and the result is shown in the form of its task.

import { json } from "../app/api.js";
import { html } from "../app/html.js";
import { changeQuery, useRoute } from "../app/router.js";
import { silenceOf } from "../models/facts.js";
import { Card, Failure } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { useState } from "../vendor/hooks.js";
import { JsonInput } from "./json-input.js";
import { PictureInput } from "./picture-input.js";
import { predict } from "./predict.js";
import { Result } from "./result.js";
import { Snippets } from "./snippets.js";
import { SoundInput } from "./sound-input.js";
import { TableInput } from "./table-input.js";
import { inputsOf, NAMES } from "./tasks.js";
import { TextInput } from "./text-input.js";

const INPUTS = { picture: PictureInput, sound: SoundInput, text: TextInput, table: TableInput, json: JsonInput };

export function TryTab({ name, version, state }) {
  const silence = silenceOf(state, name, version);
  const about = useRequest(() => (silence === null ? json(`v2/models/${name}/versions/${version}`) : Promise.resolve(null)), [name, version, silence]);
  const { query } = useRoute();
  if (silence !== null) return html`<${Card} id="try" title="Try it"><p>${`This version does not answer: ${silence}.`}</p></${Card}>`;
  if (about.error) return html`<${Card} id="try" title="Try it"><${Failure} error=${about.error} /></${Card}>`;
  if (!about.value) return html`<p class="quiet">Loading …</p>`;
  const kinds = inputsOf(about.value);
  const kind = kinds.includes(query.get("input")) ? query.get("input") : kinds[0];
  return html`<${Trial} key=${`${name}/${version}/${kind}`} name=${name} version=${version} about=${about.value} kinds=${kinds} kind=${kind} />`;
}

function Trial({ name, version, about, kinds, kind }) {
  const [sample, setSample] = useState(null); // what was sent: { request, picture }
  const [answer, setAnswer] = useState({ result: null, error: null, isLoading: false });
  const Input = INPUTS[kind];

  async function send(next) {
    setSample(next);
    setAnswer((last) => ({ ...last, isLoading: true, error: null }));
    try {
      const result = await predict(next.request);
      setAnswer({ result, error: null, isLoading: false });
    } catch (error) {
      setAnswer({ result: null, error, isLoading: false });
    }
  }

  return html`
    <div class="columns">
      <${Card} id="try" title="Input">
        ${kinds.length > 1 && html`<div class="switch" role="group" aria-label="Type of input">${kinds.map((each) => html`
          <button key=${each} type="button" aria-pressed=${String(each === kind)} onClick=${() => changeQuery({ input: each }, { replace: true })}>${NAMES[each]}</button>`)}</div>`}
        <${Input} name=${name} version=${version} about=${about} onSend=${send} />
      </${Card}>
      <${Card} id="result-card" title="Result">
        <div id="answer" aria-live="polite" aria-busy=${String(answer.isLoading)}>
          ${!sample && html`<p class="quiet">The result appears here.</p>`}
          ${answer.isLoading && html`<p class="quiet">…</p>`}
          <${Failure} error=${answer.error} />
          ${answer.result ? html`<${Result} ...${answer.result} about=${about} sample=${sample} />` : sample?.picture && html`<img src=${sample.picture} alt="the picture that was sent" />`}
        </div>
      </${Card}>
    </div>
    <${Snippets} name=${name} request=${sample?.request ?? null} kind=${kind} version=${version} />
  `;
}
