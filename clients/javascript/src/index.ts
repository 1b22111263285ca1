export { Client } from "./client.js";
export type {
  Build,
  ClientOptions,
  Input,
  Prediction,
  PredictionJob,
  PredictOptions,
  PredictRequest,
  PushOptions,
  RequestOptions,
} from "./client.js";
export { OctetError, type Problem } from "./errors.js";
export type { ServerEvent } from "./events.js";
export type { components, operations, paths } from "./schema.js";
export type { Datatype, Inference, Tensor, TensorData } from "./tensors.js";
