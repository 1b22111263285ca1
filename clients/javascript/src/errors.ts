import type { components } from "./schema.js";

/** An RFC 9457 problem document, as every error response of the server contains it. */
export type Problem = components["schemas"]["Problem"];

/** An error response of the server. Its message is the server's, with the hint. */
export class OctetError extends Error {
  override readonly name = "OctetError";
  readonly status: number;
  /** The stable name of the type of error, such as `queue_full`. */
  readonly code: string;
  readonly hint: string | undefined;
  /** The id by which the server's log names the request. */
  readonly requestId: string | undefined;
  /** The time after which a retry may succeed, if the response has the header `Retry-After`. */
  readonly retryAfterSeconds: number | undefined;

  constructor(response: Response, problem: Partial<Problem>) {
    const detail = problem.detail ?? problem.error ?? `the server responded with status ${response.status}`;
    super(problem.hint ? `${detail} (${problem.hint})` : detail);
    this.status = response.status;
    this.code = problem.code ?? "error";
    this.hint = problem.hint ?? undefined;
    this.requestId = response.headers.get("x-request-id") ?? undefined;
    const after = response.headers.get("retry-after");
    this.retryAfterSeconds = after === null ? undefined : Number(after);
  }

  /** Reads the body of an error response. */
  static async of(response: Response): Promise<OctetError> {
    let problem: Partial<Problem> = {};
    try {
      problem = (await response.json()) as Partial<Problem>;
    } catch {
      // A proxy between the client and the server may respond with another type.
    }
    return new OctetError(response, problem);
  }
}
