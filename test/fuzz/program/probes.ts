import { get } from 'node:http';
import { Client, credentials } from '@grpc/grpc-js';
import { Finding } from '../target.ts';
import type { Addresses } from './session.ts';

const raw = (bytes: Buffer): Buffer => bytes;
const PROBE_MS = 30_000;

/**
 * Calls that must be answered regardless of the other calls: a forwarded one, a handled one, and one for each other
 * listener.
 */
export class Probes {
  readonly #cri: Client;
  readonly #resize: Client;
  readonly #port: number;
  #count = 0;

  constructor({ cri, resize, metrics }: Addresses) {
    const options = { 'grpc.use_local_subchannel_pool': 1, 'grpc.max_reconnect_backoff_ms': 100 };
    this.#cri = new Client(`unix:${cri}`, credentials.createInsecure(), options);
    this.#resize = new Client(`unix:${resize}`, credentials.createInsecure(), options);
    this.#port = Number(metrics);
  }

  /** Waits until the sockets are served: the resize API opens once the registry is known. */
  async ready(): Promise<void> {
    const deadline = Date.now() + PROBE_MS;
    for (const client of [this.#cri, this.#resize])
      await new Promise<void>((resolve, reject) =>
        client.waitForReady(deadline, (error) =>
          error === undefined ? resolve() : reject(new Finding(error.message)),
        ),
      );
    await this.all();
  }

  /** Rejects with a {@link Finding}. */
  async all(): Promise<void> {
    this.#count += 1;
    const text = Buffer.from(`probe ${this.#count}`);
    const [echo, health, alive] = await Promise.all([
      call(this.#cri, '/s/Echo', text),
      call(this.#resize, '/grpc.health.v1.Health/Check', Buffer.alloc(0)),
      this.#liveness(),
      call(this.#cri, '/runtime.v1.RuntimeService/UpdateContainerResources', Buffer.alloc(0)).catch(
        anyStatus(Date.now()),
      ),
    ]);
    if (!echo.equals(text)) throw new Finding(`a forwarded call was answered with ${echo.toString('hex')}`);
    if (health.length === 0) throw new Finding('the health service of the resize API has no answer');
    if (alive !== 200) throw new Finding(`/livez was answered with ${alive}`);
  }

  #liveness(): Promise<number> {
    return new Promise((resolve, reject) => {
      const request = get({ port: this.#port, path: '/livez', agent: false, timeout: PROBE_MS }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      request.on('error', (error) => reject(new Finding(`/livez: ${error.message}`)));
    });
  }

  close(): void {
    this.#cri.close();
    this.#resize.close();
  }
}

function call(client: Client, path: string, request: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(path, raw, raw, request, { deadline: Date.now() + PROBE_MS }, (error, response) => {
      if (error === null) resolve(response ?? Buffer.alloc(0));
      else reject(new Finding(`${path}: ${error.message}`));
    });
  });
}

/** The hostile runtime may answer with any status, but there has to be an answer. */
const anyStatus =
  (start: number) =>
  (error: unknown): Buffer => {
    if (Date.now() - start >= PROBE_MS) throw error;
    return Buffer.alloc(0);
  };
