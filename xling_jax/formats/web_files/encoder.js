// Sentence vectors in a browser, or in Node: a static encoder of xling_jax, in plain JavaScript.
//
//   import { Encoder, cosine } from "./encoder.js";
//   const encoder = await Encoder.load("."); // the directory with config.json
//   const [a, b] = encoder.encode(["Good morning.", "Guten Morgen."]); // Float32Array each
//   cosine(a, b);
//
// It reads the files of the model directory as they are, and decodes rows when a text has them.

// What xling_jax.text.vocab.remove_invisible removes; lone surrogates among them.
const INVISIBLE =
  /[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}\ud800-\udfff]/gu;
// Python's white space.
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
const SPACE = "\u2581"; // as SentencePiece writes it
const UNKNOWN_PENALTY = 10;
const NORMAL = 1, UNKNOWN = 2; // types of pieces

// Feature -> distances of its tokens from the first; see xling_jax.models.numpy_static.
const FEATURES = { pairs: [0, 1], skips: [0, 2], triples: [0, 1, 2] };
const FACTORS = [0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f], LAST_FACTOR = 0x2c1b3c6d, SEED = 0x9e3779b1;
const SLOTS = 1 << 20, NO_KEY = 1 << 24;

export class Encoder {
  // Reads a directory, by its URL or, in Node, by its path.
  static async load(directory) {
    const isPath = globalThis.process?.versions?.node && !/^https?:/.test(directory);
    const read = async (name) => {
      if (isPath) return new Uint8Array(await (await import("node:fs/promises")).readFile(`${directory}/${name}`)).buffer;
      const response = await fetch(`${directory}/${name}`);
      if (!response.ok) throw new Error(`${directory}/${name}: ${response.status} ${response.statusText}`);
      return response.arrayBuffer();
    };
    return new Encoder(...(await Promise.all(["config.json", "encoder.safetensors", "sentencepiece.model"].map(read))));
  }

  // Takes the three files as ArrayBuffers.
  constructor(config, parameters, model) {
    this.config = JSON.parse(new TextDecoder().decode(config));
    const { encoder, prompts, default_prompt, truncate_dim } = this.config, tensors = readTensors(parameters);
    this.options = encoder;
    this.tokenizer = new Tokenizer(new Uint8Array(model), this.config.preprocessing.lowercase);
    this.prompt = prompts?.[default_prompt] ?? "";
    this.width = encoder.width;
    this.dim = truncate_dim ?? encoder.width;
    const { rows, narrow_rows, factor, feature_keys } = tensors;
    const numTokens = rows.shape[0] - (narrow_rows || !feature_keys ? 0 : feature_keys.data.length);
    this.ofTokens = makeTable(rows, factor.data, 0);
    if (feature_keys) {
      const table = narrow_rows ?? rows, skipped = narrow_rows ? 0 : numTokens;
      this.ofFeatures = makeTable(table, factor.data, numTokens - skipped, skipped);
      this.keys = Int32Array.from(feature_keys.data);
      this.slots = new Int32Array(SLOTS);
      this.keys.forEach((key, row) => { if (key !== NO_KEY) this.slots[key & (SLOTS - 1)] = row; });
    }
  }

  // One Float32Array of `dim` for each text; with `normalize` of length 1.
  encode(texts, { normalize = false } = {}) {
    return texts.map((text) => {
      const ids = this.tokenizer.encode(this.prompt + text).slice(0, this.config.max_length_tokens);
      const sum = new Float64Array(this.width);
      ids.forEach((id) => this.ofTokens(id, sum));
      if (this.keys) for (const row of this.features(ids)) this.ofFeatures(row, sum);
      const scale = 1 / Math.max(ids.length, 1);
      let vector = Float32Array.from(sum, (value) => value * scale);
      if (this.options.normalize) vector = unit(vector);
      vector = vector.slice(0, this.dim);
      return normalize ? unit(vector) : vector;
    });
  }

  // Rows of the pairs and triples of tokens that have one.
  *features(ids) {
    for (const name of this.options.features) {
      const shifts = FEATURES[name], seed = Math.imul(SEED, Object.keys(FEATURES).indexOf(name) + 1);
      for (let at = 0; at + shifts.at(-1) < ids.length; at++) {
        let bits = seed;
        shifts.forEach((shift, i) => { bits = Math.imul(bits ^ ids[at + shift], FACTORS[i]); });
        const key = Math.imul(bits ^ (bits >>> 15), LAST_FACTOR) >>> 8, row = this.slots[key & (SLOTS - 1)];
        if (this.keys[row] === key) yield row;
      }
    }
  }
}

export function cosine(a, b) {
  const ofB = unit(b);
  return unit(a).reduce((sum, value, i) => sum + value * ofB[i], 0);
}

function unit(vector) {
  const norm = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return norm ? vector.map((value) => value / norm) : vector;
}

// A function that adds a row, times its factor, to a sum. Rows are integers of 8 bits, or two of 4 in
// a byte.
function makeTable({ data, shape: [, width] }, factors, firstFactor, skipped = 0) {
  const isPacked = data instanceof Uint8Array;
  return (row, sum) => {
    const start = (row + skipped) * width, factor = factors[row + skipped + firstFactor];
    if (isPacked) {
      for (let i = 0; i < width; i++) {
        sum[2 * i] += factor * ((data[start + i] & 15) - 8);
        sum[2 * i + 1] += factor * ((data[start + i] >> 4) - 8);
      }
    } else {
      for (let i = 0; i < width; i++) sum[i] += factor * data[start + i];
    }
  };
}

// Tensors of a safetensors file by name.
function readTensors(buffer) {
  const size = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  const kinds = { F32: Float32Array, I8: Int8Array, U8: Uint8Array }, tensors = {};
  for (const [name, { dtype, shape, data_offsets: [start, end] }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const isAligned = dtype !== "F32" || (8 + size + start) % 4 === 0;
    const bytes = isAligned ? buffer : buffer.slice(8 + size + start, 8 + size + end);
    const offset = isAligned ? 8 + size + start : 0, each = kinds[dtype].BYTES_PER_ELEMENT;
    tensors[name] = { shape, data: new kinds[dtype](bytes, offset, (end - start) / each) };
  }
  return tensors;
}

// SentencePiece's unigram model, with its normalizer, from the bytes of its file.
class Tokenizer {
  constructor(bytes, lowercase) {
    this.lowercase = lowercase;
    this.pieces = new Map();
    this.scores = [];
    this.longest = 0;
    let lowest = Infinity;
    for (const [field, value] of protobuf(bytes)) {
      if (field === 3) this.normalizer = new Normalizer(value);
      if (field !== 1) continue;
      const { 1: piece, 2: score = 0, 3: type = NORMAL } = Object.fromEntries(protobuf(value));
      const id = this.scores.push(score) - 1, text = new TextDecoder().decode(piece);
      if (type === UNKNOWN) this.unknown = id;
      if (type !== NORMAL) continue;
      this.pieces.set(text, id);
      this.longest = Math.max(this.longest, text.length);
      lowest = Math.min(lowest, score);
    }
    this.unknownScore = Math.fround(lowest - UNKNOWN_PENALTY);
  }

  // Ids of the likeliest pieces. Sums are rounded to float32 as SentencePiece's are, so that ties fall
  // the same way.
  encode(text) {
    text = text.replace(INVISIBLE, "");
    if (this.lowercase) text = text.toLowerCase();
    text = this.normalizer.normalize(text.normalize("NFC").replace(SPACES, " "));
    const best = new Float32Array(text.length + 1), from = new Int32Array(text.length + 1).fill(-1);
    const ids = new Int32Array(text.length + 1);
    const offer = (start, end, id, score) => {
      const sum = Math.fround(best[start] + score);
      if (from[end] >= 0 && sum <= best[end]) return;
      best[end] = sum;
      from[end] = start;
      ids[end] = id;
    };
    for (let start = 0, size; start < text.length; start += size) {
      size = text.codePointAt(start) > 0xffff ? 2 : 1;
      let hasSingle = false;
      for (let end = start + 1; end <= Math.min(start + this.longest, text.length); end++) {
        const id = this.pieces.get(text.slice(start, end));
        if (id === undefined) continue;
        offer(start, end, id, this.scores[id]);
        hasSingle ||= end === start + size;
      }
      if (!hasSingle) offer(start, start + size, this.unknown, this.unknownScore);
    }
    const found = [];
    for (let end = text.length; end > 0; end = from[end]) {
      // Unknown characters in a row are one token.
      if (ids[end] !== this.unknown || found.at(-1) !== this.unknown) found.push(ids[end]);
    }
    return found.reverse();
  }
}

// Replaces the longest known prefix, again and again, by a double-array trie over UTF-8 whose values
// are places in a list of texts; then escapes spaces.
class Normalizer {
  constructor(bytes) {
    const { 2: map = new Uint8Array() } = Object.fromEntries(protobuf(bytes));
    if (map.length) {
      const size = new DataView(map.buffer, map.byteOffset).getUint32(0, true);
      this.trie = new Uint32Array(map.slice(4, 4 + size).buffer);
      this.texts = map.subarray(4 + size);
    }
  }

  normalize(text) {
    const bytes = new TextEncoder().encode(text), decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    const parts = [];
    for (let at = 0; at < bytes.length; ) {
      const [length, place] = this.prefix(bytes, at);
      if (length) {
        let end = place;
        while (this.texts[end]) end++;
        parts.push(decoder.decode(this.texts.subarray(place, end)));
        at += length;
      } else {
        const size = bytes[at] < 0x80 ? 1 : bytes[at] < 0xe0 ? 2 : bytes[at] < 0xf0 ? 3 : 4;
        parts.push(decoder.decode(bytes.subarray(at, (at += size))));
      }
    }
    const normal = parts.join("").replace(/ +/g, " ").replace(/^ | $/g, "");
    return normal && SPACE + normal.replaceAll(" ", SPACE);
  }

  // Length of the longest prefix in the trie, 0 for none, and where its text begins.
  prefix(bytes, at) {
    let length = 0, place = 0;
    if (!this.trie) return [length, place];
    const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
    for (let node = offset(this.trie[0]), i = at; i < bytes.length; i++) {
      const unit = this.trie[(node ^= bytes[i])];
      if ((unit & 0x800000ff) >>> 0 !== bytes[i]) break;
      node ^= offset(unit);
      if (unit & 0x100) [length, place] = [i - at + 1, this.trie[node] & 0x7fffffff];
    }
    return [length, place];
  }
}

// Fields of a message: numbers, floats, and bytes.
function* protobuf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0, byte;
    for (let shift = 1; ; shift *= 128) {
      value += ((byte = bytes[at++]) & 127) * shift;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint(), field = Math.floor(tag / 8), kind = tag % 8;
    if (kind === 0) yield [field, varint()];
    else if (kind === 1) at += 8;
    else if (kind === 5) yield [field, view.getFloat32((at += 4) - 4, true)];
    else {
      const size = varint();
      yield [field, bytes.subarray(at, (at += size))];
    }
  }
}
