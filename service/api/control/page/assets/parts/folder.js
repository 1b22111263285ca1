// Folders: read from a drop or from a field for folders, and packed into one archive.

/**
 * Returns the dropped files; a folder is returned as one archive. What was dropped is read before the first pause, because
 * the browser forgets it when the event is over.
 */
export async function filesOf(dataTransfer) {
  const plain = [...dataTransfer.files];
  const folder = await droppedFolder(dataTransfer);
  return folder ? [await packedFolder(folder)] : plain;
}

/** Returns the folder that is among dropped items, as files with paths; null if there is none. */
async function droppedFolder(dataTransfer) {
  const entries = [...dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const folder = entries.find((entry) => entry.isDirectory);
  return folder ? { name: folder.name, files: await filesIn(folder, "") } : null;
}

/** Returns the folder that a field with `webkitdirectory` contains. */
export function chosenFolder(files) {
  const [name] = files[0].webkitRelativePath.split("/", 1);
  return { name, files: files.map((file) => ({ path: file.webkitRelativePath.slice(name.length + 1), file })) };
}

/** Returns a folder as a zip archive, named like the folder. Files whose names begin with a dot are left out. */
export async function packedFolder({ name, files }) {
  const wanted = files.filter(({ path }) => !path.split("/").some((part) => part.startsWith(".")));
  const { zipped } = await import("./zip.js");
  const archive = await zipped(wanted.map(({ path, file }) => ({ name: path, content: file })));
  return new File([archive], `${name}.zip`, { type: "application/zip" });
}

async function filesIn(folder, prefix) {
  const found = [];
  const reader = folder.createReader();
  for (let some = await read(reader); some.length; some = await read(reader)) {
    for (const entry of some) {
      const path = `${prefix}${entry.name}`;
      if (entry.isDirectory) found.push(...await filesIn(entry, `${path}/`));
      else found.push({ path, file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }) });
    }
  }
  return found;
}

function read(reader) {
  return new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
}
