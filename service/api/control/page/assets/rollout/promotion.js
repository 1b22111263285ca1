// Chooses the version that answers, and its share of the requests, and rolls back. What will change is said first.

import { send } from "../app/api.js";
import { html } from "../app/html.js";
import { announce } from "../app/store.js";
import { Failure } from "../parts/basics.js";
import { useState } from "../vendor/hooks.js";
import { ALIAS, beforeOf, newestOf } from "./stable.js";

const ALL = 100;

/**
 * @param {?Object} alias the alias "stable"; null if it is not set.
 * @param {number[]} versions the versions with a successful build, newest first.
 * @param {number} chosen the version that the page shows.
 */
export function Promotion({ name, alias, versions, chosen }) {
  const [picked, pick] = useState(null);
  const [share, setShare] = useState(null);
  const [isSending, setSending] = useState(false);
  const [error, setError] = useState(null);
  if (!versions.length) return html`<p class="quiet">No version has a successful build, so none can be promoted.</p>`;
  const version = picked ?? (versions.includes(chosen) ? chosen : versions[0]);
  const canShare = alias !== null && alias.version !== version;
  const percent = canShare ? share ?? currentShare(alias, version) ?? ALL : ALL;
  const isSame = alias !== null && currentShare(alias, version) === percent;

  async function act(path, body, done) {
    setSending(true);
    try {
      await send("POST", `api/v1/models/${name}/${path}`, body);
      setError(null);
      setShare(null);
      announce(done);
    } catch (problem) {
      setError(problem);
    }
    setSending(false);
  }

  const before = alias && beforeOf(alias);
  return html`<form id="promotion" class="promotion" onSubmit=${(event) => { event.preventDefault(); act("promote", { version, percent }, `Version ${version} was promoted.`); }}>
    <div class="fields">
      <label>Version <select id="promote-version" onChange=${({ target }) => { pick(Number(target.value)); setShare(null); }}>
        ${versions.map((each) => html`<option key=${each} value=${each} selected=${each === version}>${each}</option>`)}
      </select></label>
      <label class="slider">${`Share of the requests: ${percent} %`}
        <input id="promote-share" type="range" min="1" max="100" step="1" value=${percent} disabled=${!canShare} onInput=${({ target }) => setShare(Number(target.value))} />
      </label>
    </div>
    <p id="promote-change">${changeOf(alias, version, percent)}</p>
    <div class="buttons">
      <button type="submit" id="promote" disabled=${isSending || isSame}>${`Promote version ${version}`}</button>
      ${alias && before !== undefined && html`<button type="button" class="plain" id="rollback" disabled=${isSending}
        onClick=${() => act("rollback", { alias: ALIAS, away_from: newestOf(alias) }, "The promotion was rolled back.")}>${`Roll back to version ${before}`}</button>`}
    </div>
    ${alias && before !== undefined && html`<p class="quiet">${`A rollback gives version ${before} all requests again.`}</p>`}
    <${Failure} error=${error} />
  </form>`;
}

function currentShare(alias, version) {
  if (alias.canary?.version === version) return alias.canary.percent;
  return alias.version === version ? ALL - (alias.canary?.percent ?? 0) : null;
}

/** Describes what a promotion will change. */
function changeOf(alias, version, percent) {
  if (!alias) return `From then on, requests that name no version go to version ${version}, and later pushes do not change that.`;
  const now = alias.canary ? `Now, version ${alias.version} answers ${ALL - alias.canary.percent} % of the requests, and version ${alias.canary.version} ${alias.canary.percent} %.` : `Now, version ${alias.version} answers all requests.`;
  if (currentShare(alias, version) === percent) return `${now} Choose another version or share to change that.`;
  const then = percent === ALL ? `version ${version} will answer all of them` : `version ${version} will answer ${percent} %, and version ${alias.version} the others`;
  return `${now} After the promotion, ${then}. Requests that are running are completed by the version that they started with.`;
}
