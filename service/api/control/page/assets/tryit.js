// Sends a picture to the chosen model, and shows the result as bars.

import { ask, json } from "./api.js";
import { bar, element, failure, h, show } from "./dom.js";
import { duration, percent } from "./format.js";

const SENT_AS_IS = ["image/jpeg", "image/png"];
const TOP = 5;
const SMALL_PIXELS = 64; // pictures of at most this size are shown with visible pixels

export class TryIt {
  #model = null;
  #picture = null;
  #preview = null;

  constructor() {
    for (const id of ["picture", "camera"]) {
      element(id).addEventListener("change", ({ target }) => {
        if (target.files.length) this.#send(target.files[0]);
        target.value = ""; // so that the same file can be chosen again
      });
    }
    acceptDrops(element("try-drop"), ([file]) => this.#send(file));
    element("labels").addEventListener("change", async ({ target }) => {
      if (!target.files.length || !this.#model) return;
      localStorage.setItem(`octet-labels-${this.#model.name}`, await target.files[0].text());
      target.value = "";
      if (this.#picture) this.#send(this.#picture);
    });
  }

  /** Chooses the model. */
  choose(name, version) {
    if (this.#model?.name === name && this.#model?.version === version) return;
    this.#model = { name, version };
    this.#picture = null;
    show(element("answer"));
  }

  async #send(file) {
    const { name, version } = this.#model;
    this.#picture = file;
    URL.revokeObjectURL(this.#preview);
    this.#preview = URL.createObjectURL(file);
    const picture = h("img", { src: this.#preview, alt: "the picture that was sent", onload: sharpen });
    show(element("answer"), picture, h("p", { class: "quiet" }, "…"));
    try {
      const path = `v2/models/${name}/versions/${version}`;
      const [described, body] = [await json(path), await sendable(file)];
      const started = performance.now();
      const response = await ask(`${path}/infer`, { method: "POST", headers: { "Content-Type": body.type }, body });
      const answer = await response.json();
      const took = (performance.now() - started) / 1000;
      if (file !== this.#picture) return;
      show(element("answer"), picture, seen(answer, described, labelsOf(name, described)), h("p", { class: "quiet" }, `${answer.model_name} ${answer.model_version} in ${duration(took)}, including the network`));
    } catch (error) {
      show(element("answer"), picture, failure(error));
    }
  }
}

/** Accepts files that are dropped on `place`, and highlights it meanwhile. */
export function acceptDrops(place, onFiles) {
  const over = (event) => { event.preventDefault(); place.classList.add("over"); };
  place.addEventListener("dragenter", over);
  place.addEventListener("dragover", over);
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    if (event.dataTransfer.files.length) onFiles([...event.dataTransfer.files]);
  });
}

/** Returns a picture in a format that the server reads: a JPEG or PNG as it is, any other converted to PNG by the browser. */
export async function sendable(file) {
  if (SENT_AS_IS.includes(file.type)) return file;
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not a picture that this browser can read.`);
  });
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}

function sharpen({ target }) {
  target.classList.toggle("pixels", Math.max(target.naturalWidth, target.naturalHeight) <= SMALL_PIXELS);
}

/** Returns the labels chosen in this browser, or else the model's own. */
function labelsOf(model, described) {
  return localStorage.getItem(`octet-labels-${model}`)?.split(/\r?\n/) ?? described.parameters?.labels ?? [];
}

/** Draws the most likely classes; if the output is not a classification, describes it. */
function seen({ outputs: [first, ...others] }, described, labels) {
  const { scale = 1, zero_point: zero = 0 } = described.outputs.find(({ name }) => name === first.name)?.parameters ?? {};
  const values = first.data.map((stored) => scale * (stored - zero));
  const isClassification = values.length > 1 && values.length === first.shape.at(-1);
  return isClassification ? classes(values, labels) : h("ul", {}, [first, ...others].map((output) => h("li", {}, ranged(output))));
}

/** Draws bars: shares if all values are between 0 and 1; otherwise from the lowest shown value to the highest. */
function classes(values, labels) {
  const best = [...values.keys()].sort((a, b) => values[b] - values[a] || a - b).slice(0, TOP);
  const shown = best.map((index) => values[index]);
  const areShares = shown.at(-1) >= 0 && shown[0] <= 1;
  const [low, high] = areShares ? [0, 1] : [shown.at(-1), shown[0]];
  return h("ol", { class: "bars classes" }, best.map((index) => h(
    "li", {},
    h("span", { class: "name" }, labels[index] || `class ${index}`),
    bar((values[index] - low) / (high - low || 1)),
    h("span", { class: "value" }, areShares ? percent(values[index]) : values[index].toPrecision(3)),
  )));
}

function ranged({ name, datatype, shape, data }) {
  const [low, high] = data.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  return `${name}: ${datatype} [${shape.join(", ")}], stored values from ${low} to ${high}`;
}
