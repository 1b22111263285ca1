// One build in a list.

import { ago, duration } from "../app/format.js";
import { html } from "../app/html.js";
import { linkTo } from "../app/router.js";
import { Failure, State } from "../parts/basics.js";
import { described, isOver, isQuantization } from "./facts.js";
import { Stages } from "./stages.js";

/** @param {boolean} isAlone true on the page of the build, which needs no link to itself. */
export function Row({ build, isAlone = false }) {
  return html`<li data-build=${build.id}>
    <div class="line">
      ${build.models.map(({ name, version }, place) => html`<span key=${`${name}/${version}`}><a href=${linkTo(["models", name, version])}><b>${`${name} ${version}`}</b></a>${place < build.models.length - 1 && ","}</span>`)}
      <span class="quiet">${described(build)}</span>
      <${State} kind=${build.state} word=${build.cancel_requested && !isOver(build) ? "being canceled" : build.state} />
      <span class="quiet end">${isOver(build) ? `${took(build)}${ago(build.created_at)}` : ""} ${!isAlone && html`<a href=${linkTo(["builds", build.id])}>Details</a>`}</span>
    </div>
    ${build.course && Object.keys(build.course).length > 0 && html`<${Stages} build=${build} />`}
    ${isQuantization(build) && build.state === "succeeded" && html`<a class="button plain small" href=${linkTo(["quantize", build.model, build.id])}>Show the result</a>`}
    ${build.error && html`<${Failure} error=${errorOf(build)} />`}
  </li>`;
}

/** The error of a build, with its place in the model. */
export function errorOf({ error: { message, hint, stage, op, tensor } }) {
  return { message, hint, place: [stage, op, tensor].filter(Boolean).join(", ") };
}

function took({ started_at: started, finished_at: finished }) {
  return started && finished ? `${duration((new Date(finished) - new Date(started)) / 1000)}, ` : "";
}
