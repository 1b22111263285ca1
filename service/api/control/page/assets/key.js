// The key of a server that wants one. It is kept for this tab, and goes to nobody but the server of the page.

import { element } from "./dom.js";

const NAME = "octet-key";
let asking = null;

export function key() {
  return sessionStorage.getItem(NAME);
}

/**
 * Asks for another key than `used`, once however many requests wait for it.
 *
 * @param {?string} used what the server did not take.
 * @param {string} why what it said.
 * @returns {Promise<boolean>} whether there is one now.
 */
export async function askForKey(used, why) {
  if (key() !== used) return key() !== null; // somebody else has asked meanwhile
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
