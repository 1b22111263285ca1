// Requests to the server.

import { askForKey, key } from "./key.js";

export const ROOT = new URL("../..", import.meta.url);

/** An error response of the server. */
export class Problem extends Error {
  constructor(status, members) {
    super(members.detail ?? members.error ?? `The server answered ${status}.`);
    this.status = status;
    this.hint = members.hint ?? null;
    this.place = [members.stage, members.op, members.tensor].filter(Boolean).join(", ");
  }
}

/** The server did not respond. */
export class Unreachable extends Error {}

/** Returns the response to a request; throws a `Problem` or `Unreachable`. Prompts for a key if one is required and a user is present. */
export async function ask(path, { headers = {}, unattended = false, ...options } = {}) {
  const used = key();
  const identity = used === null ? {} : { Authorization: `Bearer ${used}` };
  const response = await fetch(new URL(path, ROOT), { ...options, headers: { ...headers, ...identity } }).catch((error) => {
    throw new Unreachable("The server did not respond.", { cause: error });
  });
  if (response.ok || response.status === 304) return response;
  const problem = new Problem(response.status, await membersOf(response));
  if (response.status === 401 && !unattended && (await askForKey(used, problem.message))) {
    return ask(path, { headers, ...options });
  }
  throw problem;
}

/** Returns the response's JSON. */
export async function json(path, options) {
  return (await ask(path, options)).json();
}

/** Sends a JSON body, and returns the response's JSON. */
export function send(method, path, body) {
  return json(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** Returns the response's JSON, or null for a 404 or for a response without content. */
export async function jsonIfAny(path, options) {
  try {
    const response = await ask(path, options);
    return response.status === 204 ? null : await response.json();
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}

/** Sends the file at `path` of this server to the user, as a download. (A plain link would not send the key.) */
export async function download(path, name) {
  const url = URL.createObjectURL(await (await ask(path.replace(/^\//, ""))).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/**
 * Yields the server-sent events of a response. (An EventSource cannot send a key.)
 *
 * @yields {{kind: string, data: Object}}
 */
export async function* events(response, onText = () => {}) {
  let rest = "";
  for await (const text of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
    onText();
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
      if (event.data !== undefined) yield { kind: event.event ?? "message", data: JSON.parse(event.data) };
    }
  }
}

async function* chunks(stream) { // Safari's streams cannot be iterated
  const reader = stream.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

async function membersOf(response) {
  try {
    return await response.json();
  } catch {
    return {};
  }
}
