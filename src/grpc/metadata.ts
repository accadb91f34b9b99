import { Metadata } from '../core/grpc/index.ts';

/** Headers of gRPC and HTTP themselves, which are no metadata of the caller. A grpc-js server removes the same ones. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  'accept-encoding',
  'content-type',
  'grpc-accept-encoding',
  'grpc-encoding',
  'grpc-timeout',
  'te',
]);

/** Returns the metadata that a request's header fields carry. Pseudo-header fields are left out. */
export function metadataOf(fields: readonly { readonly name: string; readonly value: string }[]): Metadata {
  const metadata = new Metadata();
  for (const { name, value } of fields) if (!OWN_HEADERS.has(name)) metadata.add(name, value);
  return metadata;
}
