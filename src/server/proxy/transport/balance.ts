import type { Transport } from './transport.ts';

/** Bytes of backlog at which the proxy stops reading for a side. The kernel's socket buffers are full by then. */
const BACKLOG_LIMIT = 65_536;
/** Bytes of backlog at which the proxy stops reading the client itself: answers to its pings and settings pile up. */
const CLIENT_BACKLOG_LIMIT = 1_048_576;

/**
 * Pauses and resumes transports, so that the proxy reads from no side faster than the others take the data.
 * @param readClient whether the client is to be read at all
 */
export function balance(
  client: Transport,
  backend: Transport | undefined,
  locals: Iterable<Transport>,
  readClient: boolean,
): void {
  const { backlog } = client;
  const forClient = backlog <= BACKLOG_LIMIT;
  let fromClient = readClient && backlog <= CLIENT_BACKLOG_LIMIT;
  if (backend !== undefined) {
    setReading(backend, forClient);
    fromClient &&= backend.backlog <= BACKLOG_LIMIT;
  }
  for (const local of locals) {
    setReading(local, forClient);
    fromClient &&= local.backlog <= BACKLOG_LIMIT;
  }
  setReading(client, fromClient);
}

function setReading(transport: Transport, reading: boolean): void {
  if (reading) transport.resume();
  else transport.pause();
}
