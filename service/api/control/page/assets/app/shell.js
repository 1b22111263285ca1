// The frame of every view: the navigation, the state of the server, the push dialog and the prompt for a key.

import { ModelsView } from "../models/list.js";
import { filesOf } from "../parts/folder.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { html } from "./html.js";
import { KeyDialog } from "./key-dialog.js";
import { Lazy } from "./lazy.js";
import { enterKey, may } from "./live.js";
import { changeQuery, linkTo, useRoute } from "./router.js";
import { ServerState } from "./server-state.js";
import { useStore } from "./store.js";

// The views by the first part of the address: the title, whether the key needs a scope other than predict, the module.
const VIEWS = {
  models: ["Models", false],
  builds: ["Builds", true, "builds/view.js", () => import("../builds/view.js"), "BuildsView"],
  quantize: ["Quantize", true, "quantize/view.js", () => import("../quantize/view.js"), "QuantizeView"],
  pools: ["Pools", true, "pools/view.js", () => import("../pools/view.js"), "PoolsView"],
  keys: ["Keys", true, "keys/view.js", () => import("../keys/view.js"), "KeysView"],
  settings: ["Settings", false, "settings/view.js", () => import("../settings/view.js"), "SettingsView"],
};

export function Shell() {
  const state = useStore();
  const { path, query } = useRoute();
  const [dropped, setDropped] = useState([]);
  const isOver = useFileDrop((files) => { setDropped(files); changeQuery({ push: "1" }); });
  useTitle(path);
  const reads = state.hello === null || may("read", "push");
  const close = () => { setDropped([]); changeQuery({ push: null }); };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <p class="brand"><a href=${linkTo(["models"])}><img src="page/icon.svg" alt="" width="26" height="26" />Octet</a></p>
      <nav aria-label="Main">
        ${Object.entries(VIEWS).filter(([, [, needs]]) => reads || !needs).map(([name, [title]]) => html`
          <a key=${name} href=${linkTo([name])} aria-current=${path[0] === name ? "page" : null}>${title}</a>`)}
      </nav>
      <${ServerState} state=${state} onKey=${enterKey} />
      ${reads && html`<button type="button" id="open-push" onClick=${() => changeQuery({ push: "1" })}>Push a model</button>`}
    </header>
    <main id="main" class="page" tabindex="-1"><${View} path=${path} query=${query} /></main>
    <p class="unseen" aria-live="polite">${state.announced}</p>
    ${isOver && html`<div class="drop-anywhere" aria-hidden="true">Drop the file to push it, or to use it here</div>`}
    ${query.has("push") && reads && html`<${Lazy} module="push/dialog.js" load=${() => import("../push/dialog.js")} component="PushDialog" files=${dropped} onClose=${close} />`}
    ${state.prompt && html`<${KeyDialog} ...${state.prompt} />`}
  `;
}

function View({ path, query }) {
  const [name, ...rest] = path;
  if (name === "models" && rest.length) {
    return html`<${Lazy} module="models/view.js" load=${() => import("../models/view.js")} component="ModelView" path=${rest} query=${query} />`;
  }
  if (name === "models") return html`<${ModelsView} />`;
  if (!VIEWS[name]) return html`<h1>Not found</h1><p>There is no page at this address. <a href=${linkTo(["models"])}>Show the models.</a></p>`;
  const [, , module, load, component] = VIEWS[name];
  return html`<${Lazy} key=${name} module=${module} load=${load} component=${component} path=${rest} query=${query} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

/** Sets the title of the window; after the first view, moves the focus to the title of each new view. */
function useTitle(path) {
  const isFirst = useRef(true);
  const place = path.slice(0, 2).join("/");
  useEffect(() => {
    const [name, model] = path;
    document.title = `${model && name === "models" ? model : VIEWS[name]?.[0] ?? "Not found"} · Octet`;
    if (!isFirst.current) {
      scrollTo(0, 0);
      requestAnimationFrame(() => document.getElementById("title")?.focus({ preventScroll: true }));
    }
    isFirst.current = false;
  }, [place]);
}

/** Calls `onFiles` with files that are dropped anywhere but on an area for files. Returns true while one is dragged. */
function useFileDrop(onFiles) {
  const [isOver, setOver] = useState(false);
  const action = useRef(onFiles);
  action.current = onFiles;
  useEffect(() => {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const listeners = {
      dragover: (event) => { if (hasFiles(event)) { event.preventDefault(); setOver(true); } },
      dragleave: (event) => { if (event.relatedTarget === null) setOver(false); },
      drop: async (event) => {
        setOver(false);
        if (!hasFiles(event)) return;
        event.preventDefault();
        const found = await filesOf(event.dataTransfer);
        const takers = document.querySelector("[data-takes-drops]");
        const taken = takers && !takers.dispatchEvent(new CustomEvent("filesdropped", { detail: found, cancelable: true }));
        if (found.length && !taken) action.current(found);
      },
    };
    const end = () => setOver(false);
    for (const [kind, listener] of Object.entries(listeners)) addEventListener(kind, listener);
    addEventListener("drop", end, true); // also for a drop that an area for files takes
    return () => {
      for (const [kind, listener] of Object.entries(listeners)) removeEventListener(kind, listener);
      removeEventListener("drop", end, true);
    };
  }, []);
  return isOver;
}
