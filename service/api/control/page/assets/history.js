// The metrics scraped in the last two minutes, and the differences between scrapes.

import { histogram, observations, parse, since, total } from "./metrics.js";

const KEPT_MS = 120_000;
const RECENT_MS = 60_000;
const DURATION = "octet_request_duration_seconds";

export class History {
  #scrapes = [];

  /** Adds a scrape's text. */
  add(text) {
    const at = Date.now();
    this.#scrapes.push({ at, samples: parse(text) });
    this.#scrapes = this.#scrapes.filter((scrape) => at - scrape.at <= KEPT_MS);
  }

  /** Returns the requests answered per second between each two scrapes, oldest first. */
  rates() {
    return this.#scrapes.slice(1).map((later, index) => {
      const earlier = this.#scrapes[index];
      const counts = [later, earlier].map(({ samples }) => total(samples, "octet_requests_total"));
      return Math.max(0, counts[0] - counts[1]) / ((later.at - earlier.at) / 1000);
    });
  }

  /**
   * Returns the latencies of requests in the last minute, or since the server started if there were none.
   *
   * @param {Object<string, string>} wanted labels: a model, a version.
   */
  durations(wanted = {}) {
    const latest = this.#latest();
    const all = histogram(latest, DURATION, wanted);
    const start = this.#scrapes.find(({ at }) => Date.now() - at <= RECENT_MS);
    const recent = start ? since(all, histogram(start.samples, DURATION, wanted)) : all;
    return observations(recent) ? { ...recent, when: "last minute" } : { ...all, when: "since the start" };
  }

  /** Returns the sum of a gauge or counter at the last scrape. */
  now(name, wanted = {}) {
    return total(this.#latest(), name, wanted);
  }

  #latest() {
    return this.#scrapes.at(-1)?.samples ?? new Map();
  }
}
