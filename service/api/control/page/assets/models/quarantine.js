// Artifacts that are no longer run, because the server crashed while running them, and files that cannot be served.

import { ask } from "../app/api.js";
import { html } from "../app/html.js";
import { Failure, State } from "../parts/basics.js";
import { useState } from "../vendor/hooks.js";

export function Quarantine({ held }) {
  const [error, setError] = useState(null);
  const forgive = (artifact) => ask(`api/v1/quarantine/${artifact}`, { method: "DELETE" }).then(() => setError(null), setError);
  return html`<div id="quarantine">${held.map(({ artifact, crashes, how, models }) => html`
    <p key=${artifact}>
      <${State} kind="failed" word="in quarantine" />
      ${` ${names(models)}: the server crashed ${crashes.length === 1 ? "once" : `${crashes.length} times`} while it ran (${how}). `}
      <button type="button" class="link" onClick=${() => forgive(artifact)}>Let it run again</button>
    </p>`)}<${Failure} error=${error} /></div>`;
}

/** A paragraph for each file of `octet serve --models` that is not served. */
export function BrokenFiles({ files }) {
  return html`<div id="broken-files">${files.map(([file, reason]) => html`<p key=${file}><${State} kind="failed" word="not served" />${` ${file}: ${reason}`}</p>`)}</div>`;
}

function names(models) {
  return models.map(({ name, version, target }) => `${name} version ${version} for ${target}`).join(", ") || "an artifact that no model uses";
}
