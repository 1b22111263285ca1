// Small parts of many views: a bar, a state, an error.

import { html } from "../app/html.js";

/** Draws a bar of `share`, from 0 to 1, of the available width. The text next to it gives the value. */
export function Bar({ share, kind = "", ideal = null }) {
  const style = { "--share": Math.min(1, Math.max(0, share || 0)), ...(ideal === null ? {} : { "--ideal": ideal }) };
  return html`<span class=${`bar ${kind}`} style=${style} aria-hidden="true"></span>`;
}

/** Draws a state as a colour and a word. */
export function State({ kind, word, title = null }) {
  return html`<span class=${`state ${kind}`} title=${title}>${word}</span>`;
}

/** Draws an error of the server or of this page, with its hint. */
export function Failure({ error }) {
  if (!error) return null;
  const place = error.place ? ` (${error.place})` : "";
  return html`<p class="error" role="alert">${error.message}${place}${error.hint && html`<span class="quiet hint">${error.hint}</span>`}</p>`;
}

export function Tag({ children, kind = "" }) {
  return html`<span class=${`tag ${kind}`}>${children}</span>`;
}

export function Card({ title, id, children, ...rest }) {
  return html`<article class="card" id=${id} aria-labelledby=${`${id}-title`} ...${rest}>
    <h2 id=${`${id}-title`}>${title}</h2>
    ${children}
  </article>`;
}

/** Draws the title of a page, which gets the focus when the page is opened. */
export function Title({ children, actions = null }) {
  return html`<div class="heading"><h1 id="title" tabindex="-1">${children}</h1>${actions}</div>`;
}
