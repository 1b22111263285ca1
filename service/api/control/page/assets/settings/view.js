// The settings of this browser, facts about the server, and the log of changes.

import { json } from "../app/api.js";
import { ago } from "../app/format.js";
import { html } from "../app/html.js";
import { forgetKey, key } from "../app/key.js";
import { enterKey, may, reconnect } from "../app/live.js";
import { useStore } from "../app/store.js";
import { chooseTheme, theme, THEMES } from "../app/theme.js";
import { Card, Failure, Tag, Title } from "../parts/basics.js";
import { useRequest } from "../parts/use-request.js";
import { useState } from "../vendor/hooks.js";

const AUDITED = 20;

export function SettingsView() {
  const { hello, targets } = useStore();
  const [chosen, choose] = useState(theme());
  const [hasKey, setHasKey] = useState(key() !== null);
  const pick = (name) => { chooseTheme(name); choose(name); };
  const forget = () => { forgetKey(); setHasKey(false); reconnect(); };
  const host = targets.find((target) => target.host);
  return html`
    <${Title}>Settings</${Title}>
    <${Card} id="browser" title="This browser">
      <fieldset id="theme"><legend>Colours</legend>${THEMES.map((name) => html`
        <label class="check" key=${name}><input type="radio" name="theme" value=${name} checked=${name === chosen} onChange=${() => pick(name)} /> ${name === "system" ? "as the system" : name}</label>`)}
      </fieldset>
      <p>${hasKey ? "An API key is kept until this tab is closed. " : "No API key is used. "}
        <button type="button" class="plain small" onClick=${() => enterKey().then(() => setHasKey(key() !== null))}>Enter a key</button>
        ${hasKey && html` <button type="button" class="plain small" onClick=${forget}>Forget the key</button>`}
      </p>
    </${Card}>
    <${Card} id="about" title="This server">
      <dl class="facts">
        <div><dt>Release</dt><dd>${hello?.release ?? "–"}</dd></div>
        <div><dt>Processor</dt><dd>${hello?.cpu ?? "–"}</dd></div>
        <div><dt>Best target</dt><dd>${host?.name ?? "–"}</dd></div>
        <div><dt>API keys</dt><dd>${hello?.requires_key ? "every request needs one" : "none are required"}</dd></div>
      </dl>
      <p><a href="docs">Reference of the API</a> · <a href="metrics">Metrics for Prometheus</a> · <a href="page/vendor/licences.txt">Licences of the page's libraries</a></p>
    </${Card}>
    ${targets.length > 0 && html`<${Card} id="targets" title="Targets">
      <ul class="targets">${targets.map(({ name, reason, runs_here: runs, host: isHost, missing }) => html`<li key=${name}>
        <b>${name}</b>${isHost && html`<${Tag}>this machine</${Tag}>`} <span class="quiet">${runs ? reason : `${reason}${missing.length ? `; this machine lacks ${missing.join(", ")}` : ""}`}</span>
      </li>`)}</ul>
    </${Card}>`}
    ${may("admin") && html`<${Audit} />`}
  `;
}

function Audit() {
  const { value, error } = useRequest(() => json(`api/v1/audit?limit=${AUDITED}`), []);
  return html`<${Card} id="audit-card" title="Changes, and who made them">
    <${Failure} error=${error} />
    <ul id="audit">${(value?.entries ?? []).map(({ at, who, action, request_id: request, ...object }) => html`<li key=${`${at}${request}`}>
      <span class="quiet">${ago(at)}</span> <b>${who}</b> ${action} <span class="quiet">${words(object)}</span>
    </li>`)}</ul>
    ${value && !value.entries.length && html`<p class="quiet">None yet.</p>`}
  </${Card}>`;
}

function words(object) {
  return Object.entries(object).filter(([, value]) => value !== null && value !== "").map(([name, value]) => `${name} ${short(typeof value === "object" ? JSON.stringify(value) : String(value))}`).join(", ");
}

/** Returns the text with the first digits of its digests and identifiers. */
function short(text) {
  return text.replace(/\b([0-9a-f]{12})[0-9a-f]{12,}\b/g, "$1…");
}
