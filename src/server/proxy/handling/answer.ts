import { HeaderField, StaticIndex, staticField } from '../../http2/index.ts';
import { percentEncode } from '../grpc.ts';

const literal = (name: string, value: string, nameIndex = 0): Buffer =>
  new HeaderField(name, value, nameIndex, 0, false).wire;

/** What every answer begins with: the headers of a grpc-js server, which answers all other handled calls. */
const RESPONSE = Buffer.concat([
  staticField(StaticIndex.STATUS_200)?.wire ?? literal(':status', '200'),
  literal('content-type', 'application/grpc+proto', StaticIndex.CONTENT_TYPE),
]);

/** The header block of a response with a message. */
export const RESPONSE_HEADERS = Buffer.concat([
  RESPONSE,
  literal('grpc-accept-encoding', 'identity,deflate,gzip'),
  literal('grpc-encoding', 'identity'),
]);

/** The trailers of a call that succeeds. */
export const OK_TRAILERS = Buffer.concat([literal('grpc-status', '0'), literal('grpc-message', 'OK')]);

/** Returns the header block that ends a call without a message (gRPC over HTTP/2, Trailers-Only). */
export function failureBlock(
  code: number,
  message: string,
  trailers: readonly (readonly [name: string, value: string])[],
): Buffer {
  return Buffer.concat([
    RESPONSE,
    literal('grpc-status', String(code)),
    literal('grpc-message', percentEncode(message)),
    ...trailers.map(([name, value]) => literal(name, value)),
  ]);
}
