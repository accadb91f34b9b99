import { errnoOf } from '../../core/errors/index.ts';
import { type FrameReader, settingsFrame } from '../http2/index.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Side } from './observer.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Streams } from './streams/index.ts';
import type { Outbox } from './transport/index.ts';

/** What {@link BackendLoss} uses of the connection. */
export interface BackendLossPorts {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle: Lifecycle;
  readonly toClient: Outbox;
  readonly streams: Streams;
  /** `gone`: the connection to the backend is closed. */
  readonly backend: { gone: boolean };
  readonly client: { readonly reader: FrameReader };
  readonly control: {
    /** Acknowledges all pending SETTINGS of the client. */
    acknowledgeAll(): void;
  };
  /** Ends the connection to the backend. */
  endBackend(): void;
  /** Sends GOAWAY with the last stream that the client has opened. */
  goAway(message: string): void;
  /** Sends what is left and closes, without waiting for streams. */
  close(): void;
  /** Handles an event of a side, then writes what has gathered. */
  run(side: Side, action: () => void): void;
  /** Runs an action during work for another side. Its errors are the client's. */
  asClient(action: () => void): void;
}

/** What a connection does when its backend is gone: calls at the backend end UNAVAILABLE, and the client is asked to connect again. */
export class BackendLoss {
  readonly #ports: BackendLossPorts;

  constructor(ports: BackendLossPorts) {
    this.#ports = ports;
  }

  /** The connection to the backend has closed. During calls, clients get the words of grpc-go's client, which some programs match. */
  closedBy(error: Error | undefined): void {
    const { lifecycle, options } = this.#ports;
    const errno = errnoOf(error);
    if (errno === 'EMFILE' || errno === 'ENFILE') {
      const message = `cri-resize-shim has no free file descriptor (${errno}): raise its limit (LimitNOFILE=), or end connections`;
      this.lost(message, () => options.observer.noDescriptor(message));
    } else if (lifecycle.state.kind === 'opening')
      this.lost(`backend unavailable: ${error?.message ?? 'it closed the connection'}`);
    else this.lost(`error reading from server: ${error?.message ?? 'EOF'}`);
  }

  /** The backend cannot be used any more. */
  lost(message: string, report = (): void => this.#ports.options.observer.backendLost(message)): void {
    const ports = this.#ports;
    if (ports.lifecycle.isOver || ports.backend.gone) return;
    ports.backend.gone = true;
    ports.endBackend();
    report();
    if (ports.lifecycle.state.kind === 'opening') {
      this.#refuse(message);
      return;
    }
    ports.streams.backendLost(message);
    ports.asClient(() => ports.control.acknowledgeAll());
    ports.goAway(message);
  }

  /** Acts as the server without a backend, so that the client's first calls are answered UNAVAILABLE. */
  #refuse(message: string): void {
    const ports = this.#ports;
    const timer = setTimeout(() => ports.run('client', () => ports.close()), ports.options.refuseTimeout);
    ports.lifecycle.refuse(message, timer);
    ports.toClient.push(settingsFrame([]));
    ports.asClient(() => {
      ports.control.acknowledgeAll();
      ports.client.reader.resume();
    });
  }
}
