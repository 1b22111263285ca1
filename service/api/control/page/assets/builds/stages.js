// The stages of a build in order, with the times of those that are done and the progress of the current one.

import { duration } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar } from "../parts/basics.js";
import { takesInputs } from "../quantize/options.js";
import { isOver, isQuantization } from "./facts.js";

const STAGES = ["fetch", "import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"];
const QUANTIZING = ["fetch", "calibrate", "rank", "measure", "publish"];
const QUANTIZING_WITHOUT_INPUTS = ["fetch", "import", "publish"];

export function Stages({ build }) {
  const begun = Object.keys(build.course);
  const known = stagesOf(build);
  const names = [...known, ...begun.filter((name) => !known.includes(name))];
  const end = isOver(build) ? build.finished_at : undefined;
  return html`<ol class="stages">${names.map((name) => html`<${Stage} key=${name} name=${name} ...${timesOf(name, begun, build.course, end)} progress=${build.progress} isFailed=${build.state === "failed" && begun.at(-1) === name} />`)}</ol>`;
}

function Stage({ name, begin, end, progress, isFailed }) {
  if (!begin) return html`<li>${name}<${Bar} share=${0} /></li>`;
  if (isFailed) return html`<li class="failed">${name}<${Bar} share=${1} kind="bad" /><span class="quiet">failed</span></li>`;
  if (end) return html`<li class="done">${name}<${Bar} share=${1} /><span class="quiet">${duration((new Date(end) - new Date(begin)) / 1000)}</span></li>`;
  return html`<li class="current" aria-current="step">${name}<${Bar} share=${Math.max(progress, 0.05)} kind="moving" /><span class="quiet">…</span></li>`;
}

/** The times at which a stage began and ended; undefined if it has not. */
function timesOf(name, begun, course, end) {
  const index = begun.indexOf(name);
  return index < 0 ? {} : { begin: course[name], end: course[begun[index + 1]] ?? end };
}

function stagesOf(build) {
  if (!isQuantization(build)) return STAGES;
  return takesInputs(build.options.quantize) ? QUANTIZING : QUANTIZING_WITHOUT_INPUTS;
}
