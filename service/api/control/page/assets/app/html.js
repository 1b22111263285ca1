// Creates elements from templates. Text stays text; nothing here parses markup.

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

// Control characters and bidirectional controls, except tabs and line breaks. In a name from a model file they could make
// the page show a text other than the name.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Replaces characters that could make the page show another text than the given one. */
export function visible(child) {
  if (typeof child === "string") return child.replace(UNSAFE, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return Array.isArray(child) ? child.map(visible) : child;
}

/** A template of elements: html`<p class=${kind}>${text}</p>`. */
export const html = htm.bind((type, properties, ...children) => h(type, properties, ...children.map(visible)));
