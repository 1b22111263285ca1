// Areas and fields that take files.

import { html } from "../app/html.js";
import { bytes, plural } from "../app/format.js";
import { useState } from "../vendor/hooks.js";
import { filesOf } from "./folder.js";

const SENT_AS_IS = ["image/jpeg", "image/png", "image/webp", "image/bmp", "image/gif"];

/**
 * An area on which files can be dropped, and with which they can be chosen. A dropped folder becomes a zip archive.
 *
 * @param {string} text the text of the area while no file is chosen.
 * @param {File[]} files the chosen files.
 * @param {function(File[])} onFiles called with files that were dropped or chosen.
 */
export function DropArea({ id, text, files = [], onFiles, accept = null, multiple = false, required = false }) {
  const [isOver, setOver] = useState(false);
  const over = (event) => { event.preventDefault(); event.stopPropagation(); setOver(true); };
  const drop = async (event) => {
    event.preventDefault();
    event.stopPropagation();
    setOver(false);
    const found = await filesOf(event.dataTransfer);
    if (found.length) onFiles(found);
  };
  const choose = ({ target }) => {
    if (target.files.length) onFiles([...target.files]);
    target.value = ""; // so that the same file can be chosen again
  };
  return html`<label class=${`drop ${isOver ? "over" : ""}`} id=${`${id}-drop`} onDragEnter=${over} onDragOver=${over} onDragLeave=${() => setOver(false)} onDrop=${drop}>
    <input id=${id} type="file" accept=${accept} multiple=${multiple} required=${required && !files.length} onChange=${choose} />
    <span>${files.length ? named(files) : text}</span>
  </label>`;
}

/** A field with which one file can be chosen. */
export function FileField({ id, label, accept, onFile, file = null }) {
  const choose = ({ target }) => {
    if (target.files.length) onFile(target.files[0]);
    target.value = "";
  };
  return html`<label class="quiet">${label} <input id=${id} type="file" accept=${accept} onChange=${choose} />${file && html`<span> ${file.name}</span>`}</label>`;
}

/**
 * The state of a text that can be typed or read from a file.
 *
 * @param {function(): string} initial returns the text at first.
 * @returns {{text: string, setText: function(string), file: ?File, load: function(File)}}
 */
export function useTextFile(initial) {
  const [text, setText] = useState(initial);
  const [file, setFile] = useState(null);
  async function load(chosen) {
    setFile(chosen);
    setText(await chosen.text());
  }
  return { text, setText, file, load };
}

/** "cat.jpg, 12 kB", or "7 files, 1.2 MB". */
export function named(files) {
  const size = files.reduce((sum, file) => sum + file.size, 0);
  return `${files.length === 1 ? files[0].name : plural(files.length, "file")}, ${bytes(size)}`;
}

/** Derives a model's name from a file's. */
export function nameOf(file) {
  return file.name.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 63);
}

/** Returns a picture in a format that the server reads: as it is, or converted to PNG by the browser. */
export async function sendable(file) {
  if (SENT_AS_IS.includes(file.type)) return file;
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name} is not a picture that this browser can read.`);
  });
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.convertToBlob({ type: "image/png" });
}
