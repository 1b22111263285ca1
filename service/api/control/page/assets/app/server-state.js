// The state of the server, in the header.

import { State } from "../parts/basics.js";
import { html } from "./html.js";
import { may } from "./live.js";

export function ServerState({ state, onKey }) {
  const [kind, word, more] = described(state);
  return html`<p id="server" role="status">
    <${State} kind=${kind} word=${word} />
    ${more && html`<span class="quiet">${more}</span>`}
    ${state.connection === "refused" && html`<button type="button" class="plain small" id="enter-key" onClick=${onKey}>Enter a key</button>`}
  </p>`;
}

function described({ connection, problem, isReady, hello }) {
  if (connection === "connecting") return ["queued", "connecting", ""];
  if (connection === "refused") return ["failed", "no access", problem.message];
  if (connection === "unreachable") return ["failed", "not reachable", ""];
  if (connection === "failed") return ["failed", "error", problem.message];
  const more = may("read", "push") ? hello.cpu ?? "" : "This key allows predictions only.";
  return isReady === false ? ["running", "not ready", more] : ["succeeded", "ready", more];
}
