// Facts about the alias to which requests without a version go.

export const ALIAS = "stable";

export function stableOf(aliases) {
  return aliases.find(({ name }) => name === ALIAS) ?? null;
}

/** Returns the version that was promoted last, which a rollback reverts. */
export function newestOf({ version, canary }) {
  return canary?.version ?? version;
}

/** Returns the version to which a rollback would return; undefined if there is none. */
export function beforeOf({ version, canary, previous }) {
  return canary ? version : previous[0];
}

/** Returns the version that answers requests without a version if no alias is set: the newest one that is ready. */
export function newestReady(index, name) {
  const ready = [...index.values()].filter((each) => each.name === name && each.state === "READY").map((each) => Number(each.version));
  return ready.length ? Math.max(...ready) : null;
}
