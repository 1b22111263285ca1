// Converts sounds that the browser can read to WAV, the format that the server reads.

const HEADER_BYTES = 44;
const BYTES_PER_SAMPLE = 2;

/** Returns a sound as WAV: as it is if it is one, else decoded by the browser, mixed to one channel, with 16 bits. */
export async function asWav(file) {
  const data = await file.arrayBuffer();
  if (isWav(data)) return new Blob([data], { type: "audio/wav" });
  const context = new AudioContext();
  try {
    const sound = await context.decodeAudioData(data);
    return encoded(mixed(sound), sound.sampleRate);
  } catch {
    throw new Error(`${file.name} is not a sound that this browser can read.`);
  } finally {
    context.close();
  }
}

function isWav(data) {
  return data.byteLength >= 12 && new TextDecoder("latin1").decode(data.slice(0, 4)) === "RIFF" && new TextDecoder("latin1").decode(data.slice(8, 12)) === "WAVE";
}

function mixed(sound) {
  const channels = Array.from({ length: sound.numberOfChannels }, (_, index) => sound.getChannelData(index));
  return channels[0].map((_, place) => channels.reduce((sum, channel) => sum + channel[place], 0) / channels.length);
}

/** Returns a WAV file (RIFF, WAVE) of format 1, which is PCM. */
function encoded(samples, rate) {
  const size = samples.length * BYTES_PER_SAMPLE;
  const view = new DataView(new ArrayBuffer(HEADER_BYTES + size));
  const text = (place, letters) => [...letters].forEach((letter, index) => view.setUint8(place + index, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, HEADER_BYTES - 8 + size, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * BYTES_PER_SAMPLE, true);
  view.setUint16(32, BYTES_PER_SAMPLE, true);
  view.setUint16(34, 8 * BYTES_PER_SAMPLE, true);
  text(36, "data");
  view.setUint32(40, size, true);
  samples.forEach((sample, index) => view.setInt16(HEADER_BYTES + index * BYTES_PER_SAMPLE, Math.round(32767 * Math.max(-1, Math.min(1, sample))), true));
  return new Blob([view.buffer], { type: "audio/wav" });
}
