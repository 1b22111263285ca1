// Describes a version after the upload: its labels and its tokenizer, if files with them were chosen.

import { json, send } from "../app/api.js";

export async function describe({ model, version }, labels, tokenizer) {
  const path = `api/v1/models/${model}/versions/${version}`;
  if (tokenizer) await json(`${path}/tokenizer`, { method: "PUT", body: tokenizer, headers: { "Content-Type": "application/octet-stream" } });
  if (labels) await send("PATCH", path, { labels: (await labels.text()).trimEnd().split(/\r?\n/) });
}
