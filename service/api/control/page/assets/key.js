// The API key, if the server requires one. It is kept for this tab, and sent only to the page's server.

import { element } from "./dom.js";

const NAME = "octet-key";
let asking = null;

export function key() {
  return sessionStorage.getItem(NAME);
}

/**
 * Prompts for a key other than `used`, once for all waiting requests.
 *
 * @param {?string} used the key that the server rejected.
 * @param {string} why the server's message.
 * @returns {Promise<boolean>} true if there is a key now.
 */
export async function askForKey(used, why) {
  if (key() !== used) return key() !== null; // another request has prompted in the meantime
  asking ??= shown(why).finally(() => { asking = null; });
  return asking;
}

function shown(why) {
  const dialog = element("key-dialog");
  const field = element("key");
  element("key-why").textContent = why;
  field.value = "";
  dialog.returnValue = "none";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "use" ? field.value.trim() : "";
      if (given) sessionStorage.setItem(NAME, given);
      else sessionStorage.removeItem(NAME);
      field.value = "";
      resolve(given !== "");
    }, { once: true });
  });
}
