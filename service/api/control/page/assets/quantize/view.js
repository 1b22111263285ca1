// Quantizes a float model: the form, and the result with the mixtures of layers to choose from.

import { json } from "../app/api.js";
import { bytes } from "../app/format.js";
import { html } from "../app/html.js";
import { may } from "../app/live.js";
import { go } from "../app/router.js";
import { addBuild } from "../app/store.js";
import { Card, Failure, Title } from "../parts/basics.js";
import { sendable } from "../parts/files.js";
import { useState } from "../vendor/hooks.js";
import { Form } from "./form.js";
import { queryAgain, queryOf } from "./options.js";
import { Result } from "./result.js";
import { zipped } from "../parts/zip.js";

const ARCHIVE = /\.(zip|npz|npy)$/i;
const LABELS = /\.csv$/i;
const BODY = { "Content-Type": "application/octet-stream" };

export function QuantizeView({ path: [name, id], query }) {
  const [status, setStatus] = useState({ text: "", error: null, isBusy: false });
  const say = (text) => setStatus({ text, error: null, isBusy: true });

  async function attempt(work) {
    say("");
    try {
      await work();
      setStatus({ text: "", error: null, isBusy: false });
    } catch (error) {
      setStatus({ text: "", error, isBusy: false });
    }
  }

  /** Uploads the model and the inputs, and shows the quantization. */
  const begin = (form, { model, inputs }) => attempt(async () => {
    const fields = new FormData(form);
    const way = fields.get("way");
    const push = new URLSearchParams({ name: fields.get("model") });
    for (const member of ["mean", "std", "input_shape"]) if (fields.get(`push_${member}`)) push.set(member, fields.get(`push_${member}`));
    if (way === "inputs" && !inputs.length) throw new Error("Choose some pictures, or an archive of inputs.");
    say(`Sending ${bytes(model.size)} …`);
    const pushed = await json(`api/v1/models?${push}`, { method: "PUT", body: model, headers: BODY });
    addBuild(pushed);
    const wanted = queryOf(form);
    wanted.set("version", pushed.version);
    for (const name of ["way", "model", "push_mean", "push_std", "push_input_shape"]) wanted.delete(name);
    if (push.has("input_shape")) wanted.set("input_shape", push.get("input_shape"));
    if (way === "dynamic") wanted.set("dynamic", true);
    const body = way === "inputs" ? await packed(inputs) : undefined;
    if (body) say(`Sending ${bytes(body.size)} …`);
    const build = await request(pushed.model, wanted, body ? { body, headers: BODY } : {});
    go(["quantize", build.model, build.id]);
  });

  /** Quantizes again, with another choice of types for the layers. */
  const choose = (build, mixture) => attempt(async () => {
    const chosen = await request(build.model, queryAgain(build, mixture), {});
    go(["quantize", chosen.model, chosen.id], { curve: build.id });
  });

  return html`
    <${Title}>Quantize a float model</${Title}>
    <div class="columns">
      ${may("push") && html`<${Card} id="quantize-card" title="Model and options">
        <${Form} onSubmit=${begin} isBusy=${status.isBusy} />
        <div id="quantize-status" aria-live="polite">${status.text && html`<p class="quiet">${status.text}</p>`}<${Failure} error=${status.error} /></div>
      </${Card}>`}
      <${Card} id="quantization-card" title="Result">
        <div id="quantization" aria-live="polite">
          ${id ? html`<${Result} key=${id} name=${name} id=${id} curve=${query.get("curve") ?? id} onChoose=${choose} />` : html`<p class="quiet">The loss of accuracy appears here, and the mixtures of layers to choose from.</p>`}
        </div>
      </${Card}>
    </div>
  `;
}

async function request(name, query, options) {
  const build = await json(`api/v1/models/${name}/quantizations?${query}`, { method: "POST", ...options });
  addBuild(build);
  return build;
}

/** Returns the body to send: an archive as it is, or pictures and their labels packed into one. */
async function packed(inputs) {
  if (inputs.length === 1 && ARCHIVE.test(inputs[0].name)) return inputs[0];
  const files = [];
  for (const [place, file] of inputs.entries()) {
    const content = LABELS.test(file.name) ? file : await sendable(file);
    const name = LABELS.test(file.name) ? "labels.csv" : `${file.name.replace(/[\\/:]/g, "_")}${content === file ? "" : ".png"}`;
    files.push({ name: files.some((other) => other.name === name) ? `${place}-${name}` : name, content });
  }
  return zipped(files);
}
