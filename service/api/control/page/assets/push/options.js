// The options of a push that most models do not need.

import { html } from "../app/html.js";
import { FileField } from "../parts/files.js";

const POOLINGS = ["mean", "max", "cls", "last", "mean-sqrt", "weighted-mean"];

export function Options({ modes, tokenizer, onTokenizer }) {
  return html`
    <details><summary>Pictures: mean, standard deviation, size</summary>
      <div class="fields">
        <label>Mean of pixel / 255 <input name="mean" placeholder="0.485,0.456,0.406" autocomplete="off" /></label>
        <label>Standard deviation <input name="std" placeholder="0.229,0.224,0.225" autocomplete="off" /></label>
        <label>How a picture is fitted to the input <select name="resize"><option value="">stretch</option><option value="crop">crop: keep the aspect ratio</option></select></label>
        <label>Layout, if the shape does not show it <select name="layout"><option value="">from the shape</option><option value="nhwc">NHWC</option><option value="nchw">NCHW</option></select></label>
      </div>
    </details>
    <details><summary>Texts: tokenizer, task, pooling</summary>
      <div class="fields">
        <label>Task <select name="task">
          <option value="">of the file</option><option value="embed">embed texts</option><option value="rerank">rerank texts</option><option value="classify">classify texts</option>
          <option value="classify-tokens">find spans in texts</option><option value="classify-images">classify pictures</option><option value="detect">detect objects</option>
        </select></label>
        <label>Pooling <select name="pooling"><option value="">as the folder defines</option>${POOLINGS.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
        <label>Most tokens <input name="max_length" type="number" min="1" inputmode="numeric" /></label>
        <label>Divide each embedding by its norm <select name="normalize"><option value="">as the folder defines</option><option value="true">yes</option><option value="false">no</option></select></label>
        <label>Variant, if a folder has several <input name="variant" placeholder="the best for the target" autocomplete="off" autocapitalize="none" /></label>
      </div>
      <${FileField} id="push-tokenizer" label="Tokenizer: tokenizer.json" accept=".json" file=${tokenizer} onFile=${onTokenizer} />
    </details>
    <details><summary>Sounds and tables: sampling rate, columns</summary>
      <div class="fields">
        <label>Samples of a sound in a second <input name="sampling_rate" type="number" min="1" inputmode="numeric" placeholder="16000" /></label>
        <label>Shift and scale a sound to mean 0 and variance 1 <select name="standardize"><option value="">as the file defines</option><option value="true">yes</option><option value="false">no</option></select></label>
        <label>Columns of a table, in the order of the model's features <input name="columns" placeholder="alcohol,sugar,ph" autocomplete="off" autocapitalize="none" /></label>
      </div>
    </details>
    <details><summary>Compilation: numerics, batch sizes, shapes</summary>
      <div class="fields">
        <label>Numerics: the runtime whose results to reproduce <input name="numerics" list="numerics-modes" placeholder="the usual one for the format" autocomplete="off" /></label>
        <datalist id="numerics-modes">${modes.map((mode) => html`<option key=${mode} value=${mode} />`)}</datalist>
        <label>Batch sizes <input name="batch" placeholder="1,8,16" autocomplete="off" /></label>
        <label>Input shapes, if the file leaves them open <input name="input_shape" placeholder="1,3,224,224 or ids=1x..128" autocomplete="off" /></label>
        <label>Inputs that become constants <input name="fix" placeholder="sr=16000" autocomplete="off" /></label>
        <label>Then search for faster tile sizes, this long <input name="tune" placeholder="60s" autocomplete="off" /></label>
        <label class="check"><input name="accept_differences" type="checkbox" /> Serve it even if it differs from its reference</label>
      </div>
    </details>
  `;
}
