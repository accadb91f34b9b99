import { MiB } from '../../../core/quantities/index.ts';
import type { Transport } from './transport.ts';

/** Bytes of backlog at which the proxy stops reading for a side. The kernel's socket buffers are full by then. */
const BACKLOG_LIMIT = 65_536;
/** Bytes of backlog at which the proxy stops reading a side itself: answers to its pings, settings and DATA pile up. */
const OWN_BACKLOG_LIMIT = MiB;

/**
 * Pauses and resumes transports, so that the proxy reads from no side faster than the others take the data.
 * @param reads whether each side is to be read at all
 * @param isFull whether what waits for all clients has reached its limit
 */
export function balance(
  client: Transport,
  backend: Transport | undefined,
  locals: Iterable<Transport>,
  reads: { readonly client: boolean; readonly backend: boolean },
  isFull: boolean,
): void {
  const { backlog } = client;
  const forClient = backlog <= BACKLOG_LIMIT;
  let fromClient = reads.client && backlog <= (isFull ? BACKLOG_LIMIT : OWN_BACKLOG_LIMIT);
  if (backend !== undefined) {
    setReading(backend, reads.backend && forClient && backend.backlog <= OWN_BACKLOG_LIMIT);
    fromClient &&= backend.backlog <= BACKLOG_LIMIT;
  }
  for (const local of locals) {
    setReading(local, forClient && local.backlog <= OWN_BACKLOG_LIMIT);
    fromClient &&= local.backlog <= BACKLOG_LIMIT;
  }
  setReading(client, fromClient);
}

function setReading(transport: Transport, reading: boolean): void {
  if (reading) transport.resume();
  else transport.pause();
}
