export { DEFAULT_TABLE_SIZE, HpackDecoder } from './decoder.ts';
export { HpackEncoder } from './encoder.ts';
export { HeaderField } from './field.ts';
export { staticField } from './static-table.ts';
