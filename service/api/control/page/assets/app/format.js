// Formats quantities for people.

/** 0.00123 -> "1.23 ms" */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds >= 1) return `${digits(seconds)} s`;
  return seconds >= 1e-3 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds * 1e6)} µs`;
}

/** 1234567 -> "1.2 M" */
export function count(number) {
  const [size, unit] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([size]) => number >= size) ?? [1, ""];
  return unit ? digits(number / size) + unit : number.toLocaleString("en", { maximumFractionDigits: 1 });
}

/** (1, "build") -> "1 build"; (2, "build") -> "2 builds" */
export function plural(number, noun, nouns = `${noun}s`) {
  return `${typeof number === "number" ? count(number) : number} ${number === 1 ? noun : nouns}`;
}

export function bytes(number) {
  const counted = count(number);
  return /[kMG]$/.test(counted) ? `${counted}B` : `${counted} B`;
}

/** 0.012345 -> "0.0123" */
export function significant(number) {
  return number.toLocaleString("en", { maximumSignificantDigits: 3 });
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

/** Formats how long ago a time was, in English: "3 minutes ago". */
export function ago(time) {
  const seconds = (new Date(time) - Date.now()) / 1000;
  const words = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (-seconds >= size) return words.format(Math.round(seconds / size), unit);
  }
  return "just now";
}

function digits(number) {
  return number >= 100 ? number.toFixed(0) : String(Number(number.toPrecision(number >= 10 ? 3 : 2)));
}
