// A picture as the input: dropped, chosen, pasted, or taken with the camera.

import { html } from "../app/html.js";
import { DropArea, FileField, sendable } from "../parts/files.js";
import { Failure } from "../parts/basics.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { Camera } from "./camera.js";
import { labelsOf, storeLabels } from "./labels.js";
import { request } from "./predict.js";

const ALL = 10_000; // with labels of this browser, all scores are needed

export function PictureInput({ name, version, onSend }) {
  const [file, setFile] = useState(null);
  const [error, setError] = useState(null);
  const preview = useRef(null);
  const area = useRef(null);

  async function take(chosen) {
    try {
      const body = await sendable(chosen);
      URL.revokeObjectURL(preview.current);
      preview.current = URL.createObjectURL(body);
      setFile(chosen);
      setError(null);
      const top = labelsOf(name) ? ALL : null;
      await onSend({ request: request(name, version, { body, type: body.type, file: chosen.name, top }), picture: preview.current });
    } catch (problem) {
      setError(problem);
    }
  }

  async function chooseLabels(labels) {
    storeLabels(name, await labels.text());
    if (file) await take(file);
  }

  const action = useRef(take);
  action.current = take;
  useEffect(() => {
    const isPicture = (each) => each.type.startsWith("image/");
    const dropped = (event) => { const found = event.detail.find(isPicture); if (found) { event.preventDefault(); action.current(found); } };
    const pasted = ({ clipboardData }) => { const found = [...clipboardData.files].find(isPicture); if (found) action.current(found); };
    area.current.addEventListener("filesdropped", dropped);
    addEventListener("paste", pasted);
    return () => removeEventListener("paste", pasted);
  }, []);

  return html`<div ref=${area} data-takes-drops>
    <${DropArea} id="picture" text="Drop a picture, paste one, or choose one" accept="image/*" files=${file ? [file] : []} onFiles=${([chosen]) => take(chosen)} />
    <${Camera} onPicture=${take} />
    <${FileField} id="labels" label="Labels, one per line" accept="text/plain,.txt" onFile=${chooseLabels} />
    <${Failure} error=${error} />
  </div>`;
}
