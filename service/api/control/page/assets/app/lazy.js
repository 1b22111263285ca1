// Views that are loaded when they are first shown.

import { useEffect, useState } from "../vendor/hooks.js";
import { html } from "./html.js";

const loaded = new Map(); // components by the name of their module

/**
 * Draws a component of a module, with the other properties.
 *
 * @param {string} module the name of the module.
 * @param {function(): Promise} load imports the module.
 * @param {string} component the name of the component in it.
 */
export function Lazy({ module, load, component, ...properties }) {
  const [, redraw] = useState(0);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    if (loaded.has(module)) return;
    load().then((found) => { loaded.set(module, found); redraw((count) => count + 1); }, setFailure);
  }, [module]);
  if (failure) return html`<p class="error">A part of the page could not be loaded. Reload the page.</p>`;
  const found = loaded.get(module);
  return found ? html`<${found[component]} ...${properties} />` : html`<p class="quiet">Loading …</p>`;
}
