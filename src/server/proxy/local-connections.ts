import type { ConnectionError } from '../http2/index.ts';
import { LocalSide, type LocalSidePorts } from './local-side.ts';
import type { Side } from './observer.ts';
import type { Transport } from './transport/index.ts';

/** What {@link LocalConnections} uses of the connection. */
export interface LocalConnectionsPorts extends LocalSidePorts {
  run(side: Side, action: () => void): void;
  /** Handles a chunk. Returns whether its memory can be reused. */
  receive(name: Side, side: LocalSide, chunk: Buffer): boolean;
  balance(): void;
}

/** The connections to the local server: the one that takes new streams, and retired ones whose streams still run. */
export class LocalConnections {
  readonly #transports = new Map<LocalSide, Transport>();
  /** Takes new streams. */
  #current: LocalSide | undefined;
  readonly #ports: LocalConnectionsPorts;

  constructor(ports: LocalConnectionsPorts) {
    this.#ports = ports;
  }

  /** Returns the connection that takes new streams. Opens it if the first stream needs it. */
  current(): LocalSide {
    if (this.#current !== undefined) return this.#current;
    const ports = this.#ports;
    const side = new LocalSide(ports);
    const transport = ports.options.connectLocal({
      data: (chunk) => !this.#transports.has(side) || ports.receive('local', side, chunk),
      drained: () => ports.balance(),
      closed: () => ports.run('local', () => this.#lost(side)),
    });
    side.outbox.open(transport);
    this.#current = side;
    this.#transports.set(side, transport);
    return side;
  }

  /** Opens no new streams on this connection: the next stream gets a new one. */
  retire(side: LocalSide): void {
    if (this.#current === side) this.#current = undefined;
  }

  /** Closes a connection whose server broke the protocol. */
  fail(side: LocalSide, error: ConnectionError): void {
    this.#ports.options.observer.protocolError('local', error.code, error.message);
    const transport = this.#transports.get(side);
    this.#lost(side);
    transport?.destroy();
  }

  transports(): Iterable<Transport> {
    return this.#transports.values();
  }

  /** Bytes that were written and have not left the process. */
  get backlog(): number {
    let bytes = 0;
    for (const transport of this.#transports.values()) bytes += transport.backlog;
    return bytes;
  }

  flush(): void {
    for (const side of this.#transports.keys()) side.flush();
  }

  /** Makes memory of sent data available again. */
  recycle(): void {
    for (const side of this.#transports.keys()) side.flowControl.recycle();
  }

  /** Closes all connections. */
  end(): void {
    for (const [side, transport] of this.#transports) {
      side.outbox.close();
      transport.end();
    }
    this.#transports.clear();
    this.#current = undefined;
  }

  #lost(side: LocalSide): void {
    this.retire(side);
    this.#transports.delete(side);
    side.outbox.close();
    this.#ports.streams.localLost(side, 'cri-resize-shim ended the call');
  }
}
