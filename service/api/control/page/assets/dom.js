// Creates elements from values. Text stays text; nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";

const listening = new WeakSet(); // elements with event listeners

/**
 * Creates an HTML element.
 *
 * @param {string} name
 * @param {Object} attributes by name. A function is a listener, with a name like `onclick`. Values null, undefined and
 *   false are left out. `sizes` are CSS custom properties, from which bars are drawn.
 * @param {...(Node|string|number|null|Array)} children
 */
export function h(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Creates an SVG element, like `h`. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, { sizes = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
      listening.add(element);
    } else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const [name, value] of Object.entries(sizes)) element.style.setProperty(`--${name}`, value);
  element.append(...present(children));
  return element;
}

/**
 * Replaces the content of `place` with `children`. Elements that equal their replacement are not replaced, so that
 * focus, selections and open details survive, and a button does not disappear under the pointer when another element
 * changes. Therefore listeners must not depend on data that the element does not show.
 */
export function show(place, ...children) {
  const fresh = present(children).map((child) => (child instanceof Node ? child : new Text(child)));
  fresh.forEach((node, index) => {
    const old = place.childNodes[index];
    if (!old) place.append(node);
    else if (old.isEqualNode(node)) return;
    else if (differWithinOnly(old, node)) show(old, ...node.childNodes);
    else replace(old, node);
  });
  while (place.childNodes.length > fresh.length) place.lastChild.remove();
}

/** Draws an error of the server or of this page, with its hint. */
export function failure({ message, hint }) {
  return h("p", { class: "error" }, message, hint && h("span", { class: "quiet hint" }, hint));
}

/**
 * Draws a bar of `share`, from 0 to 1, of the available width. The text next to it gives the value.
 *
 * @param {Object} sizes further CSS properties that the style of this `kind` uses.
 */
export function bar(share, kind = "", sizes = {}) {
  return h("span", { class: `bar ${kind}`, "aria-hidden": "true", sizes: { share: Math.min(1, Math.max(0, share)), ...sizes } });
}

export function element(id) {
  return document.getElementById(id);
}

// Control characters and bidirectional controls, except tabs and line breaks. In a name from a model file they could make
// the page show a text other than the name.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function visible(child) {
  if (typeof child !== "string") return child;
  return child.replace(UNSAFE, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function present(children) {
  const isPresent = (child) => child !== null && child !== undefined && child !== false && child !== "";
  return children.flat(2).filter(isPresent).map(visible);
}

/** Returns true if two elements differ only in their children, and no listener is attached to the elements themselves. */
function differWithinOnly(old, fresh) {
  if (listening.has(old) || listening.has(fresh)) return false;
  return old.nodeType === Node.ELEMENT_NODE && old.cloneNode(false).isEqualNode(fresh.cloneNode(false));
}

function replace(old, fresh) {
  const focused = old.contains(document.activeElement) && document.activeElement.id;
  old.replaceWith(fresh);
  if (focused) element(focused)?.focus({ preventScroll: true });
}
