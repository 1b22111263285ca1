// The versions of a model: which ones answer, how well, and what the next promotion or rollback would change.

import { json } from "../app/api.js";
import { ago, bytes, count } from "../app/format.js";
import { html } from "../app/html.js";
import { may } from "../app/live.js";
import { go, linkTo } from "../app/router.js";
import { isServable, isWantedBy } from "../builds/facts.js";
import { Card, Failure, State, Tag } from "../parts/basics.js";
import { Question } from "../parts/question.js";
import { aliasesOf, STATES } from "../models/facts.js";
import { useState } from "../vendor/hooks.js";
import { Comparison } from "./comparison.js";
import { Promotion } from "./promotion.js";
import { stableOf } from "./stable.js";

export function RolloutTab({ name, version, about, state }) {
  const [question, ask] = useState(null);
  if (!about) return html`<p class="quiet">Loading …</p>`;
  const close = () => ask(null);
  const isBuilt = (number) => [...state.builds.values()].some((build) => isWantedBy(build, name, number) && isServable(build)) || about.versions.some((each) => each.version === number && each.state === "ready");
  const alias = stableOf(about.aliases);
  return html`
    <${Card} id="answers-card" title="What answers now">
      <div id="answers"><${Comparison} name=${name} alias=${alias} versions=${about.versions} index=${state.index} />
      ${may("push") && html`<${Promotion} name=${name} alias=${alias} versions=${about.versions.filter((each) => isBuilt(each.version)).map((each) => each.version)} chosen=${version} />`}</div>
    </${Card}>
    <${Card} id="all-versions" title="Versions">
      <ul class="versions" id="versions">${about.versions.map((each) => html`<${Version} key=${each.version} name=${name} of=${each} aliases=${about.aliases} isChosen=${each.version === version}
        onDelete=${about.versions.length > 1 && may("push") ? () => ask(html`<${Deletion} name=${name} version=${each.version} aliases=${about.aliases} onClose=${close} />`) : null} />`)}</ul>
      ${may("push") && html`<p class="end"><button type="button" class="plain small" id="delete-model" onClick=${() => ask(html`<${Deletion} name=${name} version=${null} aliases=${about.aliases} onClose=${close} />`)}>Delete model</button></p>`}
    </${Card}>
    ${question}
  `;
}

function Version({ name, of, aliases, isChosen, onDelete }) {
  const { version, state, reason, format, size_bytes: size, created_at: created, facts } = of;
  return html`<li aria-current=${isChosen ? "true" : null}>
    <div class="line">
      <a id=${`version-${version}`} href=${linkTo(["models", name, version, "rollout"])}>version ${version}</a>
      ${aliasesOf(aliases, version).map((alias) => html`<${Tag} key=${alias} kind="alias">${alias}</${Tag}>`)}
      <${State} kind=${STATES[state] ?? "queued"} word=${state.replaceAll("_", " ")} />
      <span class="quiet">${`${format}, ${bytes(size)}, ${ago(created)}`}</span>
      ${onDelete && html`<button type="button" class="link small end" id=${`delete-${version}`} onClick=${onDelete}>${`Delete version ${version}`}</button>`}
    </div>
    ${reason && html`<div class="quiet">${reason}</div>`}
    ${facts && html`<div class="quiet">${`${count(facts.parameters)} parameters, ${count(facts.macs)} multiply-accumulates; ${signature(facts.signature)}`}</div>`}
    ${facts?.floating?.length > 0 && html`<div class="quiet">${inFloat(facts)}</div>`}
    ${(facts?.notices ?? []).map((notice) => html`<div class="quiet" key=${notice}>${notice}</div>`)}
  </li>`;
}

function Deletion({ name, version, aliases, onClose }) {
  const what = version === null ? `model ${name}, with all its versions` : `version ${version} of ${name}`;
  const pointing = aliases.filter((alias) => version === null || alias.version === version || alias.canary?.version === version);
  const names = pointing.map((alias) => `"${alias.name}"`).join(", ");
  const path = version === null ? `api/v1/models/${name}` : `api/v1/models/${name}/versions/${version}`;
  const text = `Requests that are running are still answered.${names && ` ${names} refers to it, and is deleted too.`} This cannot be undone.`;
  return html`<${Question} title=${`Delete ${what}?`} text=${text} action="Delete" isDanger=${true} onClose=${onClose}
    send=${() => json(names ? `${path}?force=true` : path, { method: "DELETE" })}
    onDone=${() => go(version === null ? ["models"] : ["models", name])} />`;
}

/** The operators that compute in float, by type: the first few, and the share of the multiply-accumulates. */
function inFloat({ floating, macs, integer_macs: integers }) {
  const named = floating.slice(0, 3).map(({ operator, count: times }) => (times > 1 ? `${times} ${operator}` : operator));
  const others = floating.length - 3;
  const share = macs ? `, ${(100 * (macs - integers) / macs).toFixed(1)} % of the multiply-accumulates` : "";
  return `in float: ${named.join(", ")}${others > 0 ? ` and ${others} other ${others === 1 ? "type" : "types"}` : ""}${share}`;
}

function signature({ inputs, outputs }) {
  const tensors = (all) => all.map(({ name, datatype, shape }) => `${name} ${datatype} [${shape.join(", ")}]`).join(", ");
  return `${tensors(inputs)} → ${tensors(outputs)}`;
}
