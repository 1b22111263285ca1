// The form that creates a key. The key itself is shown once.

import { send } from "../app/api.js";
import { html } from "../app/html.js";
import { Failure } from "../parts/basics.js";
import { Copyable } from "../parts/copyable.js";
import { useState } from "../vendor/hooks.js";

const SCOPES = {
  predict: "predictions", read: "reading everything except keys", push: "models, builds and promotions", metrics: "the metrics for Prometheus", admin: "everything",
};

/** @param {boolean} isFirst true if no key exists: then the scope admin is chosen, without which the server refuses it. */
export function NewKey({ isFirst, onDone }) {
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  async function create(event) {
    event.preventDefault();
    const fields = new FormData(event.target);
    const number = (name) => (fields.get(name) ? Number(fields.get(name)) : null);
    const body = { name: fields.get("name"), scopes: fields.getAll("scope"), requests_per_s: number("requests_per_s"), requests_per_day: number("requests_per_day"), tenant: fields.get("tenant") };
    try {
      setMade(await send("POST", "api/v1/keys", body));
      setError(null);
      event.target.reset();
      onDone();
    } catch (problem) {
      setError(problem);
    }
  }
  return html`<form id="new-key" onSubmit=${create}>
    <div class="fields">
      <label>Name <input name="name" required maxlength="63" placeholder="camera 7" autocomplete="off" /></label>
      <label>Most requests per second <input name="requests_per_s" type="number" min="0" step="any" inputmode="decimal" /></label>
      <label>Most requests per day <input name="requests_per_day" type="number" min="1" inputmode="numeric" /></label>
      <label>Tenant, if its models alone are meant <input name="tenant" autocomplete="off" autocapitalize="none" /></label>
    </div>
    <fieldset><legend>Scopes</legend>${Object.entries(SCOPES).map(([scope, what]) => html`
      <label class="check" key=${scope}><input type="checkbox" name="scope" value=${scope} defaultChecked=${scope === (isFirst ? "admin" : "predict")} /> ${`${scope}: ${what}`}</label>`)}
    </fieldset>
    <button type="submit">Create the key</button>
    <${Failure} error=${error} />
    ${made && html`<div role="status"><p>The key <b>${made.name}</b> is shown only now. Copy it:</p><${Copyable} text=${made.key} label="Key" /></div>`}
  </form>`;
}
