import { type Duplex, duplexPair } from 'node:stream';

/**
 * Returns a pair of connected streams: one for a node:http2 server, and one for its client, {@link PairTransport}. When the client's
 * half is destroyed, so is the server's, at once. Node's own pair only ends it, and node:http2 then closes its side of a stream
 * without a socket while calls still run. Their answers end the process (`kCurrentShutdownRequest === null` in JSStreamSocket).
 */
export function localPair(): readonly [server: Duplex, client: Duplex] {
  const [server, client] = duplexPair();
  client._destroy = (error, callback) => {
    server.destroy();
    callback(error);
  };
  return [server, client];
}
