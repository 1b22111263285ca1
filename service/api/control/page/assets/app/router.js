// The address of what the page shows: the part of the URL after #, such as "#/models/digits/2/layers?build=…".

import { useEffect, useState } from "../vendor/hooks.js";

const HOME = "/models";

/** Parses the address: `{ path: ["models", "digits"], query: URLSearchParams }`. */
export function route() {
  const [path, query] = (location.hash.slice(1) || HOME).split("?", 2);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { path: parts.length ? parts : [HOME.slice(1)], query: new URLSearchParams(query ?? "") };
}

/** Returns the link to a page: linkTo(["models", "digits", 2], { build: id }). Members that are null are left out. */
export function linkTo(path, query = {}) {
  const members = Object.entries(query).filter(([, value]) => value !== null && value !== undefined);
  const text = new URLSearchParams(members).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

export function go(path, query = {}) {
  location.hash = linkTo(path, query);
}

/** Changes members of the query of the current address; null removes one. Adds no entry to the history if `replace`. */
export function changeQuery(members, { replace = false } = {}) {
  const { path, query } = route();
  const link = linkTo(path, { ...Object.fromEntries(query), ...members });
  if (!replace) location.hash = link;
  else {
    history.replaceState(null, "", link);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

/** Returns the address, and draws the component again when it changes. */
export function useRoute() {
  const [current, set] = useState(route);
  useEffect(() => {
    const update = () => set(route());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return current;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch { // a link that a user typed
    return part;
  }
}
