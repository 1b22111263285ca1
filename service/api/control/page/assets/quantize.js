// The form that quantizes a float model; its result: the loss of accuracy, and the mixtures of layers to choose from.

import { ask, json } from "./api.js";
import { isOver, isServable, isWantedBy } from "./builds.js";
import { decibels, mixtures } from "./curve.js";
import { bar, element, failure, h, show } from "./dom.js";
import { asked, askedAgain, showWay } from "./flavours.js";
import { bytes, percent } from "./format.js";
import { nameOf } from "./push.js";
import { acceptDrops, sendable } from "./tryit.js";
import { zipped } from "./zip.js";

const ARCHIVE = /\.(zip|npz|npy)$/i;
const LABELS = /\.csv$/i;
const WORST = 5;
const BODY = { "Content-Type": "application/octet-stream" };

export class Quantizing {
  #shown = null; // The name and id of the quantization that is shown.
  #curve = null; // The quantization whose mixtures of layers are offered.
  #results = new Map(); // The results by id.
  #inputs = [];
  #onBuild;
  #onVersion;

  /**
   * @param {function(Object)} onBuild called with each build that the server returns.
   * @param {function(string, number)} onVersion called with a model and a version that is to be shown.
   */
  constructor(onBuild, onVersion) {
    this.#onBuild = onBuild;
    this.#onVersion = onVersion;
    const [model, inputs] = [element("float-file"), element("inputs-files")];
    model.addEventListener("change", () => this.#describeModel());
    element("quantize-way").addEventListener("change", () => showWay(element("quantize")));
    showWay(element("quantize")); // the browser may have kept the user's choice when the page was reloaded
    inputs.addEventListener("change", () => this.#take([...inputs.files]));
    acceptDrops(element("float-drop"), ([dropped]) => {
      const transfer = new DataTransfer();
      transfer.items.add(dropped);
      model.files = transfer.files;
      this.#describeModel();
    });
    acceptDrops(element("inputs-drop"), (dropped) => this.#take(dropped));
    element("quantize").addEventListener("submit", async (event) => {
      event.preventDefault();
      await this.#attempt(event.target.querySelector("button[type=submit]"), () => this.#begin());
    });
  }

  /** Shows a quantization. */
  open({ model: name, id }) {
    this.#shown = { name, id };
    this.#curve = this.#shown;
    element("quantize-title").scrollIntoView({ behavior: "smooth", block: "nearest" });
  }

  /** Draws the state or the result of the quantization that is shown. */
  async show(builds) {
    if (this.#shown === null) return;
    const { name, id } = this.#shown;
    const build = builds.find((each) => each.id === id);
    if (!build) return show(element("quantization"));
    if (!isOver(build)) return show(element("quantization"), underWay(build));
    if (build.state !== "succeeded") return show(element("quantization"), failure(build.error ?? { message: `It was ${build.state}.` }));
    const [result, curve] = [await this.#resultOf(name, id), await this.#resultOf(this.#curve.name, this.#curve.id)];
    if (this.#shown.id !== id) return; // another quantization has been chosen
    const isServed = builds.some((each) => isWantedBy(each, name, result.version) && isServable(each));
    show(
      element("quantization"),
      h("div", { class: "line" },
        h("b", {}, `${name} ${build.version} → ${result.version ?? "deleted"}`),
        h("span", { class: "quiet" }, isServed ? "built" : "being built"),
        result.version && h("button", { type: "button", class: "plain end", "data-version": `${name} ${result.version}`, onclick: () => this.#onVersion(name, result.version) }, `Show and promote version ${result.version}`),
      ),
      costs(result.report),
      curve.report.sensitivity && mixtures(curve, result, (mixture) => this.#choose(curve.build, mixture)),
      result.report.tensors_db && noisiest(result.report),
      h("button", { type: "button", class: "link", "data-file": result.file, onclick: () => download(result.file, `${name}.int8.onnx`) }, "Download the quantized ONNX file"),
    );
  }

  async #resultOf(name, id) {
    if (!this.#results.has(id)) this.#results.set(id, await json(`api/v1/models/${name}/quantizations/${id}`));
    return this.#results.get(id);
  }

  async #attempt(button, work) {
    button.disabled = true;
    try {
      await work();
    } catch (error) {
      show(element("quantize-said"), failure(error));
    } finally {
      button.disabled = false;
    }
  }

  async #begin() {
    const [file] = element("float-file").files;
    const query = new URLSearchParams({ name: element("quantize-name").value });
    for (const member of ["mean", "std", "input_shape"]) {
      const { value } = element(`quantize-${member}`);
      if (value) query.set(member, value);
    }
    const [form, way] = [element("quantize"), element("quantize-way").value];
    if (way === "inputs" && !this.#inputs.length) throw new Error("Choose some pictures, or an archive of inputs.");
    say(`Sending ${bytes(file.size)} …`);
    const pushed = await json(`api/v1/models?${query}`, { method: "PUT", body: file, headers: BODY });
    this.#onBuild(pushed);
    const wanted = asked(form);
    wanted.set("version", pushed.version);
    if (query.has("input_shape")) wanted.set("input_shape", query.get("input_shape"));
    if (way === "dynamic") wanted.set("dynamic", true);
    this.open(await this.#ask(pushed.model, wanted, way === "inputs" ? await this.#sent() : {}));
    say("");
  }

  /** Returns the options of a request that sends the inputs. */
  async #sent() {
    const body = await this.#packed();
    say(`Sending ${bytes(body.size)} …`);
    return { body, headers: BODY };
  }

  /** Quantizes again, with another choice of types for the layers. */
  async #choose(build, mixture) {
    try {
      const chosen = await this.#ask(build.model, askedAgain(build, mixture), {});
      this.#shown = { name: chosen.model, id: chosen.id };
    } catch (error) {
      show(element("quantize-said"), failure(error));
    }
  }

  async #ask(name, query, options) {
    const build = await json(`api/v1/models/${name}/quantizations?${query}`, { method: "POST", ...options });
    this.#onBuild(build);
    return build;
  }

  /** Returns the body to send: an archive as it is, or pictures and their labels packed into one. */
  async #packed() {
    if (this.#inputs.length === 1 && ARCHIVE.test(this.#inputs[0].name)) return this.#inputs[0];
    const files = [];
    for (const [place, file] of this.#inputs.entries()) {
      const content = LABELS.test(file.name) ? file : await sendable(file);
      const name = LABELS.test(file.name) ? "labels.csv" : `${file.name.replace(/[\\/:]/g, "_")}${content === file ? "" : ".png"}`;
      files.push({ name: files.some((other) => other.name === name) ? `${place}-${name}` : name, content });
    }
    return zipped(files);
  }

  #describeModel() {
    const [file] = element("float-file").files;
    if (!file) return;
    element("float-drop").querySelector("span").textContent = `${file.name}, ${bytes(file.size)}`;
    const name = element("quantize-name");
    if (!name.value) name.value = nameOf(file);
  }

  #take(files) {
    this.#inputs = files;
    const size = files.reduce((sum, file) => sum + file.size, 0);
    element("inputs-drop").querySelector("span").textContent = `${files.length === 1 ? files[0].name : `${files.length} files`}, ${bytes(size)}`;
  }
}

async function download(path, name) { // a plain link would not send the key
  const url = URL.createObjectURL(await (await ask(path.slice(1))).blob());
  h("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

function say(text) {
  show(element("quantize-said"), text && h("p", { class: "quiet" }, text));
}

function underWay(build) {
  return h("p", {}, `${build.model} ${build.version}: ${build.state}${build.stage ? `, ${build.stage}` : ""}`, bar(build.progress, "moving"));
}

function costs({ layers, weights, bytes: sizes, ...measured }) {
  const size = `${bytes(sizes.quantized)} instead of ${bytes(sizes.float)}`;
  if (layers) return h("ul", { class: "costs" }, h("li", {}, `${size}; ${layers.length} matrix products ${weights ? `with weights of ${weights} bits` : "in integers"}`));
  const { accuracy, same_class: same, inputs, quantized, outputs_db: outputs } = measured;
  const right = ({ share, standard_error: error }) => `${percent(share)} ± ${(100 * error).toFixed(1)}`;
  const [noise] = Object.values(outputs);
  return h(
    "ul", { class: "costs" },
    accuracy && h("li", {}, `right: ${right(accuracy.float)} in float, ${right(accuracy.quantized)} quantized`),
    same && h("li", {}, `the same class as in float: ${right(same)}`),
    h("li", {}, `signal to noise at the output: ${decibels(noise)}`),
    h("li", {}, `${size}; ${quantized} operators in integers; measured on ${inputs} inputs`),
  );
}

function noisiest({ sensitivity, tensors_db: tensors }) {
  const [title, noise] = sensitivity ? ["The output with one layer alone in integers, the worst first", sensitivity.layers_db] : ["The noisiest tensors", tensors];
  const worst = Object.entries(noise).sort(([, a], [, b]) => (a ?? Infinity) - (b ?? Infinity)).slice(0, WORST);
  return h("details", {}, h("summary", {}, title), h("ul", {}, worst.map(([name, value]) => h("li", {}, `${name}: ${decibels(value)}`))));
}
