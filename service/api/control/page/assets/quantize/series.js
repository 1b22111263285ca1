// The series and titles of the curve of mixtures. `make messages` writes this file from
// service/quantize/search/plot.py, which draws the same curve for `octet quantize --curve`.

// The name of each series, its colour, and whether a line joins its points.
export const SERIES = {
  "in float": ["--accent", true],
  "of 16x8 (8-bit weights, 16-bit activations)": ["--second", true],
  "in bfloat16": ["--good", false],
  "mixed": ["--quiet", false],
};
export const [FLOAT, WIDE, BFLOAT16, MIXED] = Object.keys(SERIES);
export const LAYERS_TITLE = "layers in a larger type";
export const LATENCY_TITLE = "latency";
export const ERROR_TITLE = "± one standard error";
