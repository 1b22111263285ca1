// A dialog with a form.

import { html } from "../app/html.js";
import { useEffect, useRef } from "../vendor/hooks.js";

/**
 * @param {string} title
 * @param {function()} onClose called when the user dismisses the dialog.
 * @param {function(Event)} onSubmit called when the user confirms.
 */
export function Dialog({ id, title, onClose, onSubmit, wide = false, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
    return () => dialog.current?.close();
  }, []);
  const submit = (event) => { event.preventDefault(); onSubmit(event); };
  return html`<dialog ref=${dialog} id=${id} class=${wide ? "wide" : ""} aria-labelledby=${`${id}-title`} onCancel=${onClose} onClose=${onClose}>
    <form onSubmit=${submit}>
      <h2 id=${`${id}-title`}>${title}</h2>
      ${children}
    </form>
  </dialog>`;
}
