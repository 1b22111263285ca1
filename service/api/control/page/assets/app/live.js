// Follows the server: one stream of changes while the page is visible, and a sample of the load each second.

import { ask, events, json, Problem, Unreachable } from "./api.js";
import { record } from "./history.js";
import { askForKey, key } from "./key.js";
import { apply, state, update } from "./store.js";

const SAMPLE_MS = 1000;
const AGAIN_MS = 1000;
const SILENCE_MS = 40_000; // the server sends a comment after 15 s without changes

let isAttended = true; // false after the user has dismissed the prompt for a key
let connection = new AbortController();

/** Connects, and connects again whenever the stream ends. Never returns. */
export async function follow() {
  setInterval(() => { if (state.connection === "open") record(); }, SAMPLE_MS);
  for (const kind of ["visibilitychange", "offline", "online"]) {
    (kind === "visibilitychange" ? document : window).addEventListener(kind, reconnect);
  }
  for (;;) {
    if (!document.hidden) await once();
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Ends the connection, so that another one is opened: for another key, or because the network has changed. */
export function reconnect() {
  connection.abort();
}

/** Prompts for another key, and connects with it. */
export async function enterKey() {
  isAttended = await askForKey(key(), "A key with the scope read shows everything.");
  if (isAttended) reconnect();
}

async function once() {
  connection = new AbortController();
  const silence = watchSilence(connection);
  try {
    const response = await ask("api/v1/updates", { unattended: !isAttended, signal: connection.signal });
    let isFirst = true;
    for await (const { kind, data } of events(response, silence.heard)) {
      if (kind === "hello") greet(data);
      if (kind === "problem") throw Object.assign(new Error(data.detail), { hint: data.hint });
      if (kind === "change") {
        apply(data, isFirst);
        if (isFirst || "index" in data) learnReadiness();
        if (isFirst) record();
        isFirst = false;
      }
    }
  } catch (error) {
    explain(error);
  } finally {
    silence.stop();
  }
}

function watchSilence(controller) {
  let timer = null;
  const stop = () => clearTimeout(timer);
  const heard = () => { stop(); timer = setTimeout(() => controller.abort(), SILENCE_MS); };
  heard();
  return { heard, stop };
}

function greet(hello) {
  isAttended = true;
  update({ hello, connection: "open", problem: null });
  if (state.targets.length === 0 && may("read", "push")) learnTargets();
}

/** Returns true if the key has one of the scopes. */
export function may(...scopes) {
  return scopes.some((scope) => state.hello?.scopes.includes(scope));
}

async function learnTargets() {
  try {
    update({ targets: (await json("api/v1/targets", { unattended: true })).targets });
  } catch { // the next connection asks again
  }
}

async function learnReadiness() {
  try {
    await ask("v2/health/ready", { unattended: true });
    update({ isReady: true });
  } catch (error) {
    if (error.status === 503) update({ isReady: false });
  }
}

function explain(error) {
  if (document.hidden) return;
  if (error.status === 401 || error.status === 403) {
    isAttended = false;
    update({ connection: "refused", problem: error });
  } else if (error instanceof Unreachable || error.name === "AbortError" || error instanceof TypeError) {
    if (connection.signal.aborted && navigator.onLine) return; // this page ended the connection
    update({ connection: "unreachable", problem: null });
  } else {
    update({ connection: "failed", problem: error });
    if (!(error instanceof Problem)) console.error(error);
  }
}
