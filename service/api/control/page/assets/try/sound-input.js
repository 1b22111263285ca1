// A sound as the input: a file, or a recording of the microphone.

import { html } from "../app/html.js";
import { Failure } from "../parts/basics.js";
import { DropArea } from "../parts/files.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { request } from "./predict.js";
import { asWav } from "./wav.js";

export function SoundInput({ name, version, about, onSend }) {
  const [file, setFile] = useState(null);
  const [error, setError] = useState(null);
  const [recorder, setRecorder] = useState(null);
  const area = useRef(null);

  async function take(chosen) {
    try {
      const body = await asWav(chosen);
      setFile(chosen);
      setError(null);
      await onSend({ request: request(name, version, { body, type: body.type, file: body.size === chosen.size ? chosen.name : "sound.wav" }) });
    } catch (problem) {
      setError(problem);
    }
  }

  async function record() {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const started = new MediaRecorder(stream);
      const parts = [];
      started.addEventListener("dataavailable", ({ data }) => parts.push(data));
      started.addEventListener("stop", () => {
        stream.getTracks().forEach((track) => track.stop());
        setRecorder(null);
        take(new File(parts, "recording", { type: started.mimeType }));
      });
      started.start();
      setRecorder(started);
    } catch {
      setError({ message: "The browser allows this page no access to a microphone." });
    }
  }

  const action = useRef(take);
  action.current = take;
  useEffect(() => {
    const dropped = (event) => { event.preventDefault(); action.current(event.detail[0]); };
    area.current.addEventListener("filesdropped", dropped);
  }, []);

  return html`<div ref=${area} data-takes-drops>
    <${DropArea} id="sound" text="Drop a sound, or choose one" accept="audio/*,.wav" files=${file ? [file] : []} onFiles=${([chosen]) => take(chosen)} />
    ${navigator.mediaDevices && html`<p>${recorder ? html`<button type="button" onClick=${() => recorder.stop()}>Stop and predict</button>` : html`<button type="button" class="plain" onClick=${record}>Record</button>`}</p>`}
    <p class="quiet">${`It is resampled to ${about.parameters.sampling_rate.toLocaleString("en")} samples per second, the model's rate.`}</p>
    <${Failure} error=${error} />
  </div>`;
}
