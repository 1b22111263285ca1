// A table of a model version on each pool of workers: state, speed, memory and cost.

import { json, Unreachable } from "./api.js";
import { bar, element, failure, h, show } from "./dom.js";
import { bytes, count, duration, significant } from "./format.js";

// The interval between requests for the table. It is long, because for each response the server reads the reports of all
// artifacts.
const AGAIN_MS = 10_000;
const KINDS = {
  ready: "succeeded", building: "running", unverified: "queued", none: "canceled",
  failed: "failed", refused: "failed", different: "failed", quarantined: "failed",
};
const WORDS = { none: "not built", unverified: "not verified yet", quarantined: "in quarantine" };
const CHANGING = ["queued", "building", "unverified"];
const NUMBERS = ["p50", "p99", "Per second", "Memory", "% of peak", "Cost per million"];
const CHECKED = { equal: "equal", documented: "within documented bounds", own_only: "own form only" };

export class Pools {
  #path = null; // the path of the matrix that is shown or being fetched
  #rows = null;
  #answeredAt = -Infinity;

  /** Shows the pools of a version; shows "Loading…" until there is a response. */
  async show(name, version) {
    const path = `api/v1/models/${name}/matrix?version=${version}`;
    if (path !== this.#path) {
      this.#path = path;
      this.#rows = null;
      show(element("pools-problem"));
      element("pools").ariaBusy = "true";
      show(element("pools"), h("p", { class: "quiet" }, "Loading…"));
    }
    if (this.#rows === null || isChanging(this.#rows) || performance.now() - this.#answeredAt > AGAIN_MS) await this.#ask(path, "GET");
  }

  /** Requests the matrix, and shows it or the error, unless another version was chosen meanwhile. */
  async #ask(path, method) {
    const [answer, problem] = await json(path, { method }).then(({ rows }) => [rows, null], (error) => [null, error]);
    if (path !== this.#path) return;
    element("pools").ariaBusy = "false";
    // status 403: the key permits only predictions, so the table is hidden
    element("pools").closest("article").hidden = method === "GET" && problem?.status === 403;
    show(element("pools-problem"), problem && failure(problem instanceof Unreachable ? { message: "The server did not respond." } : problem));
    if (answer) {
      this.#rows = answer;
      this.#answeredAt = performance.now();
      show(element("pools"), answer.length ? this.#drawn(answer) : nothing());
    } else if (this.#rows === null) {
      show(element("pools"));
    }
  }

  #drawn(rows) {
    const path = this.#path;
    const isUnmeasured = ({ pool, workers, state, measured }) => pool && workers && state === "ready" && !measured;
    return [
      h("div", { class: "sideways", tabindex: 0, role: "region", "aria-labelledby": "pools-title" }, table(rows)),
      rows.length === 1 && rows[0].pool && h("p", { class: "quiet" }, "There is no other pool to compare it with."),
      rows.some(isUnmeasured) && h("button", { type: "button", class: "plain", id: "measure", "data-path": path, onclick: () => this.#ask(path, "POST") }, rows.length === 1 ? "Measure it" : "Measure on every pool"),
      h("ul", { class: "quiet" }, notes(rows).map((note) => h("li", {}, note))),
      rows.every(({ cost_per_million: cost }) => cost === null) && h("p", { class: "quiet" }, "Cost is shown for measured pools that have a price (", h("code", {}, "OCTET_POOL_PRICES"), ")."),
    ];
  }
}

function isChanging(rows) {
  return rows.some(({ state, measuring, workers }) => CHANGING.includes(state) || (measuring && workers > 0));
}

function nothing() {
  return h("p", { class: "quiet" }, "No worker pool is running, and no build was requested. ", h("code", {}, "octet worker"), " starts a pool.");
}

function table(rows) {
  const answering = rows.filter(({ state, workers }) => state === "ready" && workers > 0);
  const [fastest, cheapest] = [least(answering, "p50_s"), least(answering, "cost_per_million")];
  const head = ["Pool", "State", "Numerics"].map((name) => h("th", { scope: "col" }, name));
  const numbers = NUMBERS.map((name) => h("th", { scope: "col", class: "number" }, name));
  return h(
    "table", { class: "matrix" },
    h("thead", {}, h("tr", {}, head, numbers)),
    h("tbody", {}, rows.map((row) => drawnRow(row, row === fastest, row === cheapest))),
  );
}

/** Returns the row with the lowest value; null unless at least two rows can be compared. */
function least(rows, name) {
  const known = rows.filter((row) => row[name] !== null).sort((a, b) => a[name] - b[name]);
  return known.length > 1 && known[0][name] < known[1][name] ? known[0] : null;
}

function drawnRow(row, isFastest, isCheapest) {
  const { pool, target, state, numerics, measuring, workers } = row;
  const exact = checkedAs(row);
  return h(
    "tr", {},
    h("th", { scope: "row" }, pool ? h("b", {}, pool) : "no pool", h("div", { class: "quiet" }, target, h("br"), crew(row))),
    h("td", { "data-column": "State" }, h("span", {}, h("span", { class: `state ${KINDS[state] ?? state}` }, WORDS[state] ?? state), measuring && workers > 0 && h("span", { class: "tag" }, "measuring"))),
    numerics === null ? missing("") : h("td", { "data-column": "Numerics" }, h("span", {}, numerics, exact && h("div", { class: "quiet" }, exact))),
    number(0, row.p50_s === null ? null : duration(row.p50_s), isFastest && "fastest"),
    number(1, row.p99_s === null ? null : duration(row.p99_s)),
    number(2, row.per_s === null ? null : rate(row.per_s)),
    number(3, row.memory_bytes === null ? null : bytes(row.memory_bytes)),
    number(4, row.peak_percent === null ? null : [`${row.peak_percent.toFixed(1)} %`, bar(row.peak_percent / 100)]),
    number(5, row.cost_per_million === null ? null : significant(row.cost_per_million), isCheapest && "cheapest"),
  );
}

function number(index, value, tag = null) {
  if (value === null) return missing("number");
  return h("td", { class: "number", "data-column": NUMBERS[index] }, h("span", {}, value, tag && h("span", { class: "tag alias" }, tag)));
}

function missing(kind) {
  return h("td", { class: `none quiet ${kind}` }, "–"); // hidden on phones
}

function crew({ pool, workers, loaded }) {
  if (!pool) return "no worker has this target";
  return `${workers} ${workers === 1 ? "worker" : "workers"}, ${loaded} with it in memory`;
}

function rate(perS) {
  return perS >= 1000 ? count(perS) : significant(perS);
}

/** Returns what was compared, where it was measured, and why builds failed; each distinct sentence once. */
function notes(rows) {
  const found = rows.flatMap(({ target, checked, machine, threads, p50_s: p50, error, build }) => [
    checked,
    p50 !== null && `measured on ${machine || "an unnamed machine"}, ${threads} ${threads === 1 ? "thread" : "threads"}`,
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
