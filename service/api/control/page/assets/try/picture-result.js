// The picture that was sent, with boxes or a mask drawn over it.

import { percent } from "../app/format.js";
import { html } from "../app/html.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

const SMALL_PIXELS = 64; // pictures of at most this size are shown with visible pixels
const HUES = [210, 30, 140, 330, 270, 60, 180, 0];

export function Picture({ url, children }) {
  const [isSmall, setSmall] = useState(false);
  const measure = ({ target }) => setSmall(Math.max(target.naturalWidth, target.naturalHeight) <= SMALL_PIXELS);
  return html`<div class="picture"><img src=${url} alt="the picture that was sent" class=${isSmall ? "pixels" : ""} onLoad=${measure} />${children}</div>`;
}

/** Boxes in fractions of the picture, each with its label. */
export function Boxes({ boxes }) {
  return html`<div class="boxes">${boxes.map(({ label, score, left, top, right, bottom }, place) => html`
    <span key=${place} class="box" style=${{ left: percent(left).replace(" ", ""), top: percent(top).replace(" ", ""), width: percent(right - left).replace(" ", ""), height: percent(bottom - top).replace(" ", "") }}>
      <span class="box-label">${`${label} ${percent(score)}`}</span>
    </span>`)}</div>`;
}

/**
 * Returns the class of each pixel, if the only output is `[1, height, width, classes]` or `[1, classes, height, width]`:
 * `{ classes, height, width }`; else null. There are fewer classes than pixels in a row.
 */
export function maskOf(outputs) {
  if (outputs.length !== 1 || outputs[0].shape.length !== 4) return null;
  const [{ shape: [batch, ...sizes], values }] = outputs;
  const isFirst = sizes[0] < sizes[2];
  const [count, height, width] = isFirst ? sizes : [sizes[2], sizes[0], sizes[1]];
  if (batch !== 1 || height < 8 || width < 8) return null;
  const score = (y, x, index) => (isFirst ? values[0][index][y][x] : values[0][y][x][index]);
  const best = (y, x) => {
    if (count === 1) return score(y, x, 0) > 0.5 ? 1 : 0;
    let top = 0;
    for (let index = 1; index < count; index++) if (score(y, x, index) > score(y, x, top)) top = index;
    return top;
  };
  const classes = Array.from({ length: height * width }, (_, place) => best(Math.floor(place / width), place % width));
  return { classes, height, width };
}

/** The classes of a mask, the largest first: their colours, names and shares of the picture. */
export function MaskLegend({ mask: { classes }, labels }) {
  const counts = new Map();
  for (const index of classes) counts.set(index, (counts.get(index) ?? 0) + 1);
  counts.delete(0);
  const found = [...counts].sort((a, b) => b[1] - a[1]);
  return html`<p class="legend mask-legend">${found.length === 0 && html`<span class="quiet">Only background.</span>`}${found.map(([index, count]) => html`
    <span key=${index} style=${{ "--tint": tintOf(index) }}>${`${labels[index] ?? index} ${percent(count / classes.length)}`}</span>`)}</p>`;
}

/** Draws each class of a mask in a colour; class 0, the background, is left out. */
export function Mask({ mask: { classes, height, width } }) {
  const canvas = useRef(null);
  useEffect(() => {
    const context = canvas.current.getContext("2d");
    context.clearRect(0, 0, width, height);
    classes.forEach((index, place) => {
      if (!index) return;
      context.fillStyle = tintOf(index);
      context.fillRect(place % width, Math.floor(place / width), 1, 1);
    });
  }, [classes]);
  return html`<canvas ref=${canvas} class="mask" width=${width} height=${height} aria-label="the classes of the pixels"></canvas>`;
}

function tintOf(index) {
  return `hsl(${HUES[index % HUES.length]} 80% 50% / 55%)`;
}
