// The form that uploads a model file to the server, which compiles it.

import { json } from "./api.js";
import { element, failure, h, show } from "./dom.js";
import { bytes } from "./format.js";
import { acceptDrops } from "./tryit.js";

const KNOWN = {
  succeeded: "It was built before; the earlier build is used.",
  different: "It was built before, and is not served, as it differs from its reference.",
};

/**
 * Sets up the form.
 *
 * @param {function(Object)} onBuild called with the build that the server returns.
 */
export function installPush(onBuild) {
  const file = element("model-file");
  file.addEventListener("change", () => describe(file.files[0]));
  acceptDrops(element("push-drop"), ([dropped]) => {
    const transfer = new DataTransfer();
    transfer.items.add(dropped);
    file.files = transfer.files;
    describe(dropped);
  });
  element("push").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.target.querySelector("button");
    button.disabled = true;
    try {
      onBuild(await push(file.files[0]));
    } catch (error) {
      show(element("pushed"), failure(error));
    } finally {
      button.disabled = false;
    }
  });
}

/** Lists the targets to choose from, the best one for the server's machine first. */
export function showTargets(targets) {
  const host = targets.find((target) => target.host);
  show(
    element("model-target"),
    host && h("option", { value: "host" }, `${host.name} (this machine)`),
    targets.filter((target) => target !== host).map(({ name }) => h("option", { value: name }, name)),
  );
}

async function push(file) {
  const query = new URLSearchParams({ name: element("model-name").value, target: element("model-target").value });
  if (element("model-shape").value) query.set("input_shape", element("model-shape").value);
  show(element("pushed"), h("p", { class: "quiet" }, `Sending ${bytes(file.size)} …`));
  const build = await json(`api/v1/models?${query}`, { method: "PUT", body: file, headers: { "Content-Type": "application/octet-stream" } });
  const known = KNOWN[build.state] ?? "It is being built.";
  show(element("pushed"), h("p", {}, `${build.model} is version ${build.version}. ${known}`));
  return build;
}

function describe(file) {
  if (!file) return;
  element("push-drop").querySelector("span").textContent = `${file.name}, ${bytes(file.size)}`;
  const name = element("model-name");
  if (!name.value) name.value = nameOf(file);
}

/** Derives a model's name from a file's. */
export function nameOf(file) {
  return file.name.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 63);
}
