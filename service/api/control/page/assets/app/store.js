// The state of the server, as the stream of updates reports it, and the components that show it.

import { useEffect, useState } from "../vendor/hooks.js";

const PARTS = ["models", "index", "builds", "quarantine", "broken", "load", "latency"];

/** The state. `connection` is connecting, open, refused or unreachable; `hello` describes the server. */
export const state = { connection: "connecting", problem: null, hello: null, isReady: null, targets: [], prompt: null, announced: "" };
for (const part of PARTS) state[part] = new Map();

const listeners = new Set();

/** Changes members of the state, and draws the components that use it. */
export function update(members) {
  Object.assign(state, members);
  for (const listener of [...listeners]) listener();
}

/** Applies an event of the stream; the first of a connection replaces everything. */
export function apply(change, isFirst) {
  for (const part of PARTS) {
    if (!isFirst && !(part in change)) continue;
    const { set = {}, gone = [] } = change[part] ?? {};
    const items = isFirst ? new Map() : new Map(state[part]);
    for (const key of gone) items.delete(key);
    for (const [key, item] of Object.entries(set)) items.set(key, part === "builds" ? withCourse(item, state.builds.get(key)) : item);
    state[part] = items;
  }
  update({});
}

/** Adds or replaces a build that a request returned, until the stream reports it. */
export function addBuild(build) {
  if (state.builds.has(build.id) && state.builds.get(build.id).state === build.state) return;
  update({ builds: new Map(state.builds).set(build.id, { course: null, ...build }) });
}

/** Reads aloud a text to users of screen readers. */
export function announce(text) {
  update({ announced: text });
}

/** Draws the component again whenever the state changes, and returns the state. */
export function useStore() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((count) => count + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return state;
}

/** Keeps the stages of a build that has ended: the server sends them for a short time only. */
function withCourse(build, known) {
  return build.course === null && known?.course ? { ...build, course: known.course } : build;
}
