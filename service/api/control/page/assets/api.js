// Requests to the server.

import { askForKey, key } from "./key.js";

const ROOT = new URL("..", import.meta.url);

/** An error response of the server. */
export class Problem extends Error {
  constructor(status, members) {
    super(members.detail ?? members.error ?? `The server answered ${status}.`);
    this.status = status;
    this.hint = members.hint ?? null;
  }
}

/** The server did not respond. */
export class Unreachable extends Error {}

/** Returns the response to a request; throws a `Problem` or `Unreachable`. Prompts for a key if one is required and a user is present. */
export async function ask(path, { headers = {}, unattended = false, ...options } = {}) {
  const used = key();
  const identity = used === null ? {} : { Authorization: `Bearer ${used}` };
  const response = await fetch(new URL(path, ROOT), { ...options, headers: { ...headers, ...identity } }).catch((error) => {
    throw new Unreachable(error.message, { cause: error });
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

/** Yields the items `member` of a list, page by page. */
export async function* pages(path, member, options) {
  for (let next = path; next; ) {
    const response = await ask(next, options);
    yield (await response.json())[member];
    next = /<([^>]+)>;\s*rel="next"/.exec(response.headers.get("link") ?? "")?.[1].replace(/^\//, "");
  }
}

/**
 * Yields server-sent events until the stream ends. After a lost connection, resumes after the last event. (An EventSource cannot send a key.)
 *
 * @yields {{kind: string, data: Object}}
 */
export async function* events(path, options) {
  let last = null;
  for (let failures = 0; failures < 5; failures += 1) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const response = await ask(path, { headers, ...options });
      if (response.status === 204) return;
      for await (const event of parsed(response.body)) {
        if (event.id) last = event.id;
        failures = 0;
        yield { kind: event.event ?? "message", data: JSON.parse(event.data) };
      }
    } catch (error) {
      if (error instanceof Problem) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function* parsed(body) {
  let rest = "";
  for await (const text of chunks(body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
      if (event.data !== undefined) yield event;
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
