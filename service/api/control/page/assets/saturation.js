// The values that requests caused in a model, beside the ranges that calibration chose.

import { jsonIfAny } from "./api.js";
import { h, svg } from "./dom.js";
import { count, percent, significant } from "./format.js";

const WIDTH = 192; // one unit for each bin of a histogram
const HEIGHT = 24;
const COLOURS = { off: "queued", waiting: "queued", within: "succeeded", outside: "failed" };

/** Returns the counts of a version; null if the version was deleted, or the key may not read them. */
export async function saturationOf(name, version) {
  try {
    return await jsonIfAny(`api/v1/models/${name}/saturation?version=${version}`);
  } catch (error) {
    if (error.status === 403) return null;
    throw error;
  }
}

/** Draws the state of a version, and a histogram of each tensor, the most clipped first. */
export function saturation(found) {
  if (!found) return [h("p", { class: "quiet" }, "This server has no counts of this version.")];
  const { state, reason, samples, dropped, days, tensors } = found;
  if (!tensors.length) return [h("p", { class: "quiet" }, h("span", { class: `state ${COLOURS[state]}` }, state), ` ${reason}`)];
  const outside = tensors.filter((each) => each.state === "outside");
  const worst = [...tensors].sort((a, b) => b.clipped - a.clipped);
  return [
    h("p", {}, h("span", { class: `state ${COLOURS[state]}` }, state), ` ${count(samples)} requests of ${days} days`, dropped > 0 && `, ${count(dropped)} dropped`),
    ...outside.map(({ tensor, clipped }) => h("p", { class: "warning" }, `Live data leaves the calibrated range of ${tensor}: ${percent(clipped)} of its values are clipped.`)),
    h("ul", { class: "bars ranges" }, worst.map(row)),
  ];
}

function row({ tensor, stored, live, clipped, activation, histogram, state }) {
  const ends = activation.length ? ` · ${activation.map((end) => `its ${end} end is an activation's`).join(", ")}` : "";
  return h(
    "li", { class: state },
    h("span", { class: "name", title: tensor }, tensor),
    h("span", { class: "value" }, `${percent(clipped)} clipped`),
    picture(histogram, `calibrated ${range(stored)}, live ${range(live)}`),
    h("span", { class: "quiet note" }, `calibrated ${range(stored)} · live ${range(live)}${ends}`),
  );
}

/** Draws a histogram on a logarithmic scale. The calibrated range is the middle third, with a background. */
function picture(histogram, label) {
  const most = Math.log1p(Math.max(...histogram, 1));
  const bars = histogram.map((values, index) => {
    const height = (HEIGHT * Math.log1p(values)) / most;
    const isClipped = index < WIDTH / 3 || index >= (2 * WIDTH) / 3;
    return values > 0 && svg("rect", { x: index, y: HEIGHT - height, width: 1, height, class: isClipped ? "beyond" : "inside" });
  });
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("rect", { x: WIDTH / 3, y: 0, width: WIDTH / 3, height: HEIGHT, class: "calibrated" }), bars);
}

function range({ low, high }) {
  return `${significant(low)} to ${significant(high)}`;
}
