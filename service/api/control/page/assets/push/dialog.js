// The dialog that uploads a model file, with every option of the API.

import { json } from "../app/api.js";
import { bytes } from "../app/format.js";
import { html } from "../app/html.js";
import { go, route } from "../app/router.js";
import { addBuild, announce, useStore } from "../app/store.js";
import { Failure } from "../parts/basics.js";
import { Dialog } from "../parts/dialog.js";
import { DropArea, FileField, nameOf } from "../parts/files.js";
import { chosenFolder, packedFolder } from "../parts/folder.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { describe } from "./describe.js";
import { Options } from "./options.js";

const BODY = { "Content-Type": "application/octet-stream" };

/** @param {File[]} files files that were dropped on the page. */
export function PushDialog({ files, onClose }) {
  const { targets, hello } = useStore();
  const [file, setFile] = useState(files[0] ?? null);
  const [name, setName] = useState(route().query.get("name") ?? (files[0] ? nameOf(files[0]) : ""));
  const [labels, setLabels] = useState(null);
  const [tokenizer, setTokenizer] = useState(null);
  const [status, setStatus] = useState({ text: "", error: null });
  const form = useRef(null);
  useEffect(() => { if (files.length) choose(files); }, [files]);

  function choose([chosen]) {
    setFile(chosen);
    setName((known) => known || nameOf(chosen));
  }

  async function chooseFolder({ target }) {
    if (target.files.length) choose([await packedFolder(chosenFolder([...target.files]))]);
    target.value = "";
  }

  async function push() {
    setStatus({ text: `Sending ${bytes(file.size)} …`, error: null });
    try {
      const fields = new FormData(form.current.closest("form"));
      const query = queryOf(fields, name);
      const build = await json(`api/v1/models?${query}`, { method: "PUT", body: file, headers: BODY });
      addBuild(build);
      await describe(build, labels, tokenizer);
      announce(`${build.model} is version ${build.version}.`);
      go(...destination(build));
    } catch (error) {
      setStatus({ text: "", error });
    }
  }

  const host = targets.find((target) => target.host);
  return html`<${Dialog} id="push" title="Push a model" wide=${true} onClose=${onClose} onSubmit=${push}>
    <div ref=${form}>
      <${DropArea} id="model-file" text="Drop a quantized model or the folder of a published one, or choose a file" files=${file ? [file] : []} onFiles=${choose} required=${true} />
      <label class="quiet">Or choose a folder: onnx/, tokenizer.json, config.json, … <input id="model-folder" type="file" webkitdirectory onChange=${chooseFolder} /></label>
      <div class="fields">
        <label>Name
          <input id="model-name" required pattern="[a-z0-9][a-z0-9._\\-]{0,62}" autocomplete="off" autocapitalize="none" value=${name} onInput=${({ target }) => setName(target.value)}
            title="lower case letters, digits, dots, underscores and hyphens" />
        </label>
        <label>Target <select name="target">
          <option value="host">${host ? `${host.name} (this machine)` : "this machine"}</option>
          <option value="all">every target that a worker serves</option>
          ${targets.filter((target) => target !== host).map((target) => html`<option key=${target.name} value=${target.name}>${target.name}</option>`)}
        </select></label>
      </div>
      <${FileField} id="push-labels" label="Labels, one per line" accept="text/plain,.txt" file=${labels} onFile=${setLabels} />
      <${Options} modes=${hello?.modes ?? []} tokenizer=${tokenizer} onTokenizer=${setTokenizer} />
    </div>
    <div id="pushed" aria-live="polite">${status.text && html`<p class="quiet">${status.text}</p>`}<${Failure} error=${status.error} /></div>
    <div class="buttons">
      <button type="submit" disabled=${status.text !== ""}>Push and compile</button>
      <button type="button" class="plain" onClick=${onClose}>Cancel</button>
    </div>
  </${Dialog}>`;
}

/** Returns the options of the upload; empty fields are left out. */
export function queryOf(fields, name) {
  const query = new URLSearchParams({ name });
  for (const member of ["target", "numerics", "batch", "tune", "input_shape", "fix", "mean", "std", "resize", "layout", "variant", "task", "pooling", "normalize", "max_length", "sampling_rate", "standardize", "columns"]) {
    if (fields.get(member)) query.set(member, fields.get(member));
  }
  if (fields.has("accept_differences")) query.set("accept_differences", "true");
  return query;
}

/** The page that shows what became of the upload: the build, or the model if it had been built before. */
function destination(build) {
  return build.state === "succeeded" ? [["models", build.model, build.version]] : [["builds", build.id]];
}
