// Tensors in the binary form of the Open Inference Protocol: JSON, followed by the little-endian bytes of each tensor.

const TYPES = {
  BOOL: Uint8Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  FP32: Float32Array,
  FP64: Float64Array,
} as const;

export type Datatype = keyof typeof TYPES;
export type TensorData = InstanceType<(typeof TYPES)[Datatype]>;

export interface Tensor {
  data: TensorData;
  shape: number[];
  /** By default the type of `data`; a `Uint8Array` may also be `BOOL`. */
  datatype?: Datatype;
}

export const HEADER_LENGTH = "inference-header-content-length";

/** Returns the body of a request with binary inputs and outputs, and the length of its JSON. */
export function encodeTensors(
  inputs: Record<string, Tensor>,
  parameters: Record<string, unknown>,
): { body: Blob; jsonBytes: number } {
  const described = Object.entries(inputs).map(([name, { data, shape, datatype }]) => ({
    name,
    shape,
    datatype: datatype ?? datatypeOf(data),
    parameters: { binary_data_size: data.byteLength },
  }));
  const members = { binary_data_output: true, ...parameters };
  const json = new TextEncoder().encode(JSON.stringify({ inputs: described, parameters: members }));
  const pieces = Object.values(inputs).map(({ data }) => data as TensorData & ArrayBufferView<ArrayBuffer>);
  return { body: new Blob([json, ...pieces]), jsonBytes: json.byteLength };
}

interface DescribedOutput {
  name: string;
  shape: number[];
  datatype: Datatype;
  parameters: { binary_data_size: number };
}

export interface Inference {
  model: string;
  version: string;
  parameters: Record<string, unknown>;
  outputs: Record<string, Required<Tensor>>;
}

/** Returns the outputs in a response. Throws an error if the response has a type that JavaScript cannot hold. */
export function decodeTensors(content: ArrayBuffer, jsonBytes: number): Inference {
  const json = JSON.parse(new TextDecoder().decode(content.slice(0, jsonBytes))) as {
    model_name: string;
    model_version: string;
    parameters?: Record<string, unknown>;
    outputs: DescribedOutput[];
  };
  const outputs: Record<string, Required<Tensor>> = {};
  let at = jsonBytes;
  for (const { name, shape, datatype, parameters } of json.outputs) {
    const type = TYPES[datatype];
    if (type === undefined) throw new TypeError(`output ${name} has type ${datatype}, which has no typed array`);
    const end = at + parameters.binary_data_size;
    outputs[name] = { data: new type(content.slice(at, end)), shape, datatype };
    at = end;
  }
  return { model: json.model_name, version: json.model_version, parameters: json.parameters ?? {}, outputs };
}

function datatypeOf(data: TensorData): Datatype {
  const found = (Object.keys(TYPES) as Datatype[]).find((each) => each !== "BOOL" && data instanceof TYPES[each]);
  if (found === undefined) throw new TypeError("data is not a typed array");
  return found;
}
