// The server's load: throughput, latency and queue, as numbers and charts.

import { bar, element, h, show, svg } from "./dom.js";
import { count, duration, percent } from "./format.js";
import { buckets, observations, quantile } from "./metrics.js";

const POINTS = 60; // two minutes of scrapes

/** Draws the tiles: throughput, latency and queue. */
export function showNow(history) {
  const rates = history.rates();
  const durations = history.durations();
  const queued = history.now("octet_queue_depth");
  const running = history.now("octet_inflight_requests");
  const refused = history.now("octet_requests_rejected_total");
  show(
    element("now"),
    tile("Requests per second", rate(rates.at(-1) ?? 0), sparkline(rates), `${count(history.now("octet_requests_total"))} answered, ${count(refused)} refused`),
    tile("Half answered within", duration(quantile(durations, 0.5)), columns(durations), `p50, ${durations.when}`),
    tile("99 % answered within", duration(quantile(durations, 0.99)), columns(durations, 0.99), `p99, ${durations.when}`),
    tile("Waiting", count(queued), queue(queued, running), `${count(running)} running, ${count(history.now("octet_build_queue_depth"))} builds queued`),
  );
}

/** Draws the latency histogram of one model, with its quantiles. */
export function latency(durations) {
  const all = observations(durations);
  if (!all) return [h("p", { class: "quiet" }, "There have been no requests since the server started.")];
  const seen = ends(buckets(durations));
  const most = Math.max(...seen.map((bucket) => bucket.count));
  return [
    h("p", {}, h("b", {}, duration(quantile(durations, 0.5))), " p50, ", h("b", {}, duration(quantile(durations, 0.99))), ` p99, of ${count(all)} (${durations.when})`),
    h("ul", { class: "bars" }, seen.map(({ bound, count: number }) => h(
      "li", {},
      h("span", { class: "name" }, bound === Infinity ? "more" : `≤ ${duration(bound)}`),
      bar(number / most),
      h("span", { class: "value" }, percent(number / all)),
    ))),
  ];
}

function tile(name, value, picture, note) {
  return h("div", { class: "card tile" }, h("h3", {}, name), h("p", { class: "figure" }, value), picture, h("p", { class: "quiet" }, note));
}

function rate(value) {
  return value >= 10 || value === 0 ? count(Math.round(value)) : value.toFixed(1);
}

function sparkline(rates) {
  const most = Math.max(...rates, 1);
  const points = rates.map((value, index) => `${POINTS - rates.length + index},${20 - 18 * (value / most)}`);
  return picture(POINTS - 1, points.length > 1 && [
    svg("polygon", { class: "area", points: `${POINTS - rates.length},20 ${points.join(" ")} ${POINTS - 1},20` }),
    svg("polyline", { class: "line", points: points.join(" ") }),
  ]);
}

/** Draws a column for each bucket; those beyond the `share`-quantile are pale. */
function columns(durations, share = 0.5) {
  const all = buckets(durations);
  const most = Math.max(...all.map((bucket) => bucket.count), 1);
  const limit = quantile(durations, share) ?? Infinity;
  return picture(Math.max(all.length, 1), all.map(({ count: number }, index) => svg("rect", {
    class: index && all[index - 1].bound >= limit ? "column beyond" : "column",
    x: index + 0.1, width: 0.8, y: 20 - 18 * (number / most), height: 18 * (number / most),
  })));
}

/** Draws running requests, then waiting ones, as squares; at most forty. */
function queue(queued, running) {
  const squares = Math.min(running, 40);
  return picture(20, Array.from({ length: squares }, (_, index) => svg("rect", {
    class: index < running - queued ? "column beyond" : "column",
    x: (index % 20) + 0.1, width: 0.8, y: 11 - 9 * Math.floor(index / 20), height: 8,
  })));
}

function picture(width, shapes) {
  const plot = svg("svg", { viewBox: `0 0 ${width} 20`, preserveAspectRatio: "none", "aria-hidden": "true" });
  plot.append(svg("path", { class: "base", d: `M0 19.9H${width}` }), ...(shapes || []));
  return plot;
}

/** Removes the empty buckets at both ends. */
function ends(all) {
  const first = all.findIndex((bucket) => bucket.count);
  const last = all.findLastIndex((bucket) => bucket.count);
  return all.slice(first, last + 1);
}
