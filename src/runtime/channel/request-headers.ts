import type { Metadata } from '../../core/index.ts';
import { HeaderField, HpackEncoder, StaticIndex, staticField } from '../../http2/index.ts';

/** Maximum number of cached encoded paths. The shim calls about a dozen methods. */
const MAX_PATHS = 64;

/**
 * Fields that a call must not take from the call that caused it: fields of the connection and the message, and fields
 * that this client sets itself. This client accepts no compression.
 */
const OWN = new Set([
  'te',
  'host',
  'user-agent',
  'content-type',
  'content-length',
  'accept-encoding',
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
]);

const isOwn = (name: string): boolean =>
  OWN.has(name) || /^(:|grpc-(timeout|encoding|accept-encoding|status|message)$)/.test(name);

const field = (name: string, value: string, nameIndex = 0): HeaderField =>
  new HeaderField(name, value, nameIndex, 0, false);

/** The fields of every call. */
const COMMON = [
  staticField(StaticIndex.METHOD_POST),
  staticField(StaticIndex.SCHEME_HTTP),
  // The value that Go clients send over a unix socket.
  field(':authority', 'localhost', StaticIndex.AUTHORITY),
  field('content-type', 'application/grpc', StaticIndex.CONTENT_TYPE),
  field('te', 'trailers'),
  field('user-agent', 'grpc-node-cri-resize-shim/1.0', StaticIndex.USER_AGENT),
].filter((one) => one !== undefined);

/** Encodes without a dynamic table, and without the size update that begins a connection's first block. */
function encode(fields: readonly HeaderField[], offset = 0): Buffer {
  const encoder = new HpackEncoder();
  encoder.encode([]);
  return encoder.encode(fields, offset);
}

const paths = new Map<string, Buffer>();

/** Returns the encoded fields of a call that depend on its path only. */
export function pathBlock(path: string): Buffer {
  const known = paths.get(path);
  if (known !== undefined) return known;
  if (paths.size >= MAX_PATHS) paths.clear();
  const [method, scheme, ...others] = COMMON;
  const first = [method, scheme].filter((one) => one !== undefined);
  // Fields that begin with a colon come first (RFC 9113 8.3).
  const block = encode([...first, field(':path', path, StaticIndex.PATH), ...others]);
  paths.set(path, block);
  return block;
}

const NOTHING = Buffer.alloc(0);

/** Returns the encoded fields that a call takes from the call that caused it. */
export function metadataBlock(metadata: Metadata | undefined): Buffer {
  if (metadata === undefined) return NOTHING;
  const fields = metadata
    .fields()
    .filter(([name]) => !isOwn(name))
    .map(([name, text]) => field(name, text));
  return fields.length === 0 ? NOTHING : encode(fields);
}

/** A timeout has at most 8 digits (PROTOCOL-HTTP2.md of grpc). */
const LARGEST_TIMEOUT = 99_999_999;
const UNITS: readonly (readonly [unit: string, ms: number])[] = [
  ['m', 1],
  ['S', 1000],
  ['M', 60_000],
  ['H', 3_600_000],
];

/** The encoded timeout of the last call: most calls have the same timeout. */
let lastTimeout: { readonly text: string; readonly block: Buffer } = { text: '', block: NOTHING };

/** Returns the encoded `grpc-timeout`, rounded up. Empty without a timeout. @param ms milliseconds */
export function timeoutBlock(ms: number): Buffer {
  const unit = UNITS.find(([, length]) => Math.ceil(ms / length) <= LARGEST_TIMEOUT);
  if (unit === undefined) return NOTHING;
  const text = `${Math.max(1, Math.ceil(ms / unit[1]))}${unit[0]}`;
  if (lastTimeout.text !== text) lastTimeout = { text, block: encode([field('grpc-timeout', text)]) };
  return lastTimeout.block;
}
