// The cost of a quantization: accuracy, size, the noisiest layers, and the mixtures of layers to choose from.

import { download, json } from "../app/api.js";
import { bytes, percent, plural } from "../app/format.js";
import { html } from "../app/html.js";
import { linkTo } from "../app/router.js";
import { useStore } from "../app/store.js";
import { isOver, isServable, isWantedBy } from "../builds/facts.js";
import { errorOf } from "../builds/row.js";
import { Bar, Failure } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { decibels, Mixtures } from "./mixtures.js";

const WORST = 5;

/**
 * @param {string} curve the id of the quantization whose mixtures of layers are offered.
 * @param {function(Object, Object)} onChoose called with the build of the curve and with the chosen mixture.
 */
export function Result({ name, id, curve, onChoose }) {
  const { builds } = useStore();
  const listed = builds.get(id);
  const state = listed?.state ?? "";
  const shown = useRequest(() => json(`api/v1/models/${name}/quantizations/${id}`), [id, state]);
  const ranked = useRequest(() => (curve === id ? Promise.resolve(null) : json(`api/v1/models/${name}/quantizations/${curve}`)), [curve]);
  if (shown.error && !listed) return html`<${Failure} error=${shown.error} />`;
  const build = listed ?? shown.value?.build;
  if (!build) return html`<p class="quiet">Loading …</p>`;
  if (!isOver(build)) return html`<p>${`${build.model} ${build.version}: ${build.state}${build.stage ? `, ${build.stage}` : ""}`}<${Bar} share=${build.progress} kind="moving" /></p>`;
  if (build.state !== "succeeded") return html`<${Failure} error=${build.error ? errorOf(build) : { message: `It was ${build.state}.` }} />`;
  const result = shown.value;
  if (!result?.report) return shown.isLoading ? html`<p class="quiet">Loading …</p>` : html`<${Failure} error=${shown.error} />`;
  const offered = curve === id ? result : ranked.value;
  const isServed = [...builds.values()].some((each) => isWantedBy(each, name, result.version) && isServable(each));
  return html`
    <div class="line">
      <b>${`${name} ${build.version} → ${result.version ?? "deleted"}`}</b>
      <span class="quiet">${isServed ? "built" : "being built"}</span>
      ${result.version && html`<a class="button plain small end" href=${linkTo(["models", name, result.version, "rollout"])}>${`Show and promote version ${result.version}`}</a>`}
    </div>
    <${Costs} ...${result.report} />
    ${offered?.report.sensitivity && html`<${Mixtures} ranked=${offered} result=${result} onChoose=${(mixture) => onChoose(offered.build, mixture)} />`}
    ${result.report.tensors_db && html`<${Noisiest} ...${result.report} />`}
    <button type="button" class="link" onClick=${() => download(result.file, `${name}.int8.onnx`)}>Download the quantized ONNX file</button>
  `;
}

function Costs({ layers, weights, bytes: sizes, ...measured }) {
  const size = `${bytes(sizes.quantized)} instead of ${bytes(sizes.float)}`;
  if (layers) return html`<ul class="costs"><li>${`${size}; ${plural(layers.length, "matrix product")} ${weights ? `with weights of ${weights} bits` : "in integers"}`}</li></ul>`;
  const { accuracy, same_class: same, inputs, quantized, outputs_db: outputs } = measured;
  const right = ({ share, standard_error: error }) => `${percent(share)} ± ${(100 * error).toFixed(1)}`;
  const [noise] = Object.values(outputs);
  return html`<ul class="costs">
    ${accuracy && html`<li>${`right: ${right(accuracy.float)} in float, ${right(accuracy.quantized)} quantized`}</li>`}
    ${same && html`<li>${`the same class as in float: ${right(same)}`}</li>`}
    <li>${`signal to noise at the output: ${decibels(noise)}`}</li>
    <li>${`${size}; ${plural(quantized, "operator")} in integers; measured on ${plural(inputs, "input")}`}</li>
  </ul>`;
}

function Noisiest({ sensitivity, tensors_db: tensors }) {
  const [title, noise] = sensitivity ? ["The output with one layer alone in integers, the worst first", sensitivity.layers_db] : ["The noisiest tensors", tensors];
  const worst = Object.entries(noise).sort(([, a], [, b]) => (a ?? Infinity) - (b ?? Infinity)).slice(0, WORST);
  return html`<details><summary>${title}</summary><ul>${worst.map(([name, value]) => html`<li key=${name}>${`${name}: ${decibels(value)}`}</li>`)}</ul></details>`;
}
