import type { Transport } from './transport.ts';

/** Bytes that a side may be behind before nothing more is read for it: the kernel's buffers are behind already then. */
const BACKLOG = 65_536;
/** Bytes of answers to the client itself (pings, settings) before it is not read any more. */
const OWN_BACKLOG = 1_048_576;

/**
 * Reads from nobody faster than the others take it.
 * @param wanted whether the client is to be read at all
 */
export function balance(
  client: Transport,
  backend: Transport | undefined,
  locals: Iterable<Transport>,
  wanted: boolean,
): void {
  const { backlog } = client;
  const forClient = backlog <= BACKLOG;
  let fromClient = wanted && backlog <= OWN_BACKLOG;
  if (backend !== undefined) {
    setReading(backend, forClient);
    fromClient &&= backend.backlog <= BACKLOG;
  }
  for (const local of locals) {
    setReading(local, forClient);
    fromClient &&= local.backlog <= BACKLOG;
  }
  setReading(client, fromClient);
}

function setReading(transport: Transport, reading: boolean): void {
  if (reading) transport.resume();
  else transport.pause();
}
