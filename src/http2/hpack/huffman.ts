import { ConnectionError, ErrorCode } from '../errors.ts';

/**
 * Code lengths in bits of the octets 0 to 255 and of EOS (RFC 7541 Appendix B), 16 in a row. The code is canonical:
 * codes of one length are consecutive in the order of their symbols, so the lengths define all codes.
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
  /** Symbols whose codes end at this depth, in order. They precede the inner nodes, because the code is canonical. */
  readonly symbols: number[];
  /** The number of inner nodes. */
  inner: number;
  /** The first state of this depth. States are inner nodes, counted from the root. */
  firstState: number;
}

const levels = levelsOfCode();

function levelsOfCode(): readonly Level[] {
  const made = Array.from({ length: 31 }, (): Level => ({ symbols: [], inner: 0, firstState: 0 }));
  LENGTHS.forEach((length, symbol) => made[length]?.symbols.push(symbol));
  let nodes = 1;
  let firstState = 0;
  for (const level of made) {
    level.inner = nodes - level.symbols.length;
    level.firstState = firstState;
    firstState += level.inner;
    nodes = 2 * level.inner;
  }
  return made;
}

/**
 * Returns the code of each symbol, EOS last. Used by the tests' encoder: the shim itself writes strings uncompressed.
 */
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
 * The decoder is a state machine that reads four bits at a time. A state is an inner node of the code tree. A cell
 * holds the next state in bits 0 to 8, bit 9 if a symbol ended on the way, and that symbol from bit 10 on. No code is
 * shorter than five bits, so four bits never end two symbols.
 */
const EMITS = 1 << 9;
const STATE = EMITS - 1;
/** A cell that leads to EOS, which no string may contain (RFC 7541 5.2). */
const INVALID = -1;
/**
 * A cell that has not been computed. Headers need few cells; computing all of them at start would trigger V8's
 * optimizer.
 */
const UNKNOWN = -2;

const states = levels.reduce((sum, { inner }) => sum + inner, 0);
const cells = new Int32Array(states * 16).fill(UNKNOWN);
const depths = new Uint8Array(states);
levels.forEach(({ firstState, inner }, depth) => depths.fill(depth, firstState, firstState + inner));
/**
 * 1 for states in which a string may end: at most 7 bits after the last symbol, all ones (the last node of its depth).
 */
const final = new Uint8Array(states);
for (const { firstState, inner } of levels.slice(0, 8)) final[firstState + inner - 1] = 1;

/** Returns the cell of a state for these four bits. */
function cellAt(state: number, nibble: number): number {
  const known = cells[state * 16 + nibble] ?? INVALID;
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
    if (symbol === EOS) return INVALID;
    if (symbol !== undefined) emitted = EMITS | (symbol << 10);
    [depth, node] = symbol === undefined ? [depth, child - symbols.length] : [0, 0];
  }
  return ((levels[depth]?.firstState ?? 0) + node) | emitted;
}

/** Decoded strings of ordinary headers fit in this buffer. Longer ones get one of their own. */
const scratch = Buffer.allocUnsafe(4096);

/**
 * Decodes a Huffman-coded string (RFC 7541 5.2) to a string with one character for each octet.
 * @throws ConnectionError if it contains EOS, or if its padding is longer than 7 bits or not all ones
 */
export function decodeHuffman(bytes: Buffer, start: number, end: number): string {
  // The shortest code has five bits.
  const most = Math.ceil(((end - start) * 8) / 5);
  const out = most > scratch.length ? Buffer.allocUnsafe(most) : scratch;
  let written = 0;
  let state = 0;
  for (let at = start; at < end; at += 1) {
    const octet = bytes[at] ?? 0;
    const high = cellAt(state, octet >>> 4);
    if (high === INVALID) throw invalid();
    if ((high & EMITS) !== 0) out[written++] = high >>> 10;
    const low = cellAt(high & STATE, octet & 15);
    if (low === INVALID) throw invalid();
    if ((low & EMITS) !== 0) out[written++] = low >>> 10;
    state = low & STATE;
  }
  if (final[state] !== 1) throw invalid();
  return out.toString('latin1', 0, written);
}

function invalid(): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, 'invalid Huffman-coded string');
}
