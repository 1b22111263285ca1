/** An event of a stream of server-sent events. */
export interface ServerEvent {
  id: string;
  type: string;
  data: unknown;
}

/**
 * Yields the events in a response. `EventSource` cannot be used, because it sends no API key.
 */
export async function* eventsIn(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const event = parse(text.slice(0, end));
        text = text.slice(end + 2);
        if (event !== undefined) yield event;
      }
    }
  } finally {
    await reader.cancel();
  }
}

function parse(block: string): ServerEvent | undefined {
  const event = { id: "", type: "message" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") event.id = value;
    if (name === "event") event.type = value;
    if (name === "data") data.push(value);
  }
  return data.length === 0 ? undefined : { ...event, data: JSON.parse(data.join("\n")) as unknown };
}
