// A confirmation dialog.

import { element, failure, show } from "./dom.js";

const ALL = 100;

/**
 * Shows the dialog until the action has succeeded or the dialog is dismissed. It shows the server's errors.
 *
 * @param {Object} question title and text; the action's label; `share`, true to let the user choose a share of the
 *   requests; `send`, called with the share in percent; and `onDone`, called after the action.
 */
export function question({ title, text, share = false, action, send, onDone }) {
  const dialog = element("question-dialog");
  const percent = element("question-percent");
  element("question-title").textContent = title;
  element("question-text").textContent = text;
  element("question-share").hidden = !share;
  percent.disabled = !share;
  percent.value = ALL;
  show(element("question-problem"));
  const confirm = element("question-confirm");
  confirm.textContent = action;
  confirm.disabled = false;
  element("question-form").onsubmit = async (event) => {
    if (event.submitter !== confirm) return;
    event.preventDefault();
    confirm.disabled = true;
    try {
      await send(share ? Number(percent.value) : ALL);
      dialog.close();
      await onDone();
    } catch (error) {
      show(element("question-problem"), failure(error));
      confirm.disabled = false;
    }
  };
  dialog.showModal();
}
