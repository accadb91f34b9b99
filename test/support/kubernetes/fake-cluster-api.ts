import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TestCertificate } from './fake-api-server.ts';

/** Replaces the Kubernetes API server for the installer's pod: its node. */
export class FakeClusterApi {
  readonly token = 'installer-token';
  /** The status of the condition Ready of each node. */
  readonly nodes = new Map<string, 'True' | 'False' | 'Unknown'>();
  readonly #server: Server;

  constructor(
    readonly tls: TestCertificate,
    /** The address at which other hosts reach the server. */
    readonly advertised: string,
  ) {
    this.#server = createServer({ cert: tls.certificate, key: tls.key }, ({ method, url, headers }, response) => {
      const [, name = ''] = /^\/api\/v1\/nodes\/([^/?]+)\?resourceVersion=0$/.exec(url ?? '') ?? [];
      const status = this.nodes.get(name);
      const isKnown = method === 'GET' && status !== undefined && headers.authorization === `Bearer ${this.token}`;
      response.writeHead(isKnown ? 200 : 403, { 'content-type': 'application/json' });
      const conditions = [
        { type: 'MemoryPressure', status: 'False' },
        { type: 'Ready', status },
      ];
      response.end(JSON.stringify(isKnown ? { metadata: { name }, status: { conditions } } : { message: 'no' }));
    });
  }

  async start(): Promise<this> {
    // An address that is created with the first pod may not exist yet.
    this.#server.listen(0, '0.0.0.0');
    await once(this.#server, 'listening');
    return this;
  }

  async stop(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }
}
