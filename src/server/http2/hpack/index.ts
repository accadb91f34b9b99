/** Header compression for HTTP/2 (RFC 7541). */
export { DEFAULT_TABLE_SIZE, HpackDecoder } from './decoder.ts';
export { HpackEncoder } from './encoder.ts';
export { HeaderField } from './field.ts';
export { StaticIndex, staticField } from './static-table.ts';
