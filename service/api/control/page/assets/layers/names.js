// Short names of layers that tell them apart.

/** Returns a name for each layer. Converters join the paths of all fused tensors; a part of the first is enough. */
export function namesOf(layers) {
  const paths = layers.map(({ layer }) => pathOf(layer));
  const prefix = sharedPrefix(paths.filter((path) => path.length > 1));
  const whole = paths.map((path) => (path.length > prefix ? path.slice(prefix) : path));
  const shorter = whole.map((path) => (path.length > 1 ? path.slice(0, -1) : path).join("/"));
  const counts = countsOf(shorter);
  return shorter.map((name, index) => (counts.get(name) === 1 ? name : whole[index].join("/")) || "generated code");
}

/** "CONV_2D_3_net/block_1/relu/Relu6;net/…" -> ["net", "block_1", "relu", "Relu6"] */
function pathOf(layer) {
  const [first] = layer.split(/[;,]/, 1);
  return first.replace(/^[A-Z0-9]+(?:_[A-Z0-9]+)*_\d+_(?=.)/, "").split("/").filter(Boolean);
}

/** Returns the number of leading parts that nearly all paths share. */
function sharedPrefix(paths) {
  let length = 0;
  for (;;) {
    const counts = countsOf(paths.map((path) => path.slice(0, length + 1).join("/")));
    if (!paths.length || Math.max(...counts.values()) < 0.9 * paths.length) return length;
    if (paths.filter((path) => path.length > length + 1).length < 0.9 * paths.length) return length;
    length += 1;
  }
}

function countsOf(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
