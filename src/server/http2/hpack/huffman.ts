import { ConnectionError, ErrorCode } from '../errors.ts';

/**
 * Code lengths in bits of the octets 0 to 255 and of EOS (RFC 7541 appendix B), 16 in a row. The code is canonical: codes of one length are
 * consecutive in the order of their symbols, so that the lengths say it all.
 */
// biome-ignore format: a table
const LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
  28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
  6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
  5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
  7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
  15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
  6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
  20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
  24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
  22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
  21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
  26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
  19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
  20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
  26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
  30,
];
const EOS = 256;

/** The code of each symbol, EOS last. Exported for the tests' encoder: the shim itself writes strings as they are. */
export function huffmanCodes(): readonly { readonly code: number; readonly length: number }[] {
  const codes = LENGTHS.map((length) => ({ code: 0, length }));
  let code = 0;
  for (let length = 1; length <= 30; length += 1) {
    for (const entry of codes) if (entry.length === length) entry.code = code++;
    code *= 2;
  }
  return codes;
}

/**
 * The decoder as a machine that takes four bits at a time. A state is an inner node of the code tree; a cell is the next state, in
 * bits 0 to 8, bit 9 when a symbol ended on the way, and that symbol from bit 10 on. No code is shorter than five
 * bits, so that four never end two symbols.
 */
const EMITS = 1 << 9;
const STATE = EMITS - 1;
/** A cell on the way to EOS, which no string may contain (RFC 7541 section 5.2). */
const REFUSED = -1;

interface Machine {
  readonly cells: Int32Array;
  /** 1 for the states in which a string may end: at most 7 bits, all ones, since the last symbol. */
  readonly final: Uint8Array;
}

const { cells, final } = buildMachine();

function buildMachine(): Machine {
  // Children of node n: tree[2n], tree[2n + 1]; inner nodes as their number, symbols as -1 - symbol.
  const tree: number[] = [0, 0];
  huffmanCodes().forEach(({ code, length }, symbol) => {
    let node = 0;
    for (let bit = length - 1; bit > 0; bit -= 1) {
      const edge = 2 * node + ((code >>> bit) & 1);
      if (tree[edge] === 0) tree[edge] = tree.push(0, 0) / 2 - 1;
      node = tree[edge] ?? 0;
    }
    tree[2 * node + (code & 1)] = -1 - symbol;
  });
  const states = tree.length / 2;
  const machine = { cells: new Int32Array(states * 16), final: new Uint8Array(states) };
  for (let state = 0; state < states; state += 1)
    for (let nibble = 0; nibble < 16; nibble += 1) machine.cells[state * 16 + nibble] = cellOf(tree, state, nibble);
  for (let bits = 0, node = 0; bits <= 7; bits += 1, node = tree[2 * node + 1] ?? 0) machine.final[node] = 1;
  return machine;
}

function cellOf(tree: readonly number[], state: number, nibble: number): number {
  let node = state;
  let emitted = 0;
  for (let bit = 3; bit >= 0; bit -= 1) {
    const next = tree[2 * node + ((nibble >>> bit) & 1)] ?? 0;
    if (next === -1 - EOS) return REFUSED;
    if (next < 0) emitted = EMITS | ((-1 - next) << 10);
    node = next < 0 ? 0 : next;
  }
  return node | emitted;
}

/** Strings of ordinary headers decode into this; longer ones get a buffer of their own. */
const scratch = Buffer.allocUnsafe(4096);

/**
 * Decodes a Huffman-coded string (RFC 7541 section 5.2) to a string of one character for each octet.
 * @throws ConnectionError when it contains EOS, or its padding is longer than 7 bits or not of ones
 */
export function decodeHuffman(bytes: Buffer, start: number, end: number): string {
  // Five bits is the shortest code.
  const most = Math.ceil(((end - start) * 8) / 5);
  const out = most > scratch.length ? Buffer.allocUnsafe(most) : scratch;
  let written = 0;
  let state = 0;
  for (let at = start; at < end; at += 1) {
    const octet = bytes[at] ?? 0;
    const high = cells[state * 16 + (octet >>> 4)] ?? REFUSED;
    if (high === REFUSED) throw invalid();
    if ((high & EMITS) !== 0) out[written++] = high >>> 10;
    const low = cells[(high & STATE) * 16 + (octet & 15)] ?? REFUSED;
    if (low === REFUSED) throw invalid();
    if ((low & EMITS) !== 0) out[written++] = low >>> 10;
    state = low & STATE;
  }
  if (final[state] !== 1) throw invalid();
  return out.toString('latin1', 0, written);
}

function invalid(): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'Huffman-coded string is broken');
}
