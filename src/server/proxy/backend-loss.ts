import { errnoOf } from '../../core/index.ts';
import { settingsFrame } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';

/** Ends a connection whose backend is gone: its calls end UNAVAILABLE, and the client is asked to reconnect. */
export class BackendLoss {
  constructor(private readonly parts: ConnectionParts) {}

  /** The connection to the backend has closed. Calls end in grpc-go's words, which some programs match. */
  closedBy(error: Error | undefined): void {
    const { lifecycle, options } = this.parts;
    const errno = errnoOf(error);
    if (errno === 'EMFILE' || errno === 'ENFILE') {
      const message = `cri-resize-shim has no free file descriptor (${errno}): raise its limit (LimitNOFILE=), or end connections`;
      this.lost(message, () => options.observer.noDescriptor(message));
    } else if (lifecycle.state.kind === 'opening')
      this.lost(`backend unavailable: ${error?.message ?? 'it closed the connection'}`);
    else this.lost(`error reading from server: ${error?.message ?? 'EOF'}`);
  }

  /** The backend cannot be used any more. */
  lost(message: string, report = (): void => this.parts.options.observer.backendLost(message)): void {
    const parts = this.parts;
    if (parts.lifecycle.isOver || parts.backend.gone) return;
    parts.backend.gone = true;
    parts.endBackend();
    report();
    if (parts.lifecycle.state.kind === 'opening') {
      this.#refuse(message);
      return;
    }
    parts.streams.backendLost(message);
    parts.asClient(() => parts.control.acknowledgeAll());
    parts.goAway(message);
  }

  /** Acts as the server without a backend, so that the client's first calls are answered UNAVAILABLE. */
  #refuse(message: string): void {
    const parts = this.parts;
    const timer = setTimeout(() => parts.run('client', () => parts.close()), parts.options.refuseTimeout);
    parts.lifecycle.refuse(message, timer);
    parts.toClient.push(settingsFrame([]));
    parts.asClient(() => {
      parts.control.acknowledgeAll();
      parts.client.reader.resume();
    });
  }
}
