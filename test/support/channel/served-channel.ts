import { afterEach, beforeEach } from 'vitest';
import { isServiceError, type Metadata } from '../../../src/core/grpc.ts';
import { Channel } from '../../../src/runtime/channel/channel.ts';
import { type RawPeer, RawServer } from '../http2/raw-server.ts';
import { data, headers, message, OK, RESPONSE } from '../http2/wire.ts';

/** The longest message of the channel, in bytes. */
export const LIMIT = 4_000_000;
export const PATH = '/s/Method';

export interface CallOptions {
  readonly request?: Buffer;
  readonly deadline?: number;
  readonly signal?: AbortSignal;
  readonly metadata?: Metadata;
}

/** A call that has begun: its stream, and the server's side of its connection. */
export interface StartedCall {
  readonly running: Promise<Buffer>;
  readonly peer: RawPeer;
  readonly id: number;
}

/** A channel, and the server that it connects to: one pair for each test. */
export class ServedChannel {
  server!: RawServer;
  channel!: Channel;
  /** Connections that were made. */
  connections = 0;

  constructor() {
    beforeEach(async () => {
      this.server = new RawServer();
      this.connections = 0;
      this.channel = new Channel(this.server.path, LIMIT, () => (this.connections += 1));
      await this.server.listen((peer) => peer.greet());
    });
    afterEach(async () => {
      this.channel.close();
      await this.server.remove();
    });
  }

  readonly call = ({
    request = Buffer.from('ask'),
    deadline = Infinity,
    signal,
    metadata,
  }: CallOptions = {}): Promise<Buffer> =>
    this.channel.call({ path: PATH, message: request, metadata, deadline, signal });

  readonly started = async (options: CallOptions = {}): Promise<StartedCall> => {
    const running = this.call(options);
    running.catch(() => undefined);
    const peer = await this.server.peer();
    const [id = 0] = await peer.requests();
    return { running, peer, id };
  };
}

/** Resolves with code and details of a failed call. */
export async function failureOf(running: Promise<Buffer>): Promise<[number, string]> {
  const error = await running.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!isServiceError(error)) throw new Error('the call has not failed', { cause: error });
  return [error.code, error.details];
}

/** The frames of a response. */
export const answer = (id: number, body = Buffer.from('answer')): Buffer =>
  Buffer.concat([headers(id, RESPONSE), data(id, message(body)), headers(id, OK, true)]);
