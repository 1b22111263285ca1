// The builds: those in progress, stage by stage, those that have ended, and one build with its log.

import { html } from "../app/html.js";
import { Lazy } from "../app/lazy.js";
import { linkTo } from "../app/router.js";
import { useStore } from "../app/store.js";
import { Card, Title } from "../parts/basics.js";
import { useState } from "../vendor/hooks.js";
import { Build } from "./detail.js";
import { isOver, newestFirst } from "./facts.js";
import { Row } from "./row.js";

const SHOWN = 20;
const chart = { module: "builds/durations.js", load: () => import("./durations.js"), component: "Durations" };

export function BuildsView({ path: [id] }) {
  const state = useStore();
  const [isLong, setLong] = useState(false);
  if (id) return html`<p class="crumbs"><a href=${linkTo(["builds"])}>Builds</a> › ${id.slice(0, 8)}</p><${Build} key=${id} id=${id} listed=${state.builds.get(id)} />`;
  const all = newestFirst(state.builds);
  const [open, over] = [all.filter((build) => !isOver(build)), all.filter(isOver)];
  const shown = isLong ? over : over.slice(0, SHOWN);
  return html`
    <${Title}>Builds</${Title}>
    <${Card} id="open-builds" title="In progress">
      ${open.length ? html`<ul class="builds">${open.map((build) => html`<${Row} key=${build.id} build=${build} />`)}</ul>` : html`<p class="quiet">No build is running or queued.</p>`}
    </${Card}>
    ${over.length > 1 && html`<${Card} id="durations" title="Durations"><${Lazy} ...${chart} builds=${over} /></${Card}>`}
    <${Card} id="ended-builds" title="Ended">
      ${shown.length ? html`<ul class="builds" id="builds">${shown.map((build) => html`<${Row} key=${build.id} build=${build} />`)}</ul>` : html`<p class="quiet">None yet.</p>`}
      ${over.length > shown.length && html`<button type="button" class="plain small" onClick=${() => setLong(true)}>${`Show ${over.length - shown.length} more`}</button>`}
    </${Card}>
  `;
}
