// The load of the last ten minutes: a sample each second, and the differences between samples.

import { quantile, since, sum } from "./histogram.js";
import { state } from "./store.js";

export const KEPT_S = 600;
const RECENT_S = 60;

const samples = []; // { at_s, load, latency }, oldest first

/** Adds a sample of the state. */
export function record() {
  const at = Date.now() / 1000;
  samples.push({ at, load: Object.fromEntries(state.load), latency: state.latency });
  while (samples.length && at - samples[0].at > KEPT_S) samples.shift();
}

/**
 * Returns series over time, for a chart: `at` (seconds since 1970), and for each step the `rate` of answers per second,
 * the share of `failed` answers, the quantiles `p50` and `p99` in seconds (null without answers), and the numbers of
 * requests that are `waiting` and `running`.
 *
 * @param {?string} wanted "NAME/VERSION"; null for all.
 * @param {number} step_s the time between two points.
 */
export function series(wanted = null, step_s = 5) {
  const points = { at: [], rate: [], failed: [], p50: [], p99: [], waiting: [], running: [] };
  let earlier = samples[0];
  for (const later of samples.slice(1)) {
    if (later.at - earlier.at < step_s - 0.5) continue;
    const took = since(countsOf(later, wanted), countsOf(earlier, wanted));
    const answers = sum(took);
    points.at.push(later.at);
    points.rate.push(answers / (later.at - earlier.at));
    points.failed.push(answers ? Math.max(0, failuresOf(later, wanted) - failuresOf(earlier, wanted)) / answers : null);
    points.p50.push(quantile(took, 0.5));
    points.p99.push(quantile(took, 0.99));
    points.waiting.push(later.load.waiting ?? 0);
    points.running.push(later.load.running ?? 0);
    earlier = later;
  }
  return points;
}

/** Returns the latencies of the last minute, or since the server started if there were none: `{ counts, failed, when }`. */
export function recent(wanted = null) {
  const latest = samples.at(-1);
  if (!latest) return { counts: [], failed: 0, when: "since the start" };
  const start = samples.find(({ at }) => latest.at - at <= RECENT_S) ?? latest;
  const counts = since(countsOf(latest, wanted), countsOf(start, wanted));
  const failed = failuresOf(latest, wanted);
  if (sum(counts) > 0 && start !== latest) return { counts, failed: Math.max(0, failed - failuresOf(start, wanted)), when: "last minute" };
  return { counts: countsOf(latest, wanted), failed, when: "since the start" };
}

function countsOf({ latency }, wanted) {
  if (wanted !== null) return latency.get(wanted)?.counts ?? [];
  const all = [...latency.values()].map(({ counts }) => counts);
  return all.length ? all[0].map((_, bucket) => all.reduce((total, counts) => total + counts[bucket], 0)) : [];
}

function failuresOf({ latency }, wanted) {
  const all = wanted === null ? [...latency.values()] : [latency.get(wanted)].filter(Boolean);
  return all.reduce((total, { failed }) => total + failed, 0);
}
