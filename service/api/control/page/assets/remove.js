// Deletes a model, or one version of it, after confirmation.

import { json } from "./api.js";
import { question } from "./question.js";

/**
 * @param {string} model
 * @param {?number} version null for all versions.
 * @param {function()} onDone called after the deletion.
 */
export async function remove(model, version, onDone) {
  const what = version === null ? `model ${model}, with all its versions` : `version ${version} of ${model}`;
  const { aliases } = await json(`api/v1/models/${model}/aliases`);
  const pointing = aliases.filter((alias) => version === null || alias.version === version || alias.canary?.version === version);
  const names = pointing.map(({ name }) => `"${name}"`).join(", ");
  const path = version === null ? `api/v1/models/${model}` : `api/v1/models/${model}/versions/${version}`;
  question({
    title: `Delete ${what}?`,
    text: `Requests that are running are still answered.${names && ` ${names} refers to it, and is deleted too.`} This cannot be undone.`,
    action: "Delete",
    send: () => json(names ? `${path}?force=true` : path, { method: "DELETE" }),
    onDone,
  });
}
