// The form of a quantization, with every option of the command `octet quantize`.

import { html } from "../app/html.js";
import { DropArea, nameOf } from "../parts/files.js";
import { useState } from "../vendor/hooks.js";
import { StaticOptions } from "./static-options.js";

/** @param {function(HTMLFormElement, { model: File, inputs: File[] })} onSubmit */
export function Form({ onSubmit, isBusy }) {
  const [model, setModel] = useState(null);
  const [inputs, setInputs] = useState([]);
  const [name, setName] = useState("");
  const [way, setWay] = useState("inputs");
  const isStatic = way === "inputs";
  function choose([file]) {
    setModel(file);
    setName((known) => known || nameOf(file));
  }
  const submit = (event) => { event.preventDefault(); onSubmit(event.target, { model, inputs }); };
  return html`<form id="quantize" onSubmit=${submit}>
    <${DropArea} id="float-file" text="Drop a float model, or choose one" files=${model ? [model] : []} onFiles=${choose} required=${true} />
    <label>What to quantize
      <select id="quantize-way" name="way" value=${way} onChange=${({ target }) => setWay(target.value)}>
        <option value="inputs">everything that can be, calibrated with inputs (static)</option>
        <option value="dynamic">matrix products, with ranges computed at run time (dynamic)</option>
        <option value="weights">only weights of matrix products, in blocks</option>
      </select>
    </label>
    ${isStatic && html`<${DropArea} id="inputs-files" text="Drop a few hundred typical pictures, or one .zip or .npz file" files=${inputs} onFiles=${setInputs} multiple=${true} />`}
    <label>Name
      <input id="quantize-name" name="model" required pattern="[a-z0-9][a-z0-9._\\-]{0,62}" autocomplete="off" autocapitalize="none" value=${name} onInput=${({ target }) => setName(target.value)}
        title="lower case letters, digits, dots, underscores and hyphens" />
    </label>
    ${way === "weights" && html`<${WeightOptions} />`}
    <div hidden=${!isStatic}><${StaticOptions} /></div>
    <details>
      <summary>How pictures become tensors</summary>
      <label>Mean of pixel / 255 <input name="push_mean" placeholder="0.485,0.456,0.406" autocomplete="off" /></label>
      <label>Standard deviation <input name="push_std" placeholder="0.229,0.224,0.225" autocomplete="off" /></label>
      <label>Input shape, only if the file leaves it open <input name="push_input_shape" placeholder="1,3,224,224" autocomplete="off" /></label>
    </details>
    ${isStatic && html`<p class="quiet">To measure accuracy, add a file labels.csv with lines of file,class to the pictures.</p>`}
    <button type="submit" disabled=${isBusy}>Quantize</button>
  </form>`;
}

function WeightOptions() {
  return html`
    <label>Bits per weight <select name="weights"><option value="8">8</option><option value="4">4</option></select></label>
    <details>
      <summary>More options</summary>
      <label>Number of weights that share a scale
        <select name="block">${["16", "32", "64", "128"].map((size) => html`<option key=${size} selected=${size === "32"}>${size}</option>`)}</select>
      </label>
    </details>`;
}
