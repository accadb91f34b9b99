import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import { createConnection, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import type { SeenFrame } from './wire.ts';
import { HEADERS, PREFACE, parseFrames, SETTINGS_ACK, settings, windowUpdate } from './wire.ts';

/** One connection of a client. Tests read and answer its frames. */
export class RawPeer {
  /** All frames that have arrived. */
  readonly frames: SeenFrame[] = [];
  /** Chunks that have arrived: the writes of the client, unless they were joined on the way. */
  chunks = 0;
  isClosed = false;
  #rest = Buffer.alloc(0);
  #hasPreface = false;
  readonly #decoder = new HpackDecoder(4096, MiB);
  readonly #waiting = new Set<() => void>();

  constructor(readonly socket: Socket) {
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('close', () => {
      this.isClosed = true;
      for (const check of this.#waiting) check();
    });
  }

  send(...bytes: Uint8Array[]): void {
    this.socket.write(Buffer.concat(bytes));
  }

  /** Sends the server's first frames. */
  greet(...pairs: [id: number, value: number][]): void {
    this.send(settings(...pairs), SETTINGS_ACK);
  }

  /** Resolves when this many frames match. */
  async seen(matches: (frame: SeenFrame) => boolean, count = 1): Promise<SeenFrame[]> {
    await this.#until(() => this.frames.filter(matches).length >= count);
    return this.frames.filter(matches);
  }

  /** Resolves with the stream ids of the first requests. */
  async requests(count = 1): Promise<number[]> {
    return (await this.seen(({ type }) => type === HEADERS, count)).map(({ id }) => id);
  }

  /** Returns the fields of a request. Each block may be decoded once. */
  fieldsOf(seen: SeenFrame): Record<string, string> {
    return Object.fromEntries(this.#decoder.decode(seen.payload).map(({ name, value }) => [name, value]));
  }

  async closed(): Promise<void> {
    await this.#until(() => this.isClosed);
  }

  #until(isTrue: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const check = (): void => {
        if (!isTrue()) return;
        this.#waiting.delete(check);
        resolve();
      };
      this.#waiting.add(check);
      check();
    });
  }

  #read(chunk: Buffer): void {
    this.chunks += 1;
    let bytes = Buffer.concat([this.#rest, chunk]);
    if (!this.#hasPreface && bytes.length >= PREFACE.length) {
      if (!bytes.subarray(0, PREFACE.length).equals(PREFACE)) throw new Error('no preface');
      this.#hasPreface = true;
      bytes = bytes.subarray(PREFACE.length);
    }
    if (!this.#hasPreface) {
      this.#rest = bytes;
      return;
    }
    const { frames, rest } = parseFrames(bytes);
    this.#rest = Buffer.from(rest);
    this.frames.push(...frames);
    for (const check of this.#waiting) check();
  }
}

/** A server on a unix socket whose frames a test writes. */
export class RawServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'raw-server-'));
  readonly path = join(this.folder, 's.sock');
  readonly peers: RawPeer[] = [];
  #server: Server | undefined;
  readonly #arrived = new Set<() => void>();

  /** @param each called with each connection */
  async listen(each: (peer: RawPeer) => void = () => undefined): Promise<void> {
    this.#server = createServer((socket) => {
      const peer = new RawPeer(socket);
      this.peers.push(peer);
      each(peer);
      for (const check of this.#arrived) check();
    }).listen(this.path);
    await once(this.#server, 'listening');
  }

  /** Resolves with the connection of this index. */
  async peer(index = 0): Promise<RawPeer> {
    return new Promise((resolve) => {
      const check = (): void => {
        const peer = this.peers[index];
        if (peer === undefined) return;
        this.#arrived.delete(check);
        resolve(peer);
      };
      this.#arrived.add(check);
      check();
    });
  }

  /** Closes the listener and all connections. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const { socket } of this.peers) socket.destroy();
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }

  async remove(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true });
  }
}

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

/** Writes bytes. Waits while the other side does not read, but at most a second. */
export async function writeRaw(socket: Socket, bytes: Uint8Array): Promise<void> {
  if (!socket.destroyed && !socket.write(bytes))
    await Promise.race([once(socket, 'drain'), once(socket, 'close'), delay(1000)]);
}
