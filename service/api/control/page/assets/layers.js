// The time of each layer of a model; or its multiply-accumulates if it was not profiled.

import { bar, h } from "./dom.js";
import { count, duration } from "./format.js";

const KINDS = { integer: "integer kernels", float: "float kernels", layout: "layout changes", generated: "generated code" };

/**
 * @param {?Object} explanation of `/api/v1/artifacts/{digest}/layers`.
 * @param {string} artifact the artifact's digest.
 */
export function layers(explanation, artifact) {
  if (!explanation) return [h("p", { class: "quiet" }, "This artifact has no such report.")];
  const { profile, layers: all } = explanation;
  const weight = (layer) => (profile ? layer.seconds : layer.macs);
  const most = Math.max(...all.map(weight), Number.MIN_VALUE);
  return [profile ? measured(profile) : unmeasured(artifact), ...shares(explanation), h("ul", { class: "bars layers" }, all.map((layer) => row(layer, weight(layer) / most, profile)))];
}

function row(layer, share, profile) {
  const facts = Object.entries(layer.facts).flatMap(([name, fact]) => (typeof fact === "string" ? [fact] : fact ? [`${fact} ${name.replaceAll("_", " ")}`] : []));
  const why = [...new Set(Object.values(layer.reasons))];
  const peak = layer.peak_percent;
  return h(
    "li", { class: layer.kernel ? null : "plain" },
    h("span", { class: "name", title: layer.layer }, short(layer.layer) || "generated code"),
    h("span", { class: "quiet kernel" }, layer.kernel ?? "no kernel"),
    bar(share, layer.kernel ? (peak ? "timed" : "") : "slow", peak ? { ideal: peak / 100 } : {}),
    h("span", { class: "value" }, profile ? duration(layer.seconds) : layer.macs ? `${count(layer.macs)} MAC` : ""),
    h("span", { class: "quiet note" }, [peak && `${peak.toFixed(1)} % of peak`, layer.operators, ...facts, ...why].filter(Boolean).join(" · ")),
  );
}

/** Draws the share of time of each type of code, and a warning if operators spend much time in generated code. */
function shares({ kinds, seconds, macs, warning }) {
  if (!seconds) return [];
  const part = ([kind, total]) => h(
    "li", { class: kind === "generated" ? "plain" : null },
    h("span", { class: "name" }, KINDS[kind] ?? kind),
    h("span", { class: "quiet kernel" }, macs ? `${(100 * total.macs / macs).toFixed(1)} % of MAC` : ""),
    bar(total.seconds / seconds, kind === "generated" ? "slow" : "good"),
    h("span", { class: "value" }, `${(100 * total.seconds / seconds).toFixed(1)} %`),
  );
  return [h("ul", { class: "bars kinds" }, Object.entries(kinds).map(part)), warning && h("p", { class: "warning" }, warning)].filter(Boolean);
}

function measured({ machine, threads, model_seconds: seconds, peak_macs_per_s: peak }) {
  const top = peak ? `, which computes at most ${count(peak)} multiply-accumulates per second: the dark part of a bar is the time at that rate` : "";
  return h("p", {}, h("b", {}, duration(seconds)), ` on ${machine || "its machine"}, ${threads} ${threads === 1 ? "thread" : "threads"}${top}`);
}

function unmeasured(artifact) {
  return h("p", { class: "quiet" }, "Bars show multiply-accumulates, not times: the machine that built the model could not measure it. ", h("code", {}, `octet explain DATA_DIR/store --artifact ${artifact} --attach`), " measures it, on a machine that runs it.");
}

/** Shortens a name. Converters join the full paths of all tensors that were fused; the end of the first is enough. */
function short(name) {
  return name.split(";")[0].split("/").slice(-2).join("/");
}
