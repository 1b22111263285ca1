// Describes a version after the upload: its labels, its task, and its tokenizer.

import { json, send } from "../app/api.js";

const OF_TEXT = ["pooling", "max_length", "normalize"];

/** Returns true if the form has anything to add to the version. */
export function isDescribed(fields, labels, tokenizer) {
  return labels !== null || tokenizer !== null || ["task", ...OF_TEXT].some((name) => fields.get(name));
}

export async function describe({ model, version }, fields, labels, tokenizer) {
  const path = `api/v1/models/${model}/versions/${version}`;
  if (tokenizer) await json(`${path}/tokenizer`, { method: "PUT", body: tokenizer, headers: { "Content-Type": "application/octet-stream" } });
  const text = {
    ...(fields.get("pooling") ? { pooling: fields.get("pooling") } : {}),
    ...(fields.get("max_length") ? { max_length: Number(fields.get("max_length")) } : {}),
    ...(fields.has("normalize") ? { normalize: true } : {}),
  };
  const members = {
    ...(labels ? { labels: (await labels.text()).trimEnd().split(/\r?\n/) } : {}),
    ...(fields.get("task") ? { task: fields.get("task") } : {}),
    ...(Object.keys(text).length ? { text } : {}),
  };
  if (Object.keys(members).length) await send("PATCH", path, members);
}
