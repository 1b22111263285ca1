// A table of a model version on each pool of workers: state, speed, memory and cost.

import { json } from "../app/api.js";
import { bytes, count, duration, plural, significant } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar, Failure, State, Tag } from "../parts/basics.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

// The intervals between requests for the table: while something changes, and otherwise. The second is long, because for
// each response the server reads the reports of all artifacts.
const SOON_MS = 2_000;
const LATER_MS = 10_000;
const KINDS = {
  ready: "succeeded", building: "running", unverified: "queued", none: "canceled",
  failed: "failed", refused: "failed", different: "failed", quarantined: "failed",
};
const WORDS = { none: "not built", unverified: "not verified yet", quarantined: "in quarantine" };
const CHANGING = ["queued", "building", "unverified"];
const NUMBERS = ["p50", "p99", "Per second", "Memory", "% of peak", "Cost per million"];
const CHECKED = { equal: "equal", documented: "within documented bounds", own_only: "own form only" };

export function PoolTable({ name, version }) {
  const path = `api/v1/models/${name}/matrix?version=${version}`;
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const isShown = useRef(true);
  const timer = useRef(null);

  async function request(method) {
    clearTimeout(timer.current);
    const [found, problem] = await json(path, { method, unattended: method === "GET" }).then((body) => [body.rows, null], (failure) => [null, failure]);
    if (!isShown.current) return;
    setError(problem);
    if (found) setRows(found);
    timer.current = setTimeout(() => (document.hidden ? schedule() : request("GET")), found && isChanging(found) || problem ? SOON_MS : LATER_MS);
  }

  function schedule() {
    timer.current = setTimeout(() => request("GET"), LATER_MS);
  }

  useEffect(() => {
    isShown.current = true;
    request("GET");
    return () => { isShown.current = false; clearTimeout(timer.current); };
  }, [path]);

  return html`
    <div id="pools" aria-busy=${String(rows === null && !error)}>${rows === null ? !error && html`<p class="quiet">Loading …</p>` : html`<${Rows} rows=${rows} onMeasure=${() => request("POST")} />`}</div>
    <div id="pools-problem" aria-live="polite"><${Failure} error=${error} /></div>
  `;
}

function isChanging(rows) {
  return rows.some(({ state, measuring, workers }) => CHANGING.includes(state) || (measuring && workers > 0));
}

function Rows({ rows, onMeasure }) {
  if (!rows.length) return html`<p class="quiet">No worker pool is running, and no build was requested. <code>octet worker</code> starts a pool.</p>`;
  const isUnmeasured = ({ pool, workers, state, measured }) => pool && workers && state === "ready" && !measured;
  return html`
    <div class="sideways" tabindex="0" role="region" aria-labelledby="pools-card-title"><${Table} rows=${rows} /></div>
    ${rows.length === 1 && rows[0].pool && html`<p class="quiet">There is no other pool to compare it with.</p>`}
    ${rows.some(isUnmeasured) && html`<button type="button" class="plain" id="measure" onClick=${onMeasure}>${rows.length === 1 ? "Measure it" : "Measure on every pool"}</button>`}
    <ul class="quiet notes">${notes(rows).map((note) => html`<li key=${note}>${note}</li>`)}</ul>
    ${rows.every(({ cost_per_million: cost }) => cost === null) && html`<p class="quiet">Cost is shown for measured pools that have a price (<code>OCTET_POOL_PRICES</code>).</p>`}
  `;
}

function Table({ rows }) {
  const answering = rows.filter(({ state, workers }) => state === "ready" && workers > 0);
  const [fastest, cheapest] = [least(answering, "p50_s"), least(answering, "cost_per_million")];
  return html`<table class="matrix">
    <thead><tr>
      ${["Pool", "State", "Numerics"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}
      ${NUMBERS.map((title) => html`<th key=${title} scope="col" class="number">${title}</th>`)}
    </tr></thead>
    <tbody>${rows.map((row) => html`<${Row} key=${`${row.pool}/${row.target}`} row=${row} isFastest=${row === fastest} isCheapest=${row === cheapest} />`)}</tbody>
  </table>`;
}

/** Returns the row with the lowest value; null unless at least two rows can be compared. */
function least(rows, name) {
  const known = rows.filter((row) => row[name] !== null).sort((a, b) => a[name] - b[name]);
  return known.length > 1 && known[0][name] < known[1][name] ? known[0] : null;
}

function Row({ row, isFastest, isCheapest }) {
  const { pool, target, state, numerics, measuring, workers } = row;
  const exact = checkedAs(row);
  return html`<tr>
    <th scope="row">${pool ? html`<b>${pool}</b>` : "no pool"}<div class="quiet">${target}<br />${crew(row)}</div></th>
    <td data-column="State"><span><${State} kind=${KINDS[state] ?? state} word=${WORDS[state] ?? state} />${measuring && workers > 0 && html`<${Tag}>measuring</${Tag}>`}</span></td>
    ${numerics === null ? html`<${Missing} />` : html`<td data-column="Numerics"><span>${numerics}${exact && html`<div class="quiet">${exact}</div>`}</span></td>`}
    <${Figure} index=${0} value=${row.p50_s === null ? null : duration(row.p50_s)} tag=${isFastest && "fastest"} />
    <${Figure} index=${1} value=${row.p99_s === null ? null : duration(row.p99_s)} />
    <${Figure} index=${2} value=${row.per_s === null ? null : rate(row.per_s)} />
    <${Figure} index=${3} value=${row.memory_bytes === null ? null : bytes(row.memory_bytes)} />
    <${Figure} index=${4} value=${row.peak_percent === null ? null : `${row.peak_percent.toFixed(1)} %`} bar=${row.peak_percent} />
    <${Figure} index=${5} value=${row.cost_per_million === null ? null : significant(row.cost_per_million)} tag=${isCheapest && "cheapest"} />
  </tr>`;
}

function Figure({ index, value, tag = null, bar = null }) {
  if (value === null) return html`<${Missing} kind="number" />`;
  return html`<td class="number" data-column=${NUMBERS[index]}><span>${value}${bar !== null && html`<${Bar} share=${bar / 100} />`}${tag && html`<${Tag} kind="alias">${tag}</${Tag}>`}</span></td>`;
}

function Missing({ kind = "" }) {
  return html`<td class=${`none quiet ${kind}`}>–</td>`; // hidden on phones
}

function crew({ pool, workers, loaded }) {
  if (!pool) return "no worker has this target";
  return `${plural(workers, "worker")}, ${loaded} with it in memory`;
}

function rate(perS) {
  return perS >= 1000 ? count(perS) : significant(perS);
}

/** Returns what was compared, where it was measured, and why builds failed; each distinct sentence once. */
function notes(rows) {
  const found = rows.flatMap(({ target, checked, machine, threads, p50_s: p50, error, build }) => [
    checked,
    p50 !== null && `measured on ${machine || "an unnamed machine"}, ${plural(threads, "thread")}`,
    error && `${error} (build ${build.slice(0, 8)})`,
  ].filter(Boolean).map((note) => `${target}: ${note}`));
  return [...new Set(found)];
}

/** The result of the comparison with the reference runtime, in a few words. */
function checkedAs({ outcome, verified, accepted }) {
  if (outcome === "different") return accepted ? "different, accepted" : "different";
  if (!verified) return verified === false && "not verified";
  return CHECKED[outcome] ?? "verified";
}
