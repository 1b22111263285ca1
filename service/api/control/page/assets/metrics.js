// Parses Prometheus' text format, and computes quantiles of its histograms.

/**
 * Returns the samples of a scrape, by name.
 *
 * @param {string} text format version 0.0.4.
 * @returns {Map<string, {labels: Object<string, string>, value: number}[]>}
 */
export function parse(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const [, name, labels, value] = found;
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push({ labels: labelsOf(labels ?? ""), value: numberOf(value) });
  }
  return samples;
}

/** Returns the sum of all samples of `name` with the labels `wanted`. */
export function total(samples, name, wanted = {}) {
  return matching(samples, name, wanted).reduce((sum, sample) => sum + sample.value, 0);
}

/**
 * Returns the sum of all histograms `name` with the labels `wanted`.
 *
 * @returns {{bounds: number[], counts: number[]}} the buckets' upper bounds, the last of which is infinite; and the
 *   number of observations up to each bound.
 */
export function histogram(samples, name, wanted = {}) {
  const counts = new Map();
  for (const { labels, value } of matching(samples, `${name}_bucket`, wanted)) {
    const bound = numberOf(labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + value);
  }
  const bounds = [...counts.keys()].sort((a, b) => a - b);
  return { bounds, counts: bounds.map((bound) => counts.get(bound)) };
}

/** Returns the observations between two scrapes; all of them if the server restarted in between. */
export function since(later, earlier) {
  const before = new Map(earlier.bounds.map((bound, index) => [bound, earlier.counts[index]]));
  const counts = later.bounds.map((bound, index) => later.counts[index] - (before.get(bound) ?? 0));
  return counts.some((count) => count < 0) ? later : { bounds: later.bounds, counts };
}

export function observations({ counts }) {
  return counts.at(-1) ?? 0;
}

/** Returns the `share`-quantile, interpolated within a bucket like Prometheus' `histogram_quantile`. null without observations. */
export function quantile({ bounds, counts }, share) {
  const all = counts.at(-1) ?? 0;
  if (!all) return null;
  const rank = share * all;
  const index = counts.findIndex((count) => count >= rank);
  if (bounds[index] === Infinity) return bounds.at(-2) ?? null;
  const [low, below] = index ? [bounds[index - 1], counts[index - 1]] : [0, 0];
  return low + (bounds[index] - low) * ((rank - below) / (counts[index] - below));
}

/** Returns the number of observations in each bucket. */
export function buckets({ bounds, counts }) {
  return bounds.map((bound, index) => ({ bound, count: counts[index] - (counts[index - 1] ?? 0) }));
}

function matching(samples, name, wanted) {
  const conditions = Object.entries(wanted);
  return (samples.get(name) ?? []).filter(({ labels }) => conditions.every(([label, value]) => labels[label] === value));
}

function labelsOf(text) {
  const pairs = [...text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)];
  return Object.fromEntries(pairs.map(([, name, value]) => [name, value.replace(/\\(.)/g, unescaped)]));
}

function unescaped(_, letter) {
  return letter === "n" ? "\n" : letter;
}

function numberOf(text) {
  return text === "+Inf" ? Infinity : Number(text);
}
