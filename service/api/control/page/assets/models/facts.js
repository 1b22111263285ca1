// Facts about versions of models, in words.

/** Returns the aliases that refer to a version, such as "stable" or "stable 10 %". */
export function aliasesOf(aliases, version) {
  return aliases.flatMap(({ name, version: stable, canary }) => [
    ...(stable === version ? [canary ? `${name} ${100 - canary.percent} %` : name] : []),
    ...(canary?.version === version ? [`${name} ${canary.percent} %`] : []),
  ]);
}

/** Returns the versions of a model to list: the newest, those that answer, and those with an alias; newest first. */
export function versionsOf(model, index) {
  const answering = [...index.values()].filter((each) => each.name === model.name && each.state === "READY").map((each) => Number(each.version));
  const aliased = model.aliases.flatMap(({ version, canary }) => [version, canary?.version ?? version]);
  return [...new Set([model.version, ...answering, ...aliased])].sort((a, b) => b - a);
}

/** Returns the models that the key may see. Without the scope read, these are the ones in the protocol's index. */
export function modelsOf({ models, index }) {
  if (models.size) return [...models.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  const newest = new Map();
  for (const { name, version } of index.values()) {
    const known = newest.get(name);
    if (!known || known.version < Number(version)) newest.set(name, { name, version: Number(version), aliases: [] });
  }
  return [...newest.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Returns why a version does not answer here; null if it answers. */
export function silenceOf({ index }, name, version) {
  const entry = index.get(`${name}/${version}`);
  if (entry?.state === "READY" || entry?.state === "LOADING") return null;
  return entry?.reason || "it has no build for this server";
}

export const STATES = { ready: "succeeded", building: "running", failed: "failed", different: "failed", quarantined: "failed" };
