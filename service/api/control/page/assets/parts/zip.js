// Creates zip archives (APPNOTE.TXT 4.3) without compression, because pictures are already compressed.

const UTF8 = 0x0800;
const LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50;
const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/**
 * Creates an archive.
 *
 * @param {{name: string, content: Blob}[]} files with distinct names, and less than 4 GiB in total.
 * @returns {Promise<Blob>}
 */
export async function zipped(files) {
  const [parts, directory] = [[], []];
  let offset = 0;
  for (const { name, content } of files) {
    const encoded = new TextEncoder().encode(name);
    const crc = checksum(new Uint8Array(await content.arrayBuffer()));
    const common = [[20, 2], [UTF8, 2], [0, 2], [0, 2], [0x21, 2], [crc, 4], [content.size, 4], [content.size, 4], [encoded.length, 2], [0, 2]];
    const local = record([[LOCAL, 4], ...common]);
    directory.push(record([[CENTRAL, 4], [20, 2], ...common, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]]), encoded);
    parts.push(local, encoded, content);
    offset += local.length + encoded.length + content.size;
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  if (offset + size > 0xffffffff || files.length > 0xffff) throw new Error("These files are too many for one archive.");
  const end = record([[END, 4], [0, 2], [0, 2], [files.length, 2], [files.length, 2], [size, 4], [offset, 4], [0, 2]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

function record(fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [, size]) => sum + size, 0)));
  let place = 0;
  for (const [value, size] of fields) {
    if (size === 2) view.setUint16(place, value, true);
    else view.setUint32(place, value, true);
    place += size;
  }
  return new Uint8Array(view.buffer);
}

function checksum(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
