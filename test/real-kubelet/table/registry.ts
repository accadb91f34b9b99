import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { busyboxLayer } from '../../support/node/parts/images.ts';
import { tar } from '../../support/node/parts/tar.ts';

const PORT = 5000;
const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';

interface Blob {
  readonly type: string;
  readonly content: Buffer;
}

/** An image registry with one image. It holds requests for the image until {@link Registry.release} answers them. */
export class Registry {
  readonly #server: Server;
  readonly #blobs = new Map<string, Blob>();
  readonly #manifest: Blob;
  readonly #held: ServerResponse[] = [];
  readonly #askers: (() => void)[] = [];
  #serves = false;

  private constructor() {
    const busybox = readFileSync(join(process.env['NODE_APPLETS'] ?? '', 'busybox'));
    const layer = this.#add('application/vnd.oci.image.layer.v1.tar', tar(busyboxLayer(busybox, ['sh', 'sleep'])));
    const config = {
      architecture: 'amd64',
      os: 'linux',
      config: { Env: ['PATH=/bin'] },
      rootfs: { type: 'layers', diff_ids: [layer.digest] },
    };
    const manifest = {
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: this.#add('application/vnd.oci.image.config.v1+json', Buffer.from(JSON.stringify(config))),
      layers: [layer],
    };
    this.#manifest = { type: MANIFEST, content: Buffer.from(JSON.stringify(manifest)) };
    this.#blobs.set(digestOf(this.#manifest.content), this.#manifest);
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  static async start(): Promise<Registry> {
    const registry = new Registry();
    registry.#server.listen(PORT, '127.0.0.1');
    await once(registry.#server, 'listening');
    return registry;
  }

  /** Resolves once a request for the image is held. */
  asked(): Promise<void> {
    return this.#held.length > 0 ? Promise.resolve() : new Promise((resolve) => this.#askers.push(resolve));
  }

  /** Answers the held requests. After `image`, also answers later requests at once. */
  release(answer: 'not found' | 'image'): void {
    this.#serves = answer === 'image';
    for (const response of this.#held.splice(0)) {
      if (this.#serves) send(response, this.#manifest);
      else notFound(response);
    }
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #add(mediaType: string, content: Buffer): { mediaType: string; digest: string; size: number } {
    const digest = digestOf(content);
    this.#blobs.set(digest, { type: mediaType, content });
    return { mediaType, digest, size: content.length };
  }

  #answer({ url = '' }: IncomingMessage, response: ServerResponse): void {
    const [, digest = ''] = /\/(?:blobs|manifests)\/(sha256:\w+)$/.exec(url) ?? [];
    const blob = this.#blobs.get(digest);
    if (url === '/v2/') response.end();
    else if (blob !== undefined) send(response, blob);
    else if (!url.includes('/manifests/')) notFound(response);
    else if (this.#serves) send(response, this.#manifest);
    else {
      this.#held.push(response);
      for (const notify of this.#askers.splice(0)) notify();
    }
  }
}

const digestOf = (content: Buffer): string => `sha256:${createHash('sha256').update(content).digest('hex')}`;

function send(response: ServerResponse, { type, content }: Blob): void {
  response.writeHead(200, {
    'content-type': type,
    'content-length': content.length,
    'docker-content-digest': digestOf(content),
  });
  // Node omits the body in responses to HEAD.
  response.end(content);
}

function notFound(response: ServerResponse): void {
  response.writeHead(404, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ errors: [{ code: 'MANIFEST_UNKNOWN', message: 'not here' }] }));
}
