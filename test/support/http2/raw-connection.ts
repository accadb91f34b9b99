import { once } from 'node:events';
import { type Socket, createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { PREFACE, SETTINGS_ACK, settings, windowUpdate } from './wire.ts';

/** The first frames of a client that lets the server send as much as it wants. */
export const greeting = (...pairs: [id: number, value: number][]): Buffer =>
  Buffer.concat([PREFACE, settings(...pairs), SETTINGS_ACK, windowUpdate(0, 1 << 30)]);

/** Opens a connection to a socket that speaks HTTP/2, for frames that are written by hand. */
export async function openRaw(path: string, ...pairs: [id: number, value: number][]): Promise<Socket> {
  const socket = createConnection(path)
    .on('error', () => undefined)
    .setMaxListeners(0);
  await once(socket, 'connect');
  socket.write(greeting(...pairs));
  return socket;
}

/** Writes, and waits while the other side does not read, but at most a second. */
export async function writeRaw(socket: Socket, bytes: Uint8Array): Promise<void> {
  if (!socket.destroyed && !socket.write(bytes))
    await Promise.race([once(socket, 'drain'), once(socket, 'close'), delay(1000)]);
}
