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
 * Returns the class of each pixel, if the only output is `[1, height, width, classes]`: `{ classes, height, width, count }`;
 * else null.
 */
export function maskOf(outputs) {
  if (outputs.length !== 1 || outputs[0].shape.length !== 4) return null;
  const [{ shape: [batch, height, width, count], values }] = outputs;
  if (batch !== 1 || height < 8 || width < 8) return null;
  const best = (scores) => scores.reduce((top, score, index) => (score > scores[top] ? index : top), 0);
  const one = ([score]) => (score > 0.5 ? 1 : 0);
  return { classes: values[0].flatMap((row) => row.map(count > 1 ? best : one)), height, width, count };
}

/** Draws each class of a mask in a colour; class 0, the background, is left out. */
export function Mask({ mask: { classes, height, width } }) {
  const canvas = useRef(null);
  useEffect(() => {
    const context = canvas.current.getContext("2d");
    context.clearRect(0, 0, width, height);
    classes.forEach((index, place) => {
      if (!index) return;
      context.fillStyle = `hsl(${HUES[index % HUES.length]} 80% 50% / 55%)`;
      context.fillRect(place % width, Math.floor(place / width), 1, 1);
    });
  }, [classes]);
  return html`<canvas ref=${canvas} class="mask" width=${width} height=${height} aria-label="the classes of the pixels"></canvas>`;
}
