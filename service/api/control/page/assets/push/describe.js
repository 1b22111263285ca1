// Describes a version after the upload: its labels, its tokenizer, and what the model expects of sounds and tables.

import { json, send } from "../app/api.js";

/**
 * @param {Object} build the build that the upload started.
 * @param {File} labels a file with a label in each line, or null.
 * @param {File} tokenizer a tokenizer.json, or null.
 * @param {Object} metadata more members of the version's metadata.
 */
export async function describe({ model, version }, labels, tokenizer, metadata) {
  const path = `api/v1/models/${model}/versions/${version}`;
  if (tokenizer) await json(`${path}/tokenizer`, { method: "PUT", body: tokenizer, headers: { "Content-Type": "application/octet-stream" } });
  const members = { ...metadata };
  if (labels) members.labels = (await labels.text()).trimEnd().split(/\r?\n/);
  if (Object.keys(members).length) await send("PATCH", path, members);
}

/** Returns the members of the metadata that the form has; empty fields are left out. */
export function metadataOf(fields) {
  const members = {};
  if (fields.get("sampling_rate")) members.sampling_rate = Number(fields.get("sampling_rate"));
  if (fields.get("standardize")) members.standardize = fields.get("standardize") === "true";
  const columns = (fields.get("columns") ?? "").split(",").map((name) => name.trim()).filter(Boolean);
  if (columns.length) members.columns = columns;
  return members;
}
