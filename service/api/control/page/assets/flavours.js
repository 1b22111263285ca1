// What a quantization is asked for: from the form, from a build before it, and in words.

/** Shows the fields of the chosen way to quantize, and hides those of others. */
export function showWay(form) {
  const way = form.querySelector("#quantize-way").value;
  for (const part of form.querySelectorAll("[data-way]")) part.hidden = part.dataset.way !== way;
}

/** What the shown fields ask for, with their names as the API has them; what is empty is left out. */
export function asked(form) {
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("[name]")) {
    if (field.closest("[hidden]")) continue;
    if (field.type === "checkbox") query.set(field.name, field.checked);
    else if (field.hasAttribute("data-several")) field.value.split(",").map((each) => each.trim()).filter(Boolean).forEach((each) => query.append(field.name, each));
    else if (field.value) query.set(field.name, field.value);
  }
  return query;
}

/** What asks for the same as a quantization did, by the same inputs, with other layers raised. */
export function askedAgain({ version, target, options }, { kept, wide, bfloat16 }) {
  const { metadata, sensitivity, budget, raise_to, latency_budget: bound, keep, wide: before, bfloat16: named, ...same } = options.quantize;
  const query = new URLSearchParams({ version, target });
  // A build of a time when biases were not corrected does not say that its are not.
  for (const [name, value] of Object.entries({ correct_bias: false, ...same })) if (value !== null) query.set(name, value);
  const shapes = Object.entries(options.input_shapes ?? {}).map(([name, shape]) => `${name}=${shape.join(",")}`);
  if (shapes.length) query.set("input_shape", shapes.join(";"));
  kept.forEach((name) => query.append("keep", name));
  wide.forEach((name) => query.append("wide", name));
  bfloat16.forEach((name) => query.append("bfloat16", name));
  return query;
}

/** "quantized by kl": of the option of a build. */
export function wayOf({ method, dynamic, weights }) {
  if (dynamic) return "quantized as it runs";
  return weights ? `weights quantized to ${weights} bits` : `quantized by ${method}`;
}

/** Whether it sees inputs. */
export function takesInputs({ dynamic, weights }) {
  return !dynamic && !weights;
}
