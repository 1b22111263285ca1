// A question before something is changed.

import { element, failure, show } from "./dom.js";

const ALL = 100;

/**
 * Asks, and stays until it is done or dismissed; what the server refuses, it says there.
 *
 * @param {Object} question its title and text, the word for what is done, whether a share of the requests is asked for,
 *   what sends it (given the share, in percent), and what is called when it is done.
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
