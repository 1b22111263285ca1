// Histograms of latencies: the number of observations in each bucket, whose upper bounds the server reports.

import { state } from "./store.js";

export function sum(counts) {
  return counts.reduce((total, count) => total + count, 0);
}

/** Returns the observations between two counts; all of them if the server restarted in between. */
export function since(later, earlier) {
  const counts = later.map((count, bucket) => count - (earlier[bucket] ?? 0));
  return counts.some((count) => count < 0) ? later : counts;
}

/**
 * Returns the `share`-quantile, interpolated within a bucket like Prometheus' `histogram_quantile`. null without
 * observations.
 */
export function quantile(counts, share, bounds = state.hello?.bounds_s ?? []) {
  const all = sum(counts);
  if (!all) return null;
  const rank = share * all;
  let below = 0;
  for (const [bucket, count] of counts.entries()) {
    if (below + count >= rank && count > 0) {
      if (bucket >= bounds.length) return bounds.at(-1) ?? null;
      const low = bucket ? bounds[bucket - 1] : 0;
      return low + (bounds[bucket] - low) * ((rank - below) / count);
    }
    below += count;
  }
  return null;
}

/** Returns the buckets without the empty ones at both ends: `{ bound, count }`; the last bound may be infinite. */
export function buckets(counts, bounds = state.hello?.bounds_s ?? []) {
  const all = counts.map((count, bucket) => ({ bound: bounds[bucket] ?? Infinity, count }));
  return all.slice(all.findIndex(({ count }) => count), all.findLastIndex(({ count }) => count) + 1);
}
