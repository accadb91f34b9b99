import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ImageConfig, TarEntry } from '../../support/node/index.ts';
import { tar } from '../../support/node/parts/tar.ts';

const mediaTypes = {
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar',
} as const;

export interface OciImage {
  /** In order from the lowest to the highest. */
  readonly layers: readonly (readonly TarEntry[])[];
  readonly config: ImageConfig;
}

/** Content that a registry serves under its digest. */
export interface Blob {
  readonly digest: string;
  readonly mediaType: string;
  readonly content: Buffer;
}

export interface BuiltImage {
  readonly manifest: Blob;
  /** The configuration and the layers. */
  readonly blobs: readonly Blob[];
}

export function blobOf(mediaType: string, content: Buffer): Blob {
  return { digest: `sha256:${createHash('sha256').update(content).digest('hex')}`, mediaType, content };
}

/** Turns layers into blobs. A layer that several images share is the same array, and is packed once. */
export class ImageBuilder {
  private readonly packed = new Map<readonly TarEntry[], Blob>();

  build(image: OciImage): BuiltImage {
    const layers = image.layers.map((layer) => this.pack(layer));
    const config = blobOf(mediaTypes.config, json(configFile(image.config, layers)));
    const manifest = json({
      schemaVersion: 2,
      mediaType: mediaTypes.manifest,
      config: descriptor(config),
      layers: layers.map(descriptor),
    });
    return { manifest: blobOf(mediaTypes.manifest, manifest), blobs: [config, ...layers] };
  }

  private pack(layer: readonly TarEntry[]): Blob {
    const known = this.packed.get(layer);
    if (known) return known;
    const blob = blobOf(mediaTypes.layer, tar(layer));
    this.packed.set(layer, blob);
    return blob;
  }
}

function configFile(config: ImageConfig, layers: readonly Blob[]): object {
  return {
    architecture: 'amd64',
    os: 'linux',
    created: '1970-01-01T00:00:00Z',
    config: {
      Env: config.env ?? ['PATH=/bin'],
      ...(config.entrypoint && { Entrypoint: config.entrypoint }),
      ...(config.command && { Cmd: config.command }),
      ...(config.user !== undefined && { User: config.user }),
      ...(config.volumes && { Volumes: Object.fromEntries(config.volumes.map((path) => [path, {}])) }),
    },
    // Layers are not compressed, so the transferred and the unpacked content have the same digest.
    rootfs: { type: 'layers', diff_ids: layers.map((layer) => layer.digest) },
  };
}

function descriptor(blob: Blob): object {
  return { mediaType: blob.mediaType, digest: blob.digest, size: blob.content.length };
}

function json(value: object): Buffer {
  return Buffer.from(JSON.stringify(value));
}

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
