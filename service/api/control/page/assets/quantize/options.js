// The options of a quantization: read from the form, taken from an earlier build, and described in words.

/** Returns the options in the visible fields as a query, under the API's names; empty fields are left out. */
export function queryOf(form) {
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("[name]")) {
    if (field.closest("[hidden]")) continue;
    if (field.type === "checkbox") query.set(field.name, field.checked);
    else if (field.hasAttribute("data-several")) field.value.split(",").map((each) => each.trim()).filter(Boolean).forEach((each) => query.append(field.name, each));
    else if (field.value) query.set(field.name, field.value);
  }
  return query;
}

/** Returns the query for a quantization like an earlier one, with the same inputs but other types of layers. */
export function queryAgain({ version, target, options }, { kept, wide, bfloat16 }) {
  const { metadata, sensitivity, budget, raise_to, latency_budget: bound, keep, wide: before, bfloat16: named, ...same } = options.quantize;
  const query = new URLSearchParams({ version, target });
  // Builds of an earlier version, which did not correct biases, lack this option.
  for (const [name, value] of Object.entries({ correct_bias: false, ...same })) if (value !== null) query.set(name, value);
  const shapes = Object.entries(options.input_shapes ?? {}).map(([name, shape]) => `${name}=${shape.join(",")}`);
  if (shapes.length) query.set("input_shape", shapes.join(";"));
  const fixed = Object.entries(options.fixed_inputs ?? {}).map(([name, values]) => `${name}=${values.join(",")}`);
  if (fixed.length) query.set("fix", fixed.join(";"));
  kept.forEach((name) => query.append("keep", name));
  wide.forEach((name) => query.append("wide", name));
  bfloat16.forEach((name) => query.append("bfloat16", name));
  return query;
}

/** Describes the quantization option of a build: "quantized by kl". */
export function wayOf({ method, dynamic, weights }) {
  if (dynamic) return "quantized at run time";
  return weights ? `weights quantized to ${weights} bits` : `quantized by ${method}`;
}

/** Returns true if the quantization needs inputs. */
export function takesInputs({ dynamic, weights }) {
  return !dynamic && !weights;
}
