import { Metadata } from '../../../core/grpc/index.ts';
import type { HeaderField } from '../../../server/http2/index.ts';

/**
 * Fields that are not metadata: the status and its message, fields of one connection (RFC 9113 8.2.2), and the length of a response that
 * another one may replace. node:http2 sends none of those of a connection.
 */
const DROPPED = new Set([
  'grpc-status',
  'grpc-message',
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  'te',
  'content-length',
]);

/** Fields with one value each in HTTP. node:http2 sends no second one, and reads only the first. */
const SINGLE = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/** Returns the trailers of a failed call that can be forwarded with its status: all but status and message. */
export function metadataOf(fields: readonly HeaderField[]): Metadata {
  const metadata = new Metadata();
  const seen = new Set<string>();
  for (const { name, value } of fields) {
    if (name.startsWith(':') || DROPPED.has(name)) continue;
    if (SINGLE.has(name) && seen.has(name)) continue;
    // Fields that gRPC does not allow are left out.
    if (metadata.add(name, value)) seen.add(name);
  }
  return metadata;
}
