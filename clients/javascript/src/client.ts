import createClient, { type Client as ApiClient } from "openapi-fetch";

import { OctetError } from "./errors.js";
import { eventsIn, type ServerEvent } from "./events.js";
import type { components, operations, paths } from "./schema.js";
import { decodeTensors, encodeTensors, HEADER_LENGTH, type Inference, type Tensor } from "./tensors.js";

type Schemas = components["schemas"];
export type Build = Schemas["Build"];
export type Prediction = Schemas["Prediction"];
export type PredictionJob = Schemas["PredictionJob"];
export type PredictRequest = Schemas["PredictRequest"];
export type PushOptions = NonNullable<operations["push_model"]["parameters"]["query"]>;

/** A picture or a sound as a file, a text or several, or any body of `/predict` as JSON. */
export type Input = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | string | string[] | Partial<PredictRequest>;

export interface ClientOptions {
  /** The server's address, such as `http://localhost:8080`; in a page of the server itself, `location.origin`. */
  url: string;
  /** An API key, if the server needs one. */
  key?: string;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

export interface RequestOptions {
  signal?: AbortSignal;
}

export interface PredictOptions extends RequestOptions {
  /** The version; by default the one that the server serves. */
  version?: number;
  /** The number of classes or boxes. */
  top?: number;
  /** Leaves out boxes with a lower score. */
  minScore?: number;
  /** The time within which the computation has to begin. */
  timeoutMs?: number;
}

const LONGEST_WAIT_S = 30;

/** A client of one server. */
export class Client {
  /** Sends requests to all routes of the API, with their types: https://openapi-ts.dev/openapi-fetch/ */
  readonly api: ApiClient<paths>;
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;

  constructor({ url, key, fetch = globalThis.fetch.bind(globalThis) }: ClientOptions) {
    this.#url = url.replace(/\/+$/, "");
    this.#headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    this.#fetch = fetch;
    this.api = createClient<paths>({ baseUrl: this.#url, headers: this.#headers, fetch: (request) => fetch(request) });
  }

  /** Returns the result of a prediction in the form of the model's task. Throws `OctetError`. */
  async predict(model: string, input: Input, options: PredictOptions = {}): Promise<Prediction> {
    return (await (await this.#predict(model, input, options, {})).json()) as Prediction;
  }

  /** Starts a prediction whose result is fetched later, with `waitFor`. Throws `OctetError`. */
  async start(model: string, input: Input, options: PredictOptions = {}): Promise<PredictionJob> {
    const response = await this.#predict(model, input, options, { prefer: "respond-async" });
    return (await response.json()) as PredictionJob;
  }

  /** Waits until a job has ended, and returns its result. Throws `OctetError` if the job failed. */
  async waitFor(job: Pick<PredictionJob, "id">, { signal }: RequestOptions = {}): Promise<Prediction> {
    for (;;) {
      const headers = { prefer: `wait=${LONGEST_WAIT_S}` };
      const response = await this.#send("GET", `/api/v1/jobs/${encodeURIComponent(job.id)}`, { headers, signal });
      const found = (await response.json()) as PredictionJob;
      if (found.state === "succeeded" && found.result) return found.result;
      if (found.error) {
        const { code, message: detail, hint } = found.error;
        throw new OctetError(response, { code, detail, ...(hint ? { hint } : {}) });
      }
    }
  }

  /** Deletes a job and its result; a running job is canceled. Throws `OctetError`. */
  async delete(job: Pick<PredictionJob, "id">): Promise<void> {
    await this.#send("DELETE", `/api/v1/jobs/${encodeURIComponent(job.id)}`, {});
  }

  /**
   * Sends tensors as they are stored, and returns the outputs (Open Inference Protocol). With the parameter
   * `dequantize: true`, the outputs are real values. Throws `OctetError`.
   */
  async infer(
    model: string,
    inputs: Record<string, Tensor>,
    options: RequestOptions & { version?: number | string; parameters?: Record<string, unknown> } = {},
  ): Promise<Inference> {
    const { body, jsonBytes } = encodeTensors(inputs, options.parameters ?? {});
    const headers = { "content-type": "application/octet-stream", [HEADER_LENGTH]: String(jsonBytes) };
    const version = options.version === undefined ? "" : `/versions/${encodeURIComponent(options.version)}`;
    const path = `/v2/models/${encodeURIComponent(model)}${version}/infer`;
    const response = await this.#send("POST", path, { headers, body, signal: options.signal });
    return decodeTensors(await response.arrayBuffer(), Number(response.headers.get(HEADER_LENGTH)));
  }

  /** Pushes a model file, and returns its build, which may still run. Throws `OctetError`. */
  async push(file: Blob | ArrayBuffer, options: PushOptions & RequestOptions): Promise<Build> {
    const { signal, ...query } = options;
    const response = await this.#send("PUT", `/api/v1/models${queryOf(query)}`, { body: file, signal });
    return (await response.json()) as Build;
  }

  /** Waits until a build has ended, and returns it. A failed build has the member `error`. Throws `OctetError`. */
  async waitForBuild(id: string, { signal }: RequestOptions = {}): Promise<Build> {
    for (;;) {
      const headers = { prefer: `wait=${LONGEST_WAIT_S}` };
      const response = await this.#send("GET", `/api/v1/builds/${encodeURIComponent(id)}`, { headers, signal });
      const build = (await response.json()) as Build;
      if (build.state !== "queued" && build.state !== "running") return build;
    }
  }

  /** Yields the events of a build until it has ended. Throws `OctetError`. */
  async *buildEvents(
    id: string,
    { signal, after }: RequestOptions & { after?: string } = {},
  ): AsyncGenerator<ServerEvent> {
    const headers = after === undefined ? {} : { "last-event-id": after };
    const response = await this.#send("GET", `/api/v1/builds/${encodeURIComponent(id)}/events`, { headers, signal });
    if (response.body !== null) yield* eventsIn(response.body);
  }

  #predict(model: string, input: Input, options: PredictOptions, headers: Record<string, string>): Promise<Response> {
    const { version, top, minScore, timeoutMs, signal } = options;
    const { body, type } = bodyOf(input);
    const all: Record<string, string> = { ...headers, "content-type": type };
    if (timeoutMs !== undefined) all["octet-timeout-ms"] = String(timeoutMs);
    const query = queryOf({ version, top, min_score: minScore });
    return this.#send("POST", `/api/v1/models/${encodeURIComponent(model)}/predict${query}`, {
      headers: all,
      body,
      signal,
    });
  }

  async #send(
    method: string,
    path: string,
    { headers, body, signal }: { headers?: Record<string, string>; body?: BodyInit; signal?: AbortSignal | undefined },
  ): Promise<Response> {
    const response = await this.#fetch(this.#url + path, {
      method,
      headers: { ...this.#headers, ...headers },
      body: body ?? null,
      signal: signal ?? null,
    });
    if (!response.ok) throw await OctetError.of(response);
    return response;
  }
}

function bodyOf(input: Input): { body: BodyInit; type: string } {
  if (input instanceof Blob) return { body: input, type: input.type || "application/octet-stream" };
  if (input instanceof ArrayBuffer || ArrayBuffer.isView(input)) {
    return { body: input, type: "application/octet-stream" };
  }
  const members = typeof input === "string" || Array.isArray(input) ? { text: input } : input;
  return { body: JSON.stringify(members), type: "application/json" };
}

function queryOf(members: Record<string, unknown>): string {
  const given = Object.entries(members).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return query === "" ? "" : `?${query}`;
}
