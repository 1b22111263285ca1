// The API key, if the server requires one. It is kept for this tab, and sent only to the page's server.

import { state, update } from "./store.js";

const NAME = "octet-key";
let asking = null;

export function key() {
  return sessionStorage.getItem(NAME);
}

export function forgetKey() {
  sessionStorage.removeItem(NAME);
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
  return new Promise((resolve) => {
    update({ prompt: { why, answer } });

    function answer(given) {
      if (state.prompt === null) return;
      if (given) sessionStorage.setItem(NAME, given);
      else forgetKey();
      update({ prompt: null });
      resolve(Boolean(given));
    }
  });
}
