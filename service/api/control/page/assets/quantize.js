// From a float model and pictures to a quantized version: what that costs, and the choice of what stays in float.

import { ask, json } from "./api.js";
import { isBuilt, isOver, isWantedBy } from "./builds.js";
import { bar, element, failure, h, show, svg } from "./dom.js";
import { bytes, percent } from "./format.js";
import { nameOf } from "./push.js";
import { acceptDrops, sendable } from "./tryit.js";
import { zipped } from "./zip.js";

const ARCHIVE = /\.(zip|npz|npy)$/i;
const LABELS = /\.csv$/i;
const WORST = 5;
const BODY = { "Content-Type": "application/octet-stream" };
const [WIDTH, HEIGHT] = [240, 80];

export class Quantizing {
  #shown = null; // {name, id}: the quantization that is looked at
  #curve = null; // the one that a mixture is chosen of
  #results = new Map(); // by id
  #inputs = [];
  #onBuild;
  #onVersion;

  /**
   * @param {function(Object)} onBuild called with each build that the server answers.
   * @param {function(string, number)} onVersion called with a model and a version that is to be shown.
   */
  constructor(onBuild, onVersion) {
    this.#onBuild = onBuild;
    this.#onVersion = onVersion;
    const [model, inputs] = [element("float-file"), element("inputs-files")];
    model.addEventListener("change", () => this.#describeModel());
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

  /** Looks at a quantization. */
  open({ model: name, id }) {
    this.#shown = { name, id };
    this.#curve = this.#shown;
    element("quantize-title").scrollIntoView({ behavior: "smooth", block: "nearest" });
  }

  /** Draws what is known of the quantization that is looked at. */
  async show(builds) {
    if (this.#shown === null) return;
    const { name, id } = this.#shown;
    const build = builds.find((each) => each.id === id);
    if (!build) return show(element("quantization"));
    if (!isOver(build)) return show(element("quantization"), underWay(build));
    if (build.state !== "succeeded") return show(element("quantization"), failure(build.error ?? { message: `It was ${build.state}.` }));
    const [result, curve] = [await this.#resultOf(name, id), await this.#resultOf(this.#curve.name, this.#curve.id)];
    if (this.#shown.id !== id) return; // another was chosen meanwhile
    const isServed = builds.some((each) => isWantedBy(each, name, result.version) && isBuilt(each));
    show(
      element("quantization"),
      h("div", { class: "line" },
        h("b", {}, `${name} ${build.version} → ${result.version ?? "deleted"}`),
        h("span", { class: "quiet" }, isServed ? "built" : "its build is under way"),
        result.version && h("button", { type: "button", class: "plain end", "data-version": `${name} ${result.version}`, onclick: () => this.#onVersion(name, result.version) }, `Show and promote version ${result.version}`),
      ),
      costs(result.report),
      curve.report.sensitivity && mixtures(curve, result, (kept) => this.#choose(curve.build, kept)),
      noisiest(result.report),
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
    if (!this.#inputs.length) throw new Error("Choose some pictures, or an archive of inputs.");
    say(`Sending ${bytes(file.size)} …`);
    const pushed = await json(`api/v1/models?${query}`, { method: "PUT", body: file, headers: BODY });
    this.#onBuild(pushed);
    const data = await this.#packed();
    say(`Sending ${bytes(data.size)} …`);
    const asked = new URLSearchParams({ version: pushed.version, method: element("quantize-method").value, sensitivity: true });
    if (query.has("input_shape")) asked.set("input_shape", query.get("input_shape"));
    this.open(await this.#ask(pushed.model, asked, { body: data, headers: BODY }));
    say("");
  }

  /** Quantizes again, with other layers in float. */
  async #choose(build, kept) {
    const { method, activations, samples, data } = build.options.quantize;
    const asked = new URLSearchParams({ version: build.version, method, activations, samples, data });
    kept.forEach((name) => asked.append("keep", name));
    try {
      const chosen = await this.#ask(build.model, asked, {});
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

  /** An archive is sent as it is; pictures, with their labels, become one. */
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

async function download(path, name) { // not by a link, which would send no key
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

function costs({ bytes: sizes, accuracy, same_class: same, inputs, quantized, outputs_db: outputs }) {
  const right = ({ share, standard_error: error }) => `${percent(share)} ± ${(100 * error).toFixed(1)}`;
  const [noise] = Object.values(outputs);
  return h(
    "ul", { class: "costs" },
    accuracy && h("li", {}, `right: ${right(accuracy.float)} in float, ${right(accuracy.quantized)} quantized`),
    same && h("li", {}, `the same class as in float: ${right(same)}`),
    h("li", {}, `signal to noise at the output: ${decibels(noise)}`),
    h("li", {}, `${bytes(sizes.quantized)} instead of ${bytes(sizes.float)}; ${quantized} operators in integers; measured on ${inputs} inputs`),
  );
}

/** The curve, and a row for each of its points. */
function mixtures({ report, build }, result, choose) {
  const curve = report.sensitivity.curve.filter(({ wide }) => !wide?.length); // the request names layers of float only
  const kept = JSON.stringify([...result.report.kept].sort());
  const base = build.options.quantize.keep;
  return h(
    "div", { class: "mixtures" },
    h("h3", {}, "Accuracy by the number of layers in float"),
    plot(curve),
    h("ol", {}, curve.map((point) => {
      const all = [...base, ...point.kept];
      const isChosen = JSON.stringify([...all].sort()) === kept;
      return h(
        "li", { "data-kept": point.kept.length },
        `${point.kept.length} in float: ${percent(point.share)}, ${decibels(point.output_db)} `,
        isChosen ? h("span", { class: "tag" }, "chosen") : h("button", { type: "button", class: "plain", "data-curve": build.id, onclick: () => choose(all) }, `Choose ${point.kept.length} in float`),
      );
    })),
  );
}

function plot(curve) {
  const most = Math.max(1, curve.at(-1).kept.length);
  const shares = curve.map(({ share }) => share);
  const [low, high] = [Math.min(...shares), Math.max(...shares)];
  const place = ({ kept, share }) => [10 + (WIDTH - 20) * (kept.length / most), HEIGHT - 10 - (HEIGHT - 20) * (high > low ? (share - low) / (high - low) : 1)];
  const points = curve.map(place);
  return svg(
    "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": `From ${percent(low)} to ${percent(high)}` },
    svg("polyline", { points: points.map((point) => point.join(",")).join(" ") }),
    points.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 3 })),
  );
}

function noisiest({ sensitivity, tensors_db: tensors }) {
  const [title, noise] = sensitivity ? ["The output with one layer alone in integers, the worst first", sensitivity.layers_db] : ["The noisiest tensors", tensors];
  const worst = Object.entries(noise).sort(([, a], [, b]) => (a ?? Infinity) - (b ?? Infinity)).slice(0, WORST);
  return h("details", {}, h("summary", {}, title), h("ul", {}, worst.map(([name, value]) => h("li", {}, `${name}: ${decibels(value)}`))));
}

function decibels(value) {
  return value === null ? "no noise" : `${value.toFixed(1)} dB`;
}
