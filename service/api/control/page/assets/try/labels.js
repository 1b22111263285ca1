// The labels of a model's classes that the user chose in this browser.

export function storeLabels(model, text) {
  localStorage.setItem(`octet-labels-${model}`, text);
}

/** Returns the labels that were chosen in this browser; null if none were. */
export function labelsOf(model) {
  return localStorage.getItem(`octet-labels-${model}`)?.trimEnd().split(/\r?\n/) ?? null;
}

/** Returns the classes with the labels of this browser in place of the server's. */
export function relabelled(classes, model, serverLabels) {
  const own = labelsOf(model);
  if (!own) return classes;
  const known = new Map(serverLabels.map((label, index) => [label, index]));
  return classes.map(({ label, score }) => ({ label: own[known.get(label) ?? Number(label)] || label, score }));
}
