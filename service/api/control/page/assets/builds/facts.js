// Facts about builds, in words.

import { wayOf } from "../quantize/options.js";

const BUILT = ["succeeded", "different"];
const FINAL = [...BUILT, "failed", "canceled"];

export function isOver(build) {
  return FINAL.includes(build.state);
}

/** Returns true if the build has an artifact that can be inspected; one that is "different" is not served. */
export function isBuilt(build) {
  return BUILT.includes(build.state) && !build.invalidated && build.artifact !== null;
}

/** Returns true if the build has an artifact that can be served. */
export function isServable(build) {
  return isBuilt(build) && build.state === "succeeded";
}

/** Returns true if the build quantizes a model. */
export function isQuantization(build) {
  return build.options.quantize !== undefined;
}

/** Returns true if the version of a model requested the build; versions with the same file share a build. */
export function isWantedBy({ models }, name, version) {
  return models.some((each) => each.name === name && each.version === version);
}

/** Returns what distinguishes the builds of a version: "x86-64-v3, batch 8". */
export function described(build) {
  const options = Object.entries(build.options).map(([name, value]) => option(name, value, build.options));
  return [build.target, ...options.filter(Boolean)].join(", ");
}

/** Returns the builds, newest first. */
export function newestFirst(builds) {
  return [...builds.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
}

/** Describes an option: "batch 8", "shape 1×128", "shape up to 1×256"; the list of all sizes of the model is left out. */
function option(name, value, { ranges }) {
  if (name === "quantize") return wayOf(value);
  if (name === "buckets" || name === "ranges") return "";
  if (name === "input_shapes") return shapesOf(value, ranges ? "up to " : "");
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return value === true ? name.replaceAll("_", " ") : `${name.replaceAll("_", " ")} ${text}`;
}

/** "shape 1×128" if all inputs have the same shape, else "x 1×3, y 1×4". */
function shapesOf(shapes, limit) {
  const texts = Object.values(shapes).map((shape) => shape.map((size) => (Array.isArray(size) ? `[${size.join(", ")}]` : size)).join("×"));
  if (new Set(texts).size === 1) return `shape ${limit}${texts[0]}`;
  return Object.keys(shapes).map((name, place) => `${name} ${limit}${texts[place]}`).join(", ");
}
