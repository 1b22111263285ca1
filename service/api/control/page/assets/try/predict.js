// Sends a prediction, as a request that the examples of code show too.

import { ask } from "../app/api.js";

/**
 * A request: `path` with a query, `body` (a Blob or text), its `type`, and `file`, the name of the file in the examples
 * of code; null if the body itself is shown there.
 */
export function request(name, version, { body, type, file = null, top = null, path = null }) {
  const query = new URLSearchParams({ version, ...(top ? { top } : {}) });
  return { path: path ?? `api/v1/models/${name}/predict?${query}`, body, type, file };
}

/** Returns `{ result, took_s }`. */
export async function predict({ path, body, type }) {
  const started = performance.now();
  const response = await ask(path, { method: "POST", headers: { "Content-Type": type }, body });
  const result = await response.json();
  return { result, took_s: (performance.now() - started) / 1000 };
}
