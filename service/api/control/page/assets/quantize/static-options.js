// The options of a quantization that is calibrated with inputs.

import { html } from "../app/html.js";

export function StaticOptions() {
  return html`
    <label>Ranges of activations
      <select name="method">
        <option value="minmax">minimum to maximum</option>
        <option value="mse">least squared error</option>
        <option value="kl">least divergence (KL)</option>
        <option value="percentile">all but one value in ten thousand</option>
        <option value="moving-average">moving average of minimum and maximum</option>
        <option value="power-of-two">powers of two</option>
      </select>
    </label>
    <details>
      <summary>More options</summary>
      <label class="check"><input name="sensitivity" type="checkbox" defaultChecked /> Measure the loss caused by each layer, and mixtures of layers</label>
      <label>Share of answers that may be lost; layers are raised to a larger type until it is met
        <input name="budget" placeholder="0.5%" autocomplete="off" />
      </label>
      <label>Type to raise layers to before float
        <select name="raise_to"><option>16x8</option><option value="bfloat16">bfloat16, fast on targets with +bf16</option></select>
      </label>
      <label>Latency limit; as many layers as it allows stay in float
        <input name="latency_budget" placeholder="5ms, or 1.2x" autocomplete="off" />
      </label>
      <label class="check"><input name="equalize" type="checkbox" /> Equalize channels of neighbouring layers</label>
      <label class="check"><input name="correct_bias" type="checkbox" defaultChecked /> Correct biases for the shift that rounding the weights causes</label>
      <label class="check"><input name="adaround" type="checkbox" /> Round weights so that the outputs of layers change least</label>
      <label>Choose ranges again from the quantized model, this many times
        <input name="rounds" type="number" min="0" max="8" defaultValue="0" />
      </label>
      <label>Activations are stored as
        <select name="activations"><option value="uint8">uint8, with a zero point</option><option value="int8">int8, with a zero point</option></select>
      </label>
      <label>Most inputs to use <input name="samples" type="number" min="1" max="100000" defaultValue="256" /></label>
      <label>Tensors with 16-bit activations (16x8), by name <input name="wide" data-several placeholder="conv_1, conv_2" autocomplete="off" autocapitalize="none" /></label>
      <label>Tensors to compute in bfloat16, by name <input name="bfloat16" data-several placeholder="conv_2" autocomplete="off" autocapitalize="none" /></label>
      <label>Tensors to keep in float, by name <input name="keep" data-several placeholder="conv_3" autocomplete="off" autocapitalize="none" /></label>
    </details>`;
}
