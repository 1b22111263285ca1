// Takes a photo: with the camera app of a phone, or with the camera of a computer.

import { html } from "../app/html.js";
import { Failure } from "../parts/basics.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

export function Camera({ onPicture }) {
  const [isOn, setOn] = useState(false);
  const taken = ({ target }) => {
    if (target.files.length) onPicture(target.files[0]);
    target.value = "";
  };
  return html`<div class="cameras">
    <label class="button plain camera">
      <input id="camera" type="file" accept="image/*" capture="environment" onChange=${taken} />
      <span>Take a photo</span>
    </label>
    ${navigator.mediaDevices && !isOn && html`<button type="button" class="plain webcam" id="webcam" onClick=${() => setOn(true)}>Use the camera</button>`}
    ${isOn && html`<${Viewfinder} onPicture=${onPicture} onClose=${() => setOn(false)} />`}
  </div>`;
}

function Viewfinder({ onPicture, onClose }) {
  const video = useRef(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let stream = null;
    navigator.mediaDevices.getUserMedia({ video: true }).then(
      (opened) => { stream = opened; if (video.current) video.current.srcObject = opened; },
      () => setError({ message: "The browser allows this page no access to a camera." }),
    );
    return () => stream?.getTracks().forEach((track) => track.stop());
  }, []);
  async function take() {
    const { videoWidth: width, videoHeight: height } = video.current;
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").drawImage(video.current, 0, 0);
    const photo = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
    onPicture(new File([photo], "photo.jpg", { type: photo.type }));
  }
  return html`<div class="viewfinder">
    ${error ? html`<${Failure} error=${error} />` : html`<video ref=${video} autoplay muted playsinline aria-label="The camera"></video>`}
    <div class="buttons">
      ${!error && html`<button type="button" onClick=${take}>Take this picture</button>`}
      <button type="button" class="plain" onClick=${onClose}>Turn the camera off</button>
    </div>
  </div>`;
}
