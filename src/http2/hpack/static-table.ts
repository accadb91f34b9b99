import { HeaderField } from './field.ts';

/** The static table (RFC 7541 Appendix A), in order from index 1. */
const FIELDS: readonly (readonly [name: string, value?: string])[] = [
  [':authority'],
  [':method', 'GET'],
  [':method', 'POST'],
  [':path', '/'],
  [':path', '/index.html'],
  [':scheme', 'http'],
  [':scheme', 'https'],
  [':status', '200'],
  [':status', '204'],
  [':status', '206'],
  [':status', '304'],
  [':status', '400'],
  [':status', '404'],
  [':status', '500'],
  ['accept-charset'],
  ['accept-encoding', 'gzip, deflate'],
  ['accept-language'],
  ['accept-ranges'],
  ['accept'],
  ['access-control-allow-origin'],
  ['age'],
  ['allow'],
  ['authorization'],
  ['cache-control'],
  ['content-disposition'],
  ['content-encoding'],
  ['content-language'],
  ['content-length'],
  ['content-location'],
  ['content-range'],
  ['content-type'],
  ['cookie'],
  ['date'],
  ['etag'],
  ['expect'],
  ['expires'],
  ['from'],
  ['host'],
  ['if-match'],
  ['if-modified-since'],
  ['if-none-match'],
  ['if-range'],
  ['if-unmodified-since'],
  ['last-modified'],
  ['link'],
  ['location'],
  ['max-forwards'],
  ['proxy-authenticate'],
  ['proxy-authorization'],
  ['range'],
  ['referer'],
  ['refresh'],
  ['retry-after'],
  ['server'],
  ['set-cookie'],
  ['strict-transport-security'],
  ['transfer-encoding'],
  ['user-agent'],
  ['vary'],
  ['via'],
  ['www-authenticate'],
];

/** Indices of fields that the shim writes itself (RFC 7541 Appendix A). Those without a value are indices of names. */
export const StaticIndex = {
  AUTHORITY: 1,
  METHOD_POST: 3,
  PATH: 4,
  SCHEME_HTTP: 6,
  STATUS_200: 8,
  CONTENT_TYPE: 31,
  USER_AGENT: 58,
} as const;

export const STATIC_TABLE_SIZE = FIELDS.length;

const TABLE: readonly HeaderField[] = FIELDS.map(([name, value], index) => {
  const nameIndex = FIELDS.findIndex(([other]) => other === name) + 1;
  return new HeaderField(name, value ?? '', nameIndex, index + 1, false);
});

/** Returns the field at this index, 1 to {@link STATIC_TABLE_SIZE}. */
export function staticField(index: number): HeaderField | undefined {
  return TABLE[index - 1];
}
