import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type ListenOptions, type Server, type Socket } from 'node:net';

type Target = { readonly path: string } | { readonly host: string; readonly port: number };

/** Forwards connections between TCP and a unix socket. The witnesses know only TCP, the shim only unix sockets. */
export class Relay {
  readonly #sockets = new Set<Socket>();

  private constructor(private readonly server: Server) {}

  /** `listen` without a path or a port listens on any free port of the loopback address. */
  static async open(listen: Pick<ListenOptions, 'path'>, target: Target): Promise<Relay> {
    const server = createServer({ allowHalfOpen: true });
    const relay = new Relay(server);
    server.on('connection', (client) => relay.#forward(client, connect({ ...target, allowHalfOpen: true })));
    server.listen(listen.path === undefined ? { host: '127.0.0.1', port: 0 } : listen);
    await once(server, 'listening');
    return relay;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  #forward(client: Socket, server: Socket): void {
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(one);
      one.setNoDelay();
      // The event 'close' follows.
      one.on('error', () => undefined);
      one.on('close', () => {
        this.#sockets.delete(one);
        // Ends the other connection after the bytes that were read before, because a GOAWAY may precede a reset.
        other.destroySoon();
      });
      one.pipe(other);
    }
  }

  async close(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}
