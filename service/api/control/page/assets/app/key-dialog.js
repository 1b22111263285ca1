// The prompt for an API key.

import { Dialog } from "../parts/dialog.js";
import { useRef } from "../vendor/hooks.js";
import { html } from "./html.js";

export function KeyDialog({ why, answer }) {
  const field = useRef(null);
  const use = () => answer(field.current.value.trim());
  return html`<${Dialog} id="key-dialog" title="This server requires a key" onClose=${() => answer("")} onSubmit=${use}>
    <p>${why}</p>
    <label>API key <input ref=${field} id="key" type="password" autocomplete="off" required /></label>
    <p class="quiet">It is kept until this tab is closed.</p>
    <div class="buttons">
      <button type="submit">Use it</button>
      <button type="button" class="plain" onClick=${() => answer("")}>Not now</button>
    </div>
  </${Dialog}>`;
}
