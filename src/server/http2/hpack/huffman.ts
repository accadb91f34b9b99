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

/** The code tree at one depth, where codes of that many bits end. */
interface Level {
  /** Those whose codes end here, in the order of their codes: before all inner nodes of this depth, since the code is canonical. */
  readonly symbols: number[];
  /** Inner nodes: what there is room for and does not end here. */
  inner: number;
  /** States are inner nodes, counted from the root: the first one of this depth. */
  firstState: number;
}

const levels = levelsOfCode();

function levelsOfCode(): readonly Level[] {
  const made = Array.from({ length: 31 }, (): Level => ({ symbols: [], inner: 0, firstState: 0 }));
  LENGTHS.forEach((length, symbol) => made[length]?.symbols.push(symbol));
  let room = 1;
  let firstState = 0;
  for (const level of made) {
    level.inner = room - level.symbols.length;
    level.firstState = firstState;
    firstState += level.inner;
    room = 2 * level.inner;
  }
  return made;
}

/** The code of each symbol, EOS last. Exported for the tests' encoder: the shim itself writes strings as they are. */
export function huffmanCodes(): readonly { readonly code: number; readonly length: number }[] {
  const codes = LENGTHS.map((length) => ({ code: 0, length }));
  let code = 0;
  for (const { symbols } of levels) {
    for (const symbol of symbols) codes[symbol] = { code: code++, length: LENGTHS[symbol] ?? 0 };
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
/** A cell that nobody has asked for. Headers need a fraction of them, and making all at the start is what V8 would load its optimiser for. */
const UNKNOWN = -2;

const states = levels.reduce((sum, { inner }) => sum + inner, 0);
const cells = new Int32Array(states * 16).fill(UNKNOWN);
const depths = new Uint8Array(states);
levels.forEach(({ firstState, inner }, depth) => depths.fill(depth, firstState, firstState + inner));
/** 1 for the states in which a string may end: at most 7 bits, all ones (the last node of its depth), since the last symbol. */
const final = new Uint8Array(states);
for (const { firstState, inner } of levels.slice(0, 8)) final[firstState + inner - 1] = 1;

/** The cell of a state for these four bits. */
function cellAt(state: number, nibble: number): number {
  const known = cells[state * 16 + nibble] ?? REFUSED;
  return known === UNKNOWN ? (cells[state * 16 + nibble] = cellOf(state, nibble)) : known;
}

function cellOf(state: number, nibble: number): number {
  let depth = depths[state] ?? 0;
  let node = state - (levels[depth]?.firstState ?? 0);
  let emitted = 0;
  for (let bit = 3; bit >= 0; bit -= 1) {
    depth += 1;
    const child = 2 * node + ((nibble >>> bit) & 1);
    const symbols = levels[depth]?.symbols ?? [];
    const symbol = symbols[child];
    if (symbol === EOS) return REFUSED;
    if (symbol !== undefined) emitted = EMITS | (symbol << 10);
    [depth, node] = symbol === undefined ? [depth, child - symbols.length] : [0, 0];
  }
  return ((levels[depth]?.firstState ?? 0) + node) | emitted;
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
    const high = cellAt(state, octet >>> 4);
    if (high === REFUSED) throw invalid();
    if ((high & EMITS) !== 0) out[written++] = high >>> 10;
    const low = cellAt(high & STATE, octet & 15);
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
