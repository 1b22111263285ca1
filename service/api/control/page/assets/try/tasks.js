// Which types of input a model takes, by its task and its signature.

export const NAMES = { picture: "Picture", sound: "Sound", text: "Text", table: "Table", json: "JSON" };

const OF_PICTURES = ["classify-images", "detect"];
const CHANNELS = [1, 3];
const MOST_COLUMNS = 64; // the most numbers that people type in a row

/** Returns the types of input in the order of their likelihood. */
export function inputsOf(about) {
  const { task = null, text = {}, sampling_rate: rate } = about.parameters ?? {};
  const kinds = [];
  if (text.tokenizer) kinds.push("text");
  if (rate) kinds.push("sound");
  if (OF_PICTURES.includes(task) || (about.inputs.length === 1 && isPicture(about.inputs[0]))) kinds.push("picture");
  if (about.inputs.length === 1 && columnsOf(about.inputs[0]) <= MOST_COLUMNS) kinds.push("table");
  return [...kinds, "json"];
}

/** Returns the number of elements of one sample of an input; infinite if its shape is open. */
export function columnsOf({ shape }) {
  const sizes = shape.slice(1);
  return sizes.some((size) => size < 0) ? Infinity : sizes.reduce((product, size) => product * size, 1);
}

/** Returns true if a picture can be resized to the input: [N, H, W, C] or [N, C, H, W] with 1 or 3 channels. */
function isPicture({ shape }) {
  if (shape.length !== 4) return false;
  const [, first, second, last] = shape;
  const sizes = CHANNELS.includes(last) ? [first, second] : CHANNELS.includes(first) ? [second, last] : [];
  return sizes.length === 2 && sizes.every((size) => size < 0 || size >= 8);
}
