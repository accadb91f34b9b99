import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { blobOf, ImageBuilder } from './oci.ts';
import type { Blob, OciImage } from './oci.ts';

export interface Registry {
  readonly port: number;
  close(): Promise<void>;
}

/** Manifests by `repository:tag` and `repository@digest`, and blobs by digest. */
interface Content {
  readonly manifests: ReadonlyMap<string, Blob>;
  readonly blobs: ReadonlyMap<string, Blob>;
}

/**
 * Serves images on loopback over plain HTTP with the parts of the OCI distribution protocol that pulling needs:
 * manifests by tag and digest, blobs, HEAD and GET.
 * @param images by `repository:tag`
 */
export async function startRegistry(images: ReadonlyMap<string, OciImage>): Promise<Registry> {
  const content = contentOf(images);
  const server = createServer((request, response) => answer(content, request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

function contentOf(images: ReadonlyMap<string, OciImage>): Content {
  const builder = new ImageBuilder();
  const manifests = new Map<string, Blob>();
  const blobs = new Map<string, Blob>();
  for (const [name, image] of images) {
    const built = builder.build(image);
    const colon = name.lastIndexOf(':');
    if (colon < 0) throw new Error(`image name "${name}" has no tag`);
    manifests.set(name, built.manifest);
    manifests.set(`${name.slice(0, colon)}@${built.manifest.digest}`, built.manifest);
    for (const blob of built.blobs) blobs.set(blob.digest, blob);
  }
  return { manifests, blobs };
}

const digest = /^sha256:[0-9a-f]{64}$/;

/** Returns the content of a path: `/v2/<repository>/manifests/<tag or digest>` or `/v2/<repository>/blobs/<digest>`. */
function find(content: Content, path: string): Blob | undefined {
  const match = /^\/v2\/(?<repository>.+)\/(?<kind>manifests|blobs)\/(?<reference>[^/]+)$/.exec(path);
  const { repository, kind, reference } = match?.groups ?? {};
  if (repository === undefined || reference === undefined) return undefined;
  if (kind === 'blobs') return content.blobs.get(reference);
  return content.manifests.get(`${repository}${digest.test(reference) ? '@' : ':'}${reference}`);
}

function answer(content: Content, request: IncomingMessage, response: ServerResponse): void {
  const path = decodeURIComponent(new URL(request.url ?? '/', 'http://registry').pathname);
  const reading = request.method === 'GET' || request.method === 'HEAD';
  if (!reading) {
    refuse(response, 405, 'UNSUPPORTED', `${String(request.method)} is not served`);
    return;
  }
  if (path === '/v2/') {
    send(request, response, blobOf('application/json', Buffer.from('{}')));
    return;
  }
  const blob = find(content, path);
  if (blob === undefined) {
    refuse(response, 404, 'MANIFEST_UNKNOWN', `${path} does not exist`);
    return;
  }
  send(request, response, blob);
}

function send(request: IncomingMessage, response: ServerResponse, blob: Blob): void {
  response.writeHead(200, {
    'content-type': blob.mediaType,
    'content-length': blob.content.length,
    'docker-content-digest': blob.digest,
  });
  response.end(request.method === 'HEAD' ? undefined : blob.content);
}

function refuse(response: ServerResponse, status: number, code: string, message: string): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ errors: [{ code, message }] }));
}
