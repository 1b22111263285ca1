// Uses every function of the client against a server that serves the sample model as "digits". Runs in Node.js and in
// browsers; tests/e2e/javascript compares the result.
import { Client, OctetError } from "octet-client";

/** @returns {Promise<Record<string, unknown>>} */
export async function session(url, key, picture) {
  const client = new Client({ url, key });
  const best = async (input) => (await client.predict("digits", input, { top: 1 })).classes[0].label;
  const base64 = btoa(String.fromCharCode(...picture));

  const job = await client.start("digits", { image: [base64, base64] });
  const result = await client.waitFor(job);
  await client.delete(job);

  const image = { data: new Int8Array(256), shape: [1, 16, 16, 1] };
  const inferred = await client.infer("digits", { image }, { version: 1, parameters: { dequantize: true } });
  const [scores] = Object.values(inferred.outputs);

  const { data, error } = await client.api.GET("/api/v1/builds", { params: { query: { model: "digits" } } });
  if (error) throw new Error(error.detail);
  const build = await client.waitForBuild(data.builds[0].id);
  const types = new Set();
  for await (const event of client.buildEvents(build.id)) types.add(event.type);

  return {
    asFile: await best(new Blob([picture], { type: "image/png" })),
    asBytes: await best(picture),
    asJson: await best({ image: `data:image/png;base64,${base64}` }),
    inJob: result.results.map(({ classes }) => classes[0].label),
    scores: { type: scores.datatype, shape: scores.shape, isFloat: scores.data instanceof Float32Array },
    version: inferred.version,
    build: build.state,
    events: [...types].sort(),
    absent: await failure(() => client.predict("absent", picture)),
    withoutKey: await failure(() => new Client({ url }).predict("digits", picture)),
    deletedJob: await failure(() => client.waitFor(job)),
    pushed: await failure(() => client.push(new Blob(["not a model"]), { name: "broken" })),
  };
}

async function failure(act) {
  try {
    await act();
    return "no error";
  } catch (error) {
    if (!(error instanceof OctetError)) throw error;
    if (!error.requestId) throw new Error("the request's id is not readable");
    return `${error.status} ${error.code}`;
  }
}
