// The API keys: lists, creates and revokes them.

import { json } from "../app/api.js";
import { ago, count } from "../app/format.js";
import { html } from "../app/html.js";
import { may } from "../app/live.js";
import { Card, Failure, State, Title } from "../parts/basics.js";
import { Question } from "../parts/question.js";
import { useRequest } from "../parts/use-request.js";
import { useState } from "../vendor/hooks.js";
import { NewKey } from "./new-key.js";

export function KeysView() {
  const [question, ask] = useState(null);
  const listed = useRequest(() => (may("admin") ? json("api/v1/keys") : Promise.resolve(null)), [may("admin")]);
  const keys = listed.value?.keys ?? [];
  const revoke = (key) => ask(html`<${Question} title=${`Revoke the key ${key.name}?`} text="Requests with this key are refused from now on. This cannot be undone." action="Revoke" isDanger=${true}
    send=${() => json(`api/v1/keys/${key.id}`, { method: "DELETE" })} onDone=${listed.reload} onClose=${() => ask(null)} />`);
  if (!may("admin")) return html`<${Title}>Keys</${Title}><p>Only a key with the scope admin shows and creates keys.</p>`;
  return html`
    <${Title}>Keys</${Title}>
    <${Card} id="keys-card" title="API keys">
      <${Failure} error=${listed.error} />
      ${!keys.length && !listed.isLoading && html`<p>There is no key${listed.error ? "" : ": every request from this machine is allowed. Once a key exists, every request needs one, so the first key needs the scope admin"}.</p>`}
      ${keys.length > 0 && html`<table class="matrix" id="keys"><thead><tr><th scope="col">Name</th><th scope="col">Scopes</th><th scope="col">Limits</th><th scope="col">Created</th><th scope="col">State</th></tr></thead>
        <tbody>${keys.map((key) => html`<tr key=${key.id}>
          <th scope="row"><b>${key.name}</b> <code class="quiet">${key.id}</code>${key.tenant && html` <span class="tag">${key.tenant}</span>`}</th>
          <td data-column="Scopes">${key.scopes.join(", ")}</td>
          <td data-column="Limits">${limits(key)}</td>
          <td data-column="Created">${ago(key.created_at)}</td>
          <td data-column="State">${key.revoked_at ? html`<${State} kind="canceled" word="revoked" />` : html`<button type="button" class="plain small" onClick=${() => revoke(key)}>${`Revoke ${key.name}`}</button>`}</td>
        </tr>`)}</tbody></table>`}
    </${Card}>
    <${Card} id="new-key-card" title="Create a key"><${NewKey} onDone=${listed.reload} isFirst=${!keys.length} /></${Card}>
    ${question}
  `;

  function limits({ requests_per_s: rate, requests_per_day: quota }) {
    return [rate && `${count(rate)} per second`, quota && `${count(quota)} per day`].filter(Boolean).join(", ") || "none";
  }
}
