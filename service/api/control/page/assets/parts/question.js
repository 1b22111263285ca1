// A question before an action that changes what is served.

import { html } from "../app/html.js";
import { useState } from "../vendor/hooks.js";
import { Failure } from "./basics.js";
import { Dialog } from "./dialog.js";

/**
 * Shows the dialog until the action has succeeded or the dialog is dismissed. It shows the server's errors.
 *
 * @param {string} title, text, action the question, what will change, and the label of the button that confirms.
 * @param {function()} send sends the action; returns a promise.
 * @param {function()} onDone called after the action.
 */
export function Question({ title, text, action, isDanger = false, send, onDone, onClose, children }) {
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  async function confirm() {
    setSending(true);
    try {
      await send();
      onClose();
      await onDone?.();
    } catch (problem) {
      setError(problem);
      setSending(false);
    }
  }
  return html`<${Dialog} id="question" title=${title} onClose=${onClose} onSubmit=${confirm}>
    <p>${text}</p>
    ${children}
    <${Failure} error=${error} />
    <div class="buttons">
      <button type="submit" class=${isDanger ? "danger" : ""} disabled=${isSending}>${action}</button>
      <button type="button" class="plain" onClick=${onClose}>Cancel</button>
    </div>
  </${Dialog}>`;
}
